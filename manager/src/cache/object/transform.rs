//! The hook that changes objects on their way into the stores of a kind: what is left out costs no memory.
//!
//! It sees what the cache would keep, without managedFields, once per version, before index functions, handlers and
//! readers. A failure or a panic costs that version and nothing else: what was stored of the object stays.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use serde_json::Value;

use super::scan::{Scan, ScanError};
use crate::key::{Chain, KindId, panic_text};

/// Why an index function has no answer, or a transform no object.
pub type HookFailure = Box<dyn std::error::Error + Send + Sync>;

/// A kind's objects cannot be changed on their way in. A retry does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// Two would have to be ordered: let one do both.
    #[error("{kind} has a transform already; let one function do the work of both")]
    Taken {
        /// The kind.
        kind: KindId,
    },
    /// Objects are stored that it has not seen.
    #[error("the cache of {kind} runs already; declare its transform before the manager runs")]
    TooLate {
        /// The kind.
        kind: KindId,
    },
}

type Change = dyn Fn(&mut Value) -> Result<(), HookFailure> + Send + Sync;

/// One kind's hook.
pub(in crate::cache) struct Transform(Box<Change>);

// === impl Transform ===

impl Transform {
    pub(in crate::cache) fn new(
        change: impl Fn(&mut Value) -> Result<(), HookFailure> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(change))
    }

    /// Returns the body as the hook leaves it; `None` if it has changed nothing. Who an object is, and which version, is
    /// not the hook's to change.
    pub(in crate::cache) fn apply(&self, body: &[u8]) -> Result<Option<Bytes>, ScanError> {
        let was: Value = serde_json::from_slice(body)?;
        let mut object = was.clone();
        // The hook sees the effects of its panic on its own state alone; the object is left out.
        match catch_unwind(AssertUnwindSafe(|| (self.0)(&mut object))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(ScanError::Transform(Chain(&*error).to_string())),
            Err(payload) => return Err(ScanError::Transform(format!("panicked: {}", panic_text(&*payload)))),
        }
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
