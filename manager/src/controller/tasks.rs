//! Tasks by name: the failure of one, a panic included, is returned with its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::{Id, JoinError, JoinSet};

use crate::key::panic_text;
use crate::reconcile::BoxError;

/// The name of a task that failed, and its error.
pub(crate) type Failure = (Arc<str>, BoxError);

/// A set of named tasks that are awaited and aborted together. Several may have one name.
#[derive(Default)]
pub(crate) struct NamedTasks {
    tasks: JoinSet<Result<(), BoxError>>,
    /// The names of the tasks that run, or have ended without being awaited yet.
    names: BTreeMap<Id, Arc<str>>,
}

// === impl NamedTasks ===

impl NamedTasks {
    pub(crate) fn spawn(
        &mut self,
        name: Arc<str>,
        task: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) {
        self.names.insert(self.tasks.spawn(task).id(), name);
    }

    /// Waits for a task to fail and returns its name and error. `None` if no task runs, so that a `select!`
    /// skips it.
    ///
    /// # Cancel safety
    /// No failure is lost.
    pub(crate) async fn failure(&mut self) -> Option<Failure> {
        loop {
            let ended = self.tasks.join_next_with_id().await?;
            if let Some(failure) = self.judge(ended) {
                return Some(failure);
            }
        }
    }

    /// Returns the names of the tasks that have not ended.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.values()
    }

    /// Aborts every task: it is dropped at its next await.
    pub(crate) fn abort_all(&mut self) {
        self.tasks.abort_all();
    }

    fn judge(&mut self, ended: Result<(Id, Result<(), BoxError>), JoinError>) -> Option<Failure> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let name = self.names.remove(&id).unwrap_or_default();
        let error = match ended {
            Ok((_, result)) => result.err()?,
            // A task that did not panic was aborted: it was late, or the runtime shuts down.
            Err(end) => format!("panicked: {}", panic_text(&*end.try_into_panic().ok()?)).into(),
        };
        Some((name, error))
    }
}
