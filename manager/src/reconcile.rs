//! What a user writes against: a function from a key to an outcome, and what surrounds one call of it.
//!
//! A reconciler is level-triggered: it is told *which* object to look at, never what happened to it. A deletion is
//! not reported; it is observed as absence. What each outcome does next:
//!
//! | outcome | next run of the key | attempts | counted as |
//! |---|---|---|---|
//! | `Ok(Action::Done)`, `Ok(Action::RequeueAfter(0))` | when something changes | forgotten | `success` |
//! | `Ok(Action::RequeueAfter(d))`, `d` above 0 | after `d` | forgotten | `requeue_after` |
//! | `Err` with [`Retry::Backoff`] | after the queue's retry delay | one more | `error`; a 409 as `requeue` |
//! | `Err` with [`Retry::NotBefore`] | as `Backoff`, and not before that time | one more | `error`; a 409 as `requeue` |
//! | `Err` with [`Retry::After`] | after that time | one more | `error`; a 409 as `requeue` |
//! | `Err` with [`Retry::Never`] | when something changes | kept | `error`, and as terminal |
//! | panic | as `Backoff` | one more | `error`, and as panic |
//! | `reconcileTimeout` over | as `Backoff` | one more | `error`, and as timeout |
//!
//! Differs from controller-runtime in that "not ready yet" is no error here: `RequeueAfter` has nothing to do with
//! the backoff, and a conflict is not counted as an error.

mod context;
mod error;
mod object;
mod writes;

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::key::{Key, KindId, NamespacedName};

pub use context::{Context, ReconcileId, RunEnvironment};
pub use error::{BoxError, ReconcileError, Retry};
pub use object::{ObjectAdapter, ObjectReconciler, with_finalizer, without_finalizer};
pub(crate) use writes::Writes;

/// What one run came to.
pub type Outcome = Result<Action, ReconcileError>;

/// What happens next after a run without error.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes.
    Done,
    /// Another look after this time, even if nothing changes. "Not ready yet" belongs here. After no time it is
    /// [`Action::Done`], as in controller-runtime: who computes the time gives it a floor.
    RequeueAfter(Duration),
}

// === impl Action ===

impl Action {
    /// Returns after which time another look is due; `None` if none is.
    pub(crate) fn requeue(self) -> Option<Duration> {
        match self {
            // After no time would be a loop without a pause.
            Self::RequeueAfter(wait) if !wait.is_zero() => Some(wait),
            Self::Done | Self::RequeueAfter(_) => None,
        }
    }
}

/// Brings the world for one key closer to what is asked for.
///
/// Implemented with a plain `async fn`. One key is never reconciled twice at the same time, different keys are, up to
/// the controller's number of workers. The future is dropped at an await point when `reconcileTimeout` runs out or the
/// Lease is lost: leave nothing half-done across an await that the next run would not repair.
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
    /// Looks at the object named by `request` and acts. Any error type converts with `?`.
    fn reconcile(&self, request: &Q, cx: &Context) -> impl Future<Output = Outcome> + Send;

    /// Checks, before the controller is registered, that the reconciler can work in one that reconciles objects of
    /// `primary`. `Manager::register` returns the error. Every reconciler can, unless it says otherwise here.
    ///
    /// # Errors
    /// A mistake in the wiring, for a person to read.
    fn check(&self, primary: Option<&KindId>) -> Result<(), BoxError> {
        let _ = primary;
        Ok(())
    }
}

/// A [`Reconciler`] behind a pointer, so that a controller is not generic over it.
pub(crate) trait DynReconciler<Q: Key>: Send + Sync {
    fn reconcile<'a>(&'a self, request: &'a Q, cx: &'a Context) -> BoxFuture<'a, Outcome>;
}

impl<Q: Key, R: Reconciler<Q>> DynReconciler<Q> for R {
    fn reconcile<'a>(&'a self, request: &'a Q, cx: &'a Context) -> BoxFuture<'a, Outcome> {
        Box::pin(Reconciler::reconcile(self, request, cx))
    }
}
