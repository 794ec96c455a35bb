//! Mistakes in the wiring of a controller, and the failures that end one.

use std::sync::Arc;

use thiserror::Error;

use crate::key::KindId;
use crate::reconcile::BoxError;

/// A mistake in the wiring of a controller.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WiringError {
    /// `owns` was called before `reconciles`.
    #[error("owns({child}) needs the kind of the owner: call reconciles(...) before it")]
    OwnsBeforeReconciles {
        /// The owned kind.
        child: KindId,
    },
    /// `owns` was called with a store of another cluster than `reconciles`.
    #[error(
        "owns({child}) in another cluster than reconciles({owner}): owner references do not cross clusters; \
         use watches(...)"
    )]
    OwnsElsewhere {
        /// The kind of the owners.
        owner: KindId,
        /// The kind that would be owned.
        child: KindId,
    },
    /// `reconciles` was called twice.
    #[error(
        "reconciles({second}) after reconciles({first}): a controller has one primary kind; use watches(...) \
         for others"
    )]
    TwoPrimaries {
        /// The kind given first.
        first: KindId,
        /// The kind given second.
        second: KindId,
    },
    /// The reconciler cannot work in this controller.
    #[error("its reconciler does not fit: {source}")]
    Reconciler {
        /// The mistake.
        source: BoxError,
    },
    /// No source would ever enqueue a key.
    #[error("no source: call reconciles(...), watches(...) or source(...)")]
    NoSource,
}

/// A failure that ends a controller.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of its sources failed, panicked, or ended before it had synced.
    #[error("controller {controller} lost source {name}")]
    Source {
        /// The controller.
        controller: Arc<str>,
        /// The name of the source.
        name: Arc<str>,
        /// The failure of the source.
        #[source]
        source: BoxError,
    },
    /// A worker of the controller panicked outside of a reconcile, which is a bug of this crate.
    #[error("controller {controller}: a worker panicked")]
    WorkerPanicked {
        /// The controller.
        controller: Arc<str>,
        /// The panic.
        #[source]
        source: BoxError,
    },
}
