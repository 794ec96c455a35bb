//! Transforms: user functions that change the objects of a kind before they are stored, for example to drop
//! large fields and so save memory.
//!
//! A transform is called once per version, before index functions, handlers and readers, with the object as
//! the cache would store it (without `managedFields`). If it fails or panics, this version is skipped and the
//! previously stored one stays.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde_json::Value;

use super::scan::{Scan, ScanError};
use crate::key::{Chain, KindId, panic_text};

/// The error of an index function or of a transform.
pub type HookFailure = Box<dyn std::error::Error + Send + Sync>;

/// The error of [`Cache::transform`](crate::cache::Cache::transform): a transform was not accepted. A retry
/// does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The kind has a transform already. Two would need an order: combine both in one function.
    #[error("{kind} has a transform already; let one function do the work of both")]
    Taken {
        /// The kind of the objects to be transformed.
        kind: KindId,
    },
    /// A store of the kind has started, and may hold objects that were not transformed.
    #[error("the cache of {kind} runs already; declare its transform before the manager runs")]
    TooLate {
        /// The kind of the objects to be transformed.
        kind: KindId,
    },
}

type Change = dyn Fn(&mut Value) -> Result<(), HookFailure> + Send + Sync;

/// The transform of one kind: a user's function that changes its objects before they are stored.
pub(crate) struct Transform(pub(in crate::cache) Box<Change>);

// === impl Transform ===

impl Transform {
    /// Returns the body of an object after this transform; `None` if the transform changed nothing. It must
    /// not change the object's name, namespace, uid or resourceVersion.
    pub(crate) fn apply(&self, body: &[u8]) -> Result<Option<Bytes>, ScanError> {
        let was: Value = serde_json::from_slice(body)?;
        let mut object = was.clone();
        call_hook(|| (self.0)(&mut object)).map_err(ScanError::Transform)?;
        if object == was {
            return Ok(None);
        }
        let changed = serde_json::to_vec(&object)?;
        let (was, is) = (Scan::open(body)?, Scan::open(&changed[..])?);
        if (was.request, was.uid, was.resource_version) != (is.request, is.uid, is.resource_version) {
            return Err(ScanError::Transform("changed its name, uid or resourceVersion".to_owned()));
        }
        Ok(Some(changed.into()))
    }
}

/// Calls an index function or a transform; returns its failure or its panic as a phrase. After a panic only
/// the function's own state may be inconsistent, because it has no access to that of the store.
pub(crate) fn call_hook<T>(hook: impl FnOnce() -> Result<T, HookFailure>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(hook)) {
        Ok(outcome) => outcome.map_err(|error| Chain(&*error).to_string()),
        Err(payload) => Err(format!("panicked: {}", panic_text(&*payload))),
    }
}
