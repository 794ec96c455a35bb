//! Anything with a lifetime that is not a controller.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span};

use super::gates::{Gate, Gates};
use crate::reconcile::{BoxError, Context, RunEnvironment};

/// Something that runs beside the controllers: a server, a poller, a one-off job.
///
/// The first one that ends with an error ends the manager; one that ends well is simply over. A panic is an error. So is
/// what it returns after it was told to stop: work that is rightly left undone then is `Ok`.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use mainstay::manager::{RunContext, Runnable, RunnableGroup};
/// use mainstay::reconcile::BoxError;
/// use tokio::net::TcpListener;
///
/// /// Answers the API server, which asks before it answers the caches.
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
    /// Returns what logs, errors and `/readyz/NAME` call it: 1 to 63 lower-case letters, digits and hyphens, no hyphen
    /// at either end. Asked once, as are [`group`](Self::group) and [`declares_readiness`](Self::declares_readiness):
    /// when it is added.
    ///
    /// Two may have one name, and share `/readyz/NAME`, which is ready once both are. A check that is added to
    /// [`Manager::checks`](super::Manager::checks) under the same name takes the place of theirs: give it another.
    fn name(&self) -> &'static str;

    /// Returns with whom it starts and stops. The leader only, by default: work that two replicas must not do
    /// at the same time is the rule, and forgetting to say so would be found out late.
    fn group(&self) -> RunnableGroup {
        RunnableGroup::LeaderElection
    }

    /// Returns whether it is ready only when it says so, by [`RunContext::ready`], or has ended well. Without, which is
    /// the default, it is ready as it starts.
    ///
    /// Until it is ready, `/readyz` fails, unless it runs on the leader only: a standby replica is as ready as the
    /// leader. `/readyz/NAME` tells either way. One that was added before the groups behind its own began holds
    /// them up, and the election with them; one that is added later holds up nobody. So what is ready only on the leader
    /// belongs to the leader's group: in another one it would wait for the election that waits for it.
    fn declares_readiness(&self) -> bool {
        false
    }

    /// Runs until `cx.stop` is cancelled or the work is over.
    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// With whom a [`Runnable`] starts and stops. A group begins once the one before it is ready; groups stop in the opposite
/// order. Added to a running manager, a runnable starts as soon as its group has begun and the stores have been listed that
/// were declared before it, which a server does not wait for; stores that are declared later hold up nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunnableGroup {
    /// After the manager's own servers and before its caches, on every replica: what the API server needs before it can
    /// answer the caches, such as the webhook that converts what they list.
    Servers,
    /// After the caches have been listed, on every replica, whether it leads or not.
    Others,
    /// After all others, for as long as this replica leads. Ends before the Lease is released, and is dropped
    /// at its next await if the Lease is lost.
    LeaderElection,
}

/// What a runnable runs in.
#[derive(Clone)]
pub struct RunContext {
    /// Cancelled when the runnable is to end. Its future is dropped if it has not by the end of the grace period, or at
    /// once if the Lease is lost.
    pub stop: CancellationToken,
    /// Whether this replica leads, and every change of it: for a runnable that needs no Lease and yet does less without.
    pub leading: watch::Receiver<bool>,
    pub(super) run_environment: RunEnvironment,
    /// Of the Lease if the runnable needs it, else 1.
    pub(super) term: u64,
    /// `None` if it is ready as it starts.
    pub(super) gate: Option<Gate>,
}

/// A runnable that has been added, and what it said of itself then: no later word moves it to another group.
pub(super) struct Recruit {
    pub(super) name: Arc<str>,
    pub(super) group: RunnableGroup,
    pub(super) gate: Option<Gate>,
    pub(super) runnable: Box<dyn Runnable>,
}

// === impl RunContext ===

impl RunContext {
    /// Returns what writes are made with: fenced by the Lease and of its term if the runnable needs it.
    pub fn context(&self) -> Context {
        self.run_environment.context().with_term(self.term)
    }

    /// Says that the runnable is ready: those who start after it may. Once is enough, and it cannot be taken back. Changes
    /// nothing for a runnable that does not [declare its readiness](Runnable::declares_readiness).
    pub fn ready(&self) {
        if let Some(gate) = &self.gate {
            gate.ready();
        }
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("stop", &self.stop).finish_non_exhaustive()
    }
}

// === impl Recruit ===

impl Recruit {
    pub(super) fn new(name: &'static str, runnable: impl Runnable, gates: &Gates) -> Self {
        let group = runnable.group();
        let gate = runnable.declares_readiness().then(|| gates.enter(name, group));
        Self { name: name.into(), group, gate, runnable: Box::new(runnable) }
    }

    /// Runs it, as a future that calls nothing of the user's before it is polled: a panic is the task's then.
    pub(super) fn run(self, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>> {
        let Self { name, gate, runnable, .. } = self;
        if let Some(gate) = &gate {
            gate.started();
        }
        let run = async move {
            let result = runnable.run(cx).await;
            if let (Ok(()), Some(gate)) = (&result, &gate) {
                gate.over();
            }
            result
        };
        // An error's level: a line must name its runnable wherever it is shown.
        Box::pin(run.instrument(error_span!("runnable", runnable = &*name)))
    }
}

#[cfg(test)]
mod tests;
