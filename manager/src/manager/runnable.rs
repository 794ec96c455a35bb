//! Long-running parts of a manager that are no controllers.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span};

use super::readiness_list::{ReadinessEntry, ReadinessList};
use crate::reconcile::{BoxError, Context, RunEnvironment};

/// A long-running part of a manager beside the controllers: a server, a poller, a one-off job.
///
/// The first error of a runnable, or its first panic, ends the manager; an end without error does not. This
/// is also true after `cx.stop` is cancelled: return `Ok` for work that is left undone by a stop.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use mainstay::manager::{RunContext, Runnable, RunnableGroup};
/// use mainstay::reconcile::BoxError;
/// use tokio::net::TcpListener;
///
/// /// Serves the webhooks that the API server calls before it answers the caches.
/// struct Webhooks {
///     address: &'static str,
/// }
///
/// impl Runnable for Webhooks {
///     fn name(&self) -> &'static str {
///         "webhooks"
///     }
///
///     fn group(&self) -> RunnableGroup {
///         RunnableGroup::Servers
///     }
///
///     fn declares_readiness(&self) -> bool {
///         true
///     }
///
///     fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
///         Box::pin(async move {
///             let listener = TcpListener::bind(self.address).await?;
///             cx.ready(); // The caches, and all that starts after them, may begin.
///             while let Some(accepted) = cx.stop.run_until_cancelled(listener.accept()).await {
///                 let (_stream, _peer) = accepted?;
///                 // ...
///             }
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait Runnable: Send + 'static {
    /// Returns the name of the runnable for logs, errors and `/readyz/NAME`: 1 to 63 lower-case letters,
    /// digits and hyphens, no hyphen at either end. Called once, like [`group`](Self::group) and
    /// [`declares_readiness`](Self::declares_readiness): when the runnable is added.
    ///
    /// Two runnables of one name share `/readyz/NAME`, which is ready once both are. A check of the same name
    /// in [`Manager::checks`](super::Manager::checks) replaces theirs, so give it another name.
    fn name(&self) -> &'static str;

    /// Returns the start group of the runnable. By default it runs on the leader only: most work must not run
    /// on two replicas at the same time, and the opposite mistake would be noticed late.
    fn group(&self) -> RunnableGroup {
        RunnableGroup::LeaderElection
    }

    /// Returns whether the runnable becomes ready by [`RunContext::ready`], or by an end without error. By
    /// default it is ready when it starts.
    ///
    /// Until it is ready, `/readyz/NAME` fails, and so does `/readyz` unless it runs on the leader only. It
    /// also blocks later start groups, and the election, if it was added before they started. A runnable that
    /// becomes ready only on the leader has to be in the leader's group; in another group it would wait for
    /// the election that waits for it.
    fn declares_readiness(&self) -> bool {
        false
    }

    /// Runs the runnable until `cx.stop` is cancelled or the work is done.
    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// The start group of a [`Runnable`]. A group starts once the group before it is ready; groups stop in the
/// opposite order. A runnable that is added to a running manager starts once its group has started and,
/// unless it is a server, the stores declared before it have been listed. Stores that are declared later do
/// not delay it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunnableGroup {
    /// Runnables that start after the manager's own servers and before its caches, on every replica: servers
    /// that the API server needs before it can answer the caches, such as a conversion webhook.
    Servers,
    /// Runnables that start after the first lists of the caches, on every replica.
    Others,
    /// Runnables that start after all others, while this replica leads. They end before the Lease is
    /// released, and are dropped at their next await if the Lease is lost.
    LeaderElection,
}

/// The context that a runnable runs with: its stop token, the leadership, and access to the API server.
#[derive(Clone, derive_more::Debug)]
#[debug("RunContext {{ stop: {:?}, .. }}", self.stop)]
pub struct RunContext {
    /// Cancelled when the runnable has to end. Its future is dropped at the end of the grace period, or at
    /// once if the Lease is lost.
    pub stop: CancellationToken,
    /// Publishes whether this replica leads: for a runnable that needs no Lease and does less without it.
    pub leading: watch::Receiver<bool>,
    pub(super) run_environment: RunEnvironment,
    /// The number of the term of leadership if the runnable needs the Lease, else 1.
    pub(super) term: u64,
    /// The entry that the runnable marks as ready; `None` if it is ready when it starts.
    pub(super) entry: Option<ReadinessEntry>,
}

/// A runnable that has not started. Its name, group and readiness were read when it was added.
pub(super) struct PendingRunnable {
    pub(super) name: Arc<str>,
    pub(super) group: RunnableGroup,
    pub(super) entry: Option<ReadinessEntry>,
    pub(super) runnable: Box<dyn Runnable>,
}

// === impl RunContext ===

impl RunContext {
    /// Returns a context for writes of the runnable. If the runnable needs the Lease, the writes are fenced
    /// by it.
    pub fn context(&self) -> Context {
        self.run_environment.context().within(self.term, None)
    }

    /// Marks the runnable as ready, so that later start groups may start. It cannot be undone. No effect for
    /// a runnable that does not [declare its readiness](Runnable::declares_readiness).
    pub fn ready(&self) {
        if let Some(entry) = &self.entry {
            entry.ready();
        }
    }
}

// === impl PendingRunnable ===

impl PendingRunnable {
    pub(super) fn new(name: &'static str, runnable: impl Runnable, readiness_list: &ReadinessList) -> Self {
        let group = runnable.group();
        let entry = runnable.declares_readiness().then(|| readiness_list.enter(name, group));
        Self { name: name.into(), group, entry, runnable: Box::new(runnable) }
    }

    /// Returns the future of the runnable, which calls user code only when it is polled, so that a panic is
    /// one of its task.
    pub(super) fn run(self, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        let Self { name, entry, runnable, .. } = self;
        if let Some(entry) = &entry {
            entry.started();
        }
        let run = async move {
            let result = runnable.run(cx).await;
            if let (Ok(()), Some(entry)) = (&result, &entry) {
                entry.over();
            }
            result
        };
        // At level error, so that every line shows the runnable, whatever the log level.
        Box::pin(run.instrument(error_span!("runnable", runnable = &*name)))
    }
}

#[cfg(test)]
mod tests;
