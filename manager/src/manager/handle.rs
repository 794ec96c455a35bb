//! The handle of a registered controller.

use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::lifecycle::OWN_TURN;
use super::members::{WeakMembers, drop_removed};
use crate::controller::{ControllerPort, ControllerStatus, ControllerView as _, Grace, Stage};
use crate::key::{Key, NamespacedName};
use crate::watch::Source;

/// A handle of a registered controller. Cheap to clone; dropping it does not remove the controller.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mainstay::cache::Scope;
/// use mainstay::controller::Controller;
/// use mainstay::key::NamespacedName;
/// use mainstay::manager::Manager;
/// # use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
/// # struct Greeter;
/// # impl Reconciler for Greeter {
/// #     async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome { Ok(Action::Done) }
/// # }
/// # async fn wire(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
/// let maps = manager.store::<ConfigMap>(Scope::all());
/// let greeter = manager.register(Controller::new("greeter").reconciles(&maps).reconciler(Greeter))?;
/// greeter.trigger(NamespacedName::namespaced("shop", "web"))?;
/// // Later, while the manager goes on:
/// greeter.remove().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("ControllerHandle {{ name: {:?}, .. }}", self.name)]
pub struct ControllerHandle<Q: Key = NamespacedName> {
    pub(super) name: Arc<str>,
    /// Weak reference to the parts of the controller that this handle calls; they are dropped with the
    /// controller.
    pub(super) port: Weak<ControllerPort<Q>>,
    /// Cancelled to remove the controller.
    pub(super) leave: CancellationToken,
    /// Publishes the progress of the controller; the channel closes once all parts of the controller have
    /// ended.
    pub(super) stage: watch::Receiver<Stage>,
    /// Returns the grace period that runs and sources of the controller have to end in a removal.
    pub(super) grace: Grace,
    pub(super) members: WeakMembers,
}

/// Error: the controller has been removed, or its manager has ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("controller {name:?} has been removed, or its manager has ended")]
pub struct ControllerGone {
    /// The name of the controller.
    pub name: Arc<str>,
}

/// Error of [`ControllerHandle::remove`]: the removal of a controller was not orderly.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// The controller is removed, but some of its work was dropped at the end of the grace period. No retry
    /// is needed.
    #[error(
        "controller {name:?} is removed; dropped after shutdown.gracePeriod {grace:?}: {}", late.join(", ")
    )]
    Late {
        /// The name of the controller.
        name: Arc<str>,
        /// The grace period that the work of the controller exceeded.
        grace: Duration,
        /// The keys and sources of the controller that were dropped.
        late: Vec<String>,
    },
    /// Work of the controller blocks its thread, so it can be neither awaited nor dropped. The name of the
    /// controller stays taken until that work ends.
    #[error(
        "controller {name:?} is still there after shutdown.gracePeriod {grace:?}: {} blocks its thread; \
         use awaits or spawn_blocking", if late.is_empty() { "something".to_owned() } else { late.join(", ") }
    )]
    StillRunning {
        /// The name of the controller.
        name: Arc<str>,
        /// The grace period that the work of the controller exceeded.
        grace: Duration,
        /// The keys and sources of the controller that still run.
        late: Vec<String>,
    },
    /// The manager stopped during the removal of the controller, and its grace period ended first.
    #[error("controller {name:?} was dropped with its manager, which stopped during the removal")]
    CutShort {
        /// The name of the controller.
        name: Arc<str>,
    },
}

// === impl ControllerHandle ===

impl<Q: Key> ControllerHandle<Q> {
    /// Returns the name of the controller.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the present state of the controller; `None` once it has ended.
    pub fn status(&self) -> Option<ControllerStatus> {
        self.port.upgrade().map(|port| port.status())
    }

    /// Enqueues `key` in the controller as if a person had asked for it: a key in backoff and a parked one
    /// run at once. Before the controller runs, and on a standby replica, the key waits on the queue.
    ///
    /// # Errors
    /// The controller has been removed or has ended.
    pub fn trigger(&self, key: Q) -> Result<(), ControllerGone> {
        self.reach()?.trigger(key);
        Ok(())
    }

    /// Adds a source of keys to the controller. It starts with the controller, or now if the controller runs.
    /// A controller that has not reconciled yet waits for the source's sync as for that of any other source.
    /// One that has continues meanwhile, which is safe because reads from a store without its first list are
    /// errors.
    ///
    /// # Errors
    /// The controller has been removed or has ended.
    pub fn add_source(&self, source: impl Source<Q>) -> Result<(), ControllerGone> {
        let taken = self.reach()?.add_source(Box::new(source));
        if taken { Ok(()) } else { Err(self.gone()) }
    }

    /// Removes the controller from its manager, which continues. Its sources end, its queue closes, and
    /// running reconciles have `shutdown.gracePeriod` to end, before they are dropped at their next await.
    /// After a return without error the controller has no task, subscription, metric or debug page any more,
    /// and its name is free. A second removal has no effect. Stores stay, because they belong to the
    /// manager.
    ///
    /// The removal begins with the call, and the future only waits for its end. A reconcile that removes its
    /// own controller has to drop the future, because it cannot wait for itself.
    ///
    /// # Errors
    /// See [`RemoveError`]; in each case the controller starts no more runs.
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting; the removal goes on.
    pub fn remove(&self) -> impl Future<Output = Result<(), RemoveError>> + Send + 'static {
        self.leave.cancel();
        drop_removed(&self.members);
        let (name, grace, mut stage) = (Arc::clone(&self.name), (self.grace)(), self.stage.clone());
        async move {
            // The channel closes with the controller; no value on it ends the wait.
            let ended = timeout(grace + OWN_TURN, stage.wait_for(|_| false)).await.is_ok();
            let Stage { living, late } = stage.borrow().clone();
            match (ended, living) {
                (false, _) => Err(RemoveError::StillRunning { name, grace, late }),
                (true, true) => Err(RemoveError::CutShort { name }),
                (true, false) if late.is_empty() => Ok(()),
                (true, false) => Err(RemoveError::Late { name, grace, late }),
            }
        }
    }

    fn reach(&self) -> Result<Arc<ControllerPort<Q>>, ControllerGone> {
        let port = if self.leave.is_cancelled() { None } else { self.port.upgrade() };
        port.ok_or_else(|| self.gone())
    }

    fn gone(&self) -> ControllerGone {
        ControllerGone { name: Arc::clone(&self.name) }
    }
}

#[cfg(test)]
mod tests;
