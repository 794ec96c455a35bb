//! What can be set of one controller, and what of it makes no sense.
//!
//! Code says what it wants as changes, not as values: whoever has the settings that hold below them applies the
//! changes to those, and may do so again whenever they have become others.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::{QueueSettings, SettingsProblem};

/// Workers of a controller unless configured.
pub const DEFAULT_WORKERS: usize = 2;
/// Most workers of a controller: more than this wait for the API server, whatever the machine.
pub const MAX_WORKERS: u16 = 1000;
/// Longest run of a reconcile unless configured.
pub const DEFAULT_RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// What can be set per controller.
///
/// Worked out when the controller is registered, and again whenever the configuration has become another one. A
/// controller that runs follows: its workers come and go between two runs, the timeout holds from the next run on, and
/// the queue follows [`WorkQueue::reconfigure`](crate::queue::WorkQueue::reconfigure).
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSettings {
    /// Whether the controller runs; read once, when it starts.
    pub enabled: bool,
    /// Whether workers take no key; running reconciles end and all keys stay queued.
    pub paused: bool,
    /// How many keys are reconciled at the same time: 1 to [`MAX_WORKERS`].
    pub workers: usize,
    /// How long one run may take before it is dropped and counted as failed; zero = as long as it likes.
    pub reconcile_timeout: Duration,
    /// Limits and retries of the queue.
    pub queue: QueueSettings,
}

/// What the code of a controller sets, in the order it was said. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct InCode {
    changes: Vec<Arc<Change>>,
}

type Change = dyn Fn(&mut ControllerSettings) + Send + Sync;

// === impl ControllerSettings ===

impl ControllerSettings {
    /// Returns everything that makes no sense, each with the path of its field as the configuration file spells it
    /// below the controller's name; empty if all does.
    pub fn problems(&self) -> Vec<SettingsProblem> {
        let mut problems = Vec::new();
        let reason = match self.workers {
            0 => Some("does no work"),
            workers if workers > MAX_WORKERS.into() => Some("only has more of them wait for the API server"),
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
    /// Adds a change after those there are.
    pub(super) fn push(&mut self, change: impl Fn(&mut ControllerSettings) + Send + Sync + 'static) {
        self.changes.push(Arc::new(change));
    }

    /// Changes what holds without the code.
    pub(crate) fn apply(&self, settings: &mut ControllerSettings) {
        for change in &self.changes {
            change(settings);
        }
    }
}
