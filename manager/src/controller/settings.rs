//! The settings of one controller, and their bounds.
//!
//! Code gives changes instead of values. The manager applies them to the settings of the configuration file
//! for all controllers, and again whenever that file changes.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::{QueueSettings, SettingsProblem};

/// Default number of workers of a controller.
pub const DEFAULT_WORKERS: usize = 2;
/// Maximum number of workers of a controller: more would only wait for the API server, on any machine.
pub const MAX_WORKERS: u16 = 1000;
/// Default of the longest time of one reconcile, after which it is dropped.
pub const DEFAULT_RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// The settings of a controller.
///
/// Computed when the controller is registered, and again whenever the configuration changes. A running
/// controller applies a change at once: workers start and end between two runs, the timeout counts from the
/// next run on, and the queue is changed by [`WorkQueue::reconfigure`](crate::queue::WorkQueue::reconfigure).
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSettings {
    /// Whether the controller runs; read once, when it starts.
    pub enabled: bool,
    /// Whether the controller is paused: workers take no key, running reconciles end and all keys stay
    /// queued.
    pub paused: bool,
    /// Number of keys that are reconciled at the same time: 1 to [`MAX_WORKERS`].
    pub workers: usize,
    /// Longest time of one reconcile before it is dropped and counted as failed; zero for no limit.
    pub reconcile_timeout: Duration,
    /// Limits and retries of the controller's queue.
    pub queue: QueueSettings,
}

/// The changes that the code of a controller makes to its settings, in the order of the calls. Cheap to
/// clone.
#[derive(Clone, Default)]
pub(crate) struct InCode {
    changes: Vec<Arc<Change>>,
}

type Change = dyn Fn(&mut ControllerSettings) + Send + Sync;

// === impl ControllerSettings ===

impl ControllerSettings {
    /// Returns every setting of the controller that is out of bounds, with the path of its field below the
    /// controller's name in the configuration file.
    pub fn problems(&self) -> Vec<SettingsProblem> {
        let mut problems = Vec::new();
        let reason = match self.workers {
            0 => Some("would reconcile nothing"),
            workers if workers > MAX_WORKERS.into() => Some("would only wait for the API server"),
            _ => None,
        };
        problems.extend(reason.map(|reason| SettingsProblem {
            field: "workers".to_owned(),
            value: self.workers.to_string(),
            reason: format!("{reason}; give a number from 1 to {MAX_WORKERS}"),
        }));
        let queue = self.queue.problems().into_iter();
        problems.extend(
            queue.map(|problem| SettingsProblem { field: format!("queue.{}", problem.field), ..problem }),
        );
        problems
    }
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            paused: false,
            workers: DEFAULT_WORKERS,
            reconcile_timeout: DEFAULT_RECONCILE_TIMEOUT,
            queue: QueueSettings::default(),
        }
    }
}

// === impl InCode ===

impl InCode {
    /// Adds a change of the controller's settings after the present ones.
    pub(super) fn push(&mut self, change: impl Fn(&mut ControllerSettings) + Send + Sync + 'static) {
        self.changes.push(Arc::new(change));
    }

    /// Applies the changes by the controller's code to the settings that the configuration file gives.
    pub(crate) fn apply(&self, settings: &mut ControllerSettings) {
        for change in &self.changes {
            change(settings);
        }
    }
}
