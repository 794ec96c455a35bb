//! Members that live and end together.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::Timers;
use super::outcome::Problems;
use crate::reconcile::{BoxError, ReconcileError};

/// A member that has ended, by name.
type Ended = (&'static str, Result<(), BoxError>);

/// Members that are stopped together.
pub(super) struct Group {
    pub(super) stop: CancellationToken,
    tasks: JoinSet<Ended>,
    /// Names by task, for those who are late and those who panic.
    names: BTreeMap<tokio::task::Id, &'static str>,
}

// === impl Group ===

impl Group {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { stop, tasks: JoinSet::new(), names: BTreeMap::new() }
    }

    pub(super) fn spawn(&mut self, name: &'static str, task: BoxFuture<'static, Result<(), BoxError>>) {
        let handle = self.tasks.spawn(async move { (name, task.await) });
        self.names.insert(handle.id(), name);
    }

    /// Waits for a member to fail. `None` if there is no member left, so the caller's `select!` skips this.
    ///
    /// # Cancel safety
    /// A failure is taken only when it is returned.
    pub(super) async fn failure(&mut self) -> Option<(&'static str, BoxError)> {
        loop {
            let ended = self.tasks.join_next_with_id().await?;
            if let Some(failure) = self.judge(ended) {
                return Some(failure);
            }
        }
    }

    fn judge(&mut self, ended: Result<(Id, Ended), JoinError>) -> Option<(&'static str, BoxError)> {
        match ended {
            Ok((id, (name, result))) => {
                self.names.remove(&id);
                result.err().map(|error| (name, error))
            }
            Err(failure) => {
                let name = self.names.remove(&failure.id()).unwrap_or("a task");
                (!failure.is_cancelled()).then(|| (name, failure.into()))
            }
        }
    }

    /// Waits for the members to end; aborts and names those who have not by the deadline.
    pub(super) async fn end(&mut self, timers: &Timers, deadline: Instant, problems: &mut Problems) {
        while let Some(ended) = timers.until(deadline, self.tasks.join_next_with_id()).await {
            let Some(ended) = ended else { return };
            if let Some((name, error)) = self.judge(ended) {
                let error = ReconcileError::from(error);
                error!(name, %error, "failed while stopping");
                problems.failures.push(format!("{name}: {error}"));
            }
        }
        problems.late.extend(self.names.values().map(|name| (*name).to_owned()));
        self.tasks.abort_all();
    }
}
