//! `/debug/controllers`: every running controller, by name.

use serde::Serialize;

use super::seconds;
use crate::controller::{ControllerStatus, Directory, Target};
use crate::queue::Counts;

#[derive(Serialize)]
pub(super) struct Controllers {
    controllers: Vec<Controller>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Controller {
    name: &'static str,
    workers: usize,
    needs_lease: bool,
    /// This replica leads, or the controller needs no Lease.
    leading: bool,
    /// Every source has handled its initial list. Reconciles run if it leads and has synced.
    synced: bool,
    /// What a person has paused of it, until they resume it or the process ends. `null` fits any: twice, all of it.
    pauses: Vec<Pause>,
    queue: Queue,
}

#[derive(Serialize)]
struct Pause {
    namespace: Option<String>,
    name: Option<String>,
}

/// How many keys are in which state.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    ready: Ready,
    /// Waiting for a moment, keys in backoff included.
    delayed: usize,
    /// With a worker, dirty ones included.
    running: usize,
    dirty: usize,
    /// Paused ones included.
    parked: usize,
    /// Parked without having failed.
    paused: usize,
    oldest_ready_seconds: Option<f64>,
    shutting_down: bool,
}

/// By lane.
#[derive(Serialize)]
struct Ready {
    live: usize,
    background: usize,
    retry: usize,
}

pub(super) fn page(directory: &Directory) -> Controllers {
    let controllers = directory.all();
    Controllers { controllers: controllers.iter().map(|controller| controller.status().into()).collect() }
}

impl From<ControllerStatus> for Controller {
    fn from(status: ControllerStatus) -> Self {
        Self {
            name: status.name,
            workers: status.settings.workers,
            needs_lease: status.needs_lease,
            leading: status.leading,
            synced: status.synced,
            pauses: status.pauses.into_iter().map(Pause::from).collect(),
            queue: status.counts.into(),
        }
    }
}

impl From<Target> for Pause {
    fn from(Target { namespace, name }: Target) -> Self {
        Self { namespace, name }
    }
}

impl From<Counts> for Queue {
    fn from(counts: Counts) -> Self {
        Self {
            ready: Ready {
                live: counts.ready_live,
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
