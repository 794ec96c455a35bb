//! Mistakes in the wiring of a controller, and the failures that end one.

use std::sync::Arc;

use thiserror::Error;

use crate::key::KindId;
use crate::reconcile::BoxError;

/// A mistake in the wiring of a controller.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WiringError {
    /// `Controller::owns` was called before `Controller::reconciles`, which sets the kind of the owner.
    #[error("owns({child}) needs the kind of the owner: call reconciles(...) before it")]
    OwnsBeforeReconciles {
        /// The kind of the objects to be owned.
        child: KindId,
    },
    /// `Controller::owns` was called with a store of another cluster than `Controller::reconciles`.
    #[error(
        "owns({child}) in another cluster than reconciles({owner}): owner references do not cross clusters; \
         use watches(...)"
    )]
    OwnsElsewhere {
        /// The kind of the owner objects, which the controller reconciles.
        owner: KindId,
        /// The kind of the objects in the other cluster, which were to be owned.
        child: KindId,
    },
    /// `Controller::reconciles` was called twice, but a controller reconciles one kind.
    #[error(
        "reconciles({second}) after reconciles({first}): a controller has one primary kind; use watches(...) \
         for others"
    )]
    TwoPrimaries {
        /// The kind given to the first call of `Controller::reconciles`.
        first: KindId,
        /// The kind given to the second call of `Controller::reconciles`.
        second: KindId,
    },
    /// The reconciler does not fit this controller, by its own check.
    #[error("its reconciler does not fit: {source}")]
    Reconciler {
        /// The mistake that the reconciler found in its own check.
        source: BoxError,
    },
    /// The controller has no source that would ever enqueue a key.
    #[error("no source: call reconciles(...), watches(...) or source(...)")]
    NoSource,
}

/// A failure that ends a controller.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of the controller's sources failed, panicked, or ended before it had synced.
    #[error("controller {controller} lost source {name}")]
    Source {
        /// The name of the controller that ended.
        controller: Arc<str>,
        /// The name of the source that failed.
        name: Arc<str>,
        /// The error with which the source failed.
        #[source]
        source: BoxError,
    },
    /// A worker of the controller panicked outside of a reconcile, which is a bug of this crate.
    #[error("controller {controller}: a worker panicked")]
    WorkerPanicked {
        /// The name of the controller that ended.
        controller: Arc<str>,
        /// The error with the message of the panic.
        #[source]
        source: BoxError,
    },
}
