//! Members that are stopped together.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::outcome::Problems;
use super::{PendingRunnable, Shared, Timers};
use crate::controller::{NamedTasks, Work};
use crate::manager::RunContext;

/// The running members of a manager that are stopped together, such as all leader-only ones.
pub(super) struct Group {
    pub(super) stop: CancellationToken,
    pub(super) tasks: NamedTasks,
}

// === impl Group ===

impl Group {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, tasks: NamedTasks::default() }
    }

    /// Starts a runnable in this group. With `work` it runs in a term of the Lease, and is dropped when the
    /// Lease is lost.
    pub(super) fn start(&mut self, pending: PendingRunnable, shared: &Shared, work: Option<Work>) {
        let name = Arc::clone(&pending.name);
        debug!(name = &*name, "starting");
        let cx = RunContext {
            stop: self.stop.child_token(),
            leading: shared.term.subscribe(),
            run_environment: shared.run_environment(&name, work.is_some()),
            // Without the Lease there is one term.
            term: work.as_ref().map_or(1, Work::term),
            entry: pending.entry.clone(),
        };
        let run = pending.run(cx);
        let Some(work) = work else { return self.tasks.spawn(name, run) };
        self.tasks.spawn(name, async move {
            // The order does not matter: a runnable that ends as the Lease is lost has ended.
            tokio::select! {
                result = run => result,
                () = work.lost() => Ok(()),
            }
        });
    }

    /// Waits for the members of this group to end. At the deadline it aborts the late ones and adds their
    /// names to `problems`.
    pub(super) async fn end(&mut self, timers: &Timers, deadline: Instant, problems: &mut Problems) {
        while let Some(failure) = timers.until(deadline, self.tasks.failure()).await {
            let Some(failure) = failure else { return };
            problems.fail(failure);
        }
        problems.late.extend(self.tasks.names().map(ToString::to_string));
        self.tasks.abort_all();
    }
}
