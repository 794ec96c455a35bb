//! The interface of user code: a function from a key to an outcome, and the context of one call.
//!
//! A reconciler is level-triggered: it gets the *name* of an object and never the event. It finds a deleted
//! object absent. The next run after each outcome:
//!
//! | outcome | next run of the key | attempts | counted as |
//! |---|---|---|---|
//! | `Ok(Action::Done)`, `Ok(Action::RequeueAfter(0))` | after a change | reset | `success` |
//! | `Ok(Action::RequeueAfter(d))`, `d` above 0 | after `d` | reset | `requeue_after` |
//! | `Err` with [`Retry::Backoff`] | after the queue's retry delay | one more | `error`; a 409 as `requeue` |
//! | `Err` with [`Retry::NotBefore`] | `Backoff`, not before it | one more | `error`; a 409 as `requeue` |
//! | `Err` with [`Retry::After`] | after that time | one more | `error`; a 409 as `requeue` |
//! | `Err` with [`Retry::Never`] | after a change | kept | `error`, and as terminal |
//! | panic | as `Backoff` | one more | `error`, and as panic |
//! | `reconcileTimeout` over | as `Backoff` | one more | `error`, and as timeout |
//!
//! Differs from controller-runtime: "not ready yet" is no error, as `RequeueAfter` leaves the backoff alone,
//! and a conflict is not counted as an error.

mod context;
mod error;
mod object;
mod writes;

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::key::{Key, KindId, NamespacedName};
use crate::rbac::Need;

pub use crate::queue::Retry;
pub use context::{Context, ReconcileId, RunEnvironment};
pub use error::{BoxError, ReconcileError};
pub use object::{ObjectAdapter, ObjectReconciler, with_finalizer, without_finalizer};
pub(crate) use writes::{Part, Writes};

/// The outcome of one run of a reconciler: the next step for the key, or an error.
pub type Outcome = Result<Action, ReconcileError>;

/// The next step for a key after a reconcile without error.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The key is reconciled again only after a change.
    Done,
    /// The key is reconciled again after this time, even without a change: the answer for "not ready yet".
    /// Zero is the same as [`Action::Done`], as in controller-runtime, so give a computed time a lower bound.
    RequeueAfter(Duration),
}

// === impl Action ===

impl Action {
    /// Returns the time after which the key runs again even without a change; `None` if it waits for a
    /// change.
    pub(crate) fn requeue(self) -> Option<Duration> {
        match self {
            // Zero would be a loop without a pause.
            Self::RequeueAfter(wait) if !wait.is_zero() => Some(wait),
            Self::Done | Self::RequeueAfter(_) => None,
        }
    }
}

/// Brings the state of the cluster closer to the desired state, for one key at a time.
///
/// Implemented with a plain `async fn`. One key is never reconciled twice at the same time; different keys
/// are, up to the number of workers. The future is dropped at an await point when `reconcileTimeout` runs
/// out or the Lease is lost: at each await, leave the work in a state that the next run can repair.
///
/// ```
/// use mainstay::key::NamespacedName;
/// use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
///
/// struct Greeter;
///
/// impl Reconciler for Greeter {
///     async fn reconcile(&self, request: &NamespacedName, _cx: &Context) -> Outcome {
///         println!("hello {request}");
///         Ok(Action::Done)
///     }
/// }
/// ```
pub trait Reconciler<Q: Key = NamespacedName>: Send + Sync + 'static {
    /// Reconciles the object that the key `request` names: reads it and acts. Any error type converts with
    /// `?`.
    fn reconcile(&self, request: &Q, cx: &Context) -> impl Future<Output = Outcome> + Send;

    /// Checks that the reconciler fits a controller that reconciles objects of `primary`. `Manager::register`
    /// returns the error. By default every reconciler fits.
    ///
    /// # Errors
    /// The error describes the mistake in the wiring, for a person to read.
    fn check(&self, primary: Option<&KindId>) -> Result<(), BoxError> {
        let _ = primary;
        Ok(())
    }

    /// Returns the rights that the reconciler needs, apart from those that follow from stores and from what
    /// the controller declares to write. By default none; an adapter returns those of the reconciler in it.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }
}

/// A [`Reconciler`] behind a pointer, so that a controller is not generic over it.
pub(crate) trait DynReconciler<Q: Key>: Send + Sync {
    fn reconcile<'a>(&'a self, request: &'a Q, cx: &'a Context) -> BoxFuture<'a, Outcome>;
}

impl<Q: Key, R: Reconciler<Q>> DynReconciler<Q> for R {
    fn reconcile<'a>(&'a self, request: &'a Q, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        tracing::trace!(key = %request, "reconciler called");
        Box::pin(Reconciler::reconcile(self, request, cx))
    }
}
