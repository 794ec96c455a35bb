//! `/debug/controllers`: every running controller, by name.

use super::pages::{Controller, Controllers, Counts, Ready};
use super::seconds;
use crate::controller::{ControllerStatus, Directory};
use crate::queue;

pub(super) fn page(directory: &Directory) -> Controllers {
    let controllers = directory.all();
    Controllers { controllers: controllers.iter().map(|controller| controller.status().into()).collect() }
}

impl From<ControllerStatus> for Controller {
    fn from(status: ControllerStatus) -> Self {
        Self {
            name: status.name.to_string().into(),
            workers: status.settings.workers,
            needs_lease: status.needs_lease,
            leading: status.leading,
            synced: status.synced,
            enabled: status.settings.enabled,
            paused: status.settings.paused,
            queue: status.counts.into(),
        }
    }
}

impl From<queue::Counts> for Counts {
    fn from(counts: queue::Counts) -> Self {
        Self {
            ready: Ready {
                live: counts.ready_live,
                new: counts.ready_new,
                background: counts.ready_background,
                retry: counts.ready_retry,
            },
            delayed: counts.delayed,
            running: counts.running,
            dirty: counts.dirty,
            parked: counts.parked,
            paused: counts.paused,
            oldest_ready_seconds: counts.oldest_ready.map(seconds),
            shutting_down: counts.shutting_down,
        }
    }
}
