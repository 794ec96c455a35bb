//! What a program holds of a controller it has registered.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::lifecycle::OWN_TURN;
use super::members::{WeakMembers, withdraw_leavers};
use crate::controller::{ControllerPort, ControllerStatus, ControllerView as _, Grace, Stage};
use crate::key::{Key, NamespacedName};
use crate::watch::Source;

/// A registered controller. Cheap to clone; dropping it does nothing.
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
#[derive(Clone)]
pub struct ControllerHandle<Q: Key = NamespacedName> {
    pub(super) name: Arc<str>,
    /// Gone with the controller.
    pub(super) port: Weak<ControllerPort<Q>>,
    /// Cancelled to take the controller out.
    pub(super) leave: CancellationToken,
    /// Ends once nothing of the controller is left.
    pub(super) stage: watch::Receiver<Stage>,
    /// What runs and sources get when the controller is removed.
    pub(super) grace: Grace,
    pub(super) members: WeakMembers,
}

/// The controller has been removed, or its manager has ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("controller {name:?} takes nothing any more: it has been removed, or its manager has ended")]
pub struct ControllerGone {
    /// The controller.
    pub name: Arc<str>,
}

/// A controller did not leave in good order.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// The controller is gone, but not all of its work had ended by itself. No retry is needed.
    #[error("controller {name:?} is removed; dropped after shutdown.gracePeriod {grace:?}: {}", late.join(", "))]
    Late {
        /// The controller.
        name: Arc<str>,
        /// What its work was given.
        grace: Duration,
        /// The keys whose runs were dropped, and what the sources call themselves that were.
        late: Vec<String>,
    },
    /// Work that blocks its thread can be neither awaited nor dropped. The name stays taken until that ends.
    #[error(
        "controller {name:?} is still there after shutdown.gracePeriod {grace:?}: {} blocks its thread; \
         use awaits or spawn_blocking", if late.is_empty() { "something".to_owned() } else { late.join(", ") }
    )]
    StillRunning {
        /// The controller.
        name: Arc<str>,
        /// What its work was given.
        grace: Duration,
        /// The keys that run, and what the sources call themselves that do.
        late: Vec<String>,
    },
    /// The manager stopped, and its own grace period was over before the controller had ended.
    #[error("controller {name:?} was dropped with its manager, which stopped before the removal was over")]
    CutShort {
        /// The controller.
        name: Arc<str>,
    },
}

// === impl ControllerHandle ===

impl<Q: Key> ControllerHandle<Q> {
    /// Returns the controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how it is doing; `None` once it has ended.
    pub fn status(&self) -> Option<ControllerStatus> {
        self.port.upgrade().map(|port| port.status())
    }

    /// Asks for a look at `key`, as a person would: a key in backoff runs at once, a parked one is woken. Before the
    /// controller runs, and on a standby replica, the key is kept.
    ///
    /// # Errors
    /// If the controller has been removed or has ended.
    pub fn trigger(&self, key: Q) -> Result<(), ControllerGone> {
        self.reach()?.trigger(key);
        Ok(())
    }

    /// Adds a source, also while the controller runs. It starts with the controller, or now. A controller that has not
    /// begun to reconcile waits for it like for any other source; one that has goes on meanwhile, and that is
    /// safe: a store that has not been listed answers reads with an error, not with absence.
    ///
    /// # Errors
    /// If the controller has been removed or has ended.
    pub fn add_source(&self, source: impl Source<Q>) -> Result<(), ControllerGone> {
        let taken = self.reach()?.add_source(Box::new(source));
        if taken { Ok(()) } else { Err(self.gone()) }
    }

    /// Takes the controller out of its manager, which goes on. Its sources end, its queue takes and hands out no more
    /// keys, and runs under way are waited for as long as `shutdown.gracePeriod` says, then dropped at their next await.
    /// When it returns without error nothing of it is left: no task, subscription, metric, entry of the
    /// inspection, and the name may be used again. Removing it twice is the same as once; stores
    /// stay, for they are the manager's.
    ///
    /// The removal begins with the call, and the future only waits for its end: a reconcile that removes its own
    /// controller drops the future, since it cannot wait for itself.
    ///
    /// # Errors
    /// See [`RemoveError`]; in each case nothing new of the controller runs.
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting; the removal goes on.
    pub fn remove(&self) -> impl Future<Output = Result<(), RemoveError>> + Send + 'static {
        self.leave.cancel();
        withdraw_leavers(&self.members);
        let (name, grace, mut stage) = (Arc::clone(&self.name), (self.grace)(), self.stage.clone());
        async move {
            // The channel ends with the controller; nothing sent on it does.
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

impl<Q: Key> fmt::Debug for ControllerHandle<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
