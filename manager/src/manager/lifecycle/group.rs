//! Members that are stopped together.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::outcome::Problems;
use super::{PendingRunnable, Shared, Timers};
use crate::controller::Work;
use crate::key::panic_text;
use crate::manager::RunContext;
use crate::reconcile::BoxError;

/// The end of a member, with its name.
type Ended = (Arc<str>, Result<(), BoxError>);

/// Members that are stopped together.
pub(super) struct Group {
    pub(super) stop: CancellationToken,
    tasks: JoinSet<Ended>,
    /// Names by task, for late members and panics.
    names: BTreeMap<tokio::task::Id, Arc<str>>,
}

// === impl Group ===

impl Group {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, tasks: JoinSet::new(), names: BTreeMap::new() }
    }

    pub(super) fn spawn(
        &mut self,
        name: impl Into<Arc<str>>,
        task: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) {
        let name = name.into();
        let task_name = Arc::clone(&name);
        let handle = self.tasks.spawn(async move { (task_name, task.await) });
        self.names.insert(handle.id(), name);
    }

    /// Starts a runnable; with `work`, in a term of the Lease, which drops the runnable when it is lost.
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
        let Some(work) = work else { return self.spawn(name, run) };
        self.spawn(name, async move {
            // The order does not matter: a runnable that ends as the Lease is lost has ended.
            tokio::select! {
                result = run => result,
                () = work.lost() => Ok(()),
            }
        });
    }

    /// Waits for a member to fail. `None` if no member runs, so that a `select!` skips it.
    ///
    /// # Cancel safety
    /// No failure is lost.
    pub(super) async fn failure(&mut self) -> Option<(Arc<str>, BoxError)> {
        loop {
            let ended = self.tasks.join_next_with_id().await?;
            if let Some(failure) = self.judge(ended) {
                return Some(failure);
            }
        }
    }

    fn judge(&mut self, ended: Result<(Id, Ended), JoinError>) -> Option<(Arc<str>, BoxError)> {
        match ended {
            Ok((id, (name, result))) => {
                self.names.remove(&id);
                result.err().map(|error| (name, error))
            }
            Err(failure) => {
                let name = self.names.remove(&failure.id()).unwrap_or_else(|| "a task".into());
                let panic = failure.try_into_panic().ok()?;
                Some((name, format!("panicked: {}", panic_text(&*panic)).into()))
            }
        }
    }

    /// Waits for the members to end. At the deadline it aborts the late ones and adds their names to `problems`.
    pub(super) async fn end(&mut self, timers: &Timers, deadline: Instant, problems: &mut Problems) {
        while let Some(ended) = timers.until(deadline, self.tasks.join_next_with_id()).await {
            let Some(ended) = ended else { return };
            if let Some((name, error)) = self.judge(ended) {
                problems.fail(name, error);
            }
        }
        problems.late.extend(self.names.values().map(ToString::to_string));
        self.tasks.abort_all();
    }
}
