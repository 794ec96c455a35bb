//! Index functions: code of users that says under which values an object is to be found.
//!
//! Asked once per version, on its way into the store, by whoever brings it. What goes wrong in one stays with the one
//! object: it is not found by this index until its next version.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::cache::object::transform::HookFailure;
use crate::cache::object::view::View;
use crate::cache::store::lens::Lens;
use crate::key::{Chain, KindId, panic_text};

/// The handle has an index of this name, by other code. A retry does not help; choose another name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this handle of the cache of {kind} has another index {name:?} already; give one of them another name"
)]
pub struct IndexError {
    pub(in crate::cache) kind: KindId,
    pub(in crate::cache) name: String,
}

type Ask = dyn Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync;

/// One named function.
pub(in crate::cache) struct Function {
    name: Box<str>,
    ask: Box<Ask>,
    /// The part of a wider store it is asked about. Written at most once, before it is asked there; empty means all.
    part: OnceLock<Arc<Lens>>,
}

// === impl Function ===

impl Function {
    pub(in crate::cache) fn new(
        name: &str,
        ask: impl Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), ask: Box::new(ask), part: OnceLock::new() }
    }

    pub(in crate::cache) fn name(&self) -> &str {
        &self.name
    }

    /// Is not asked about what is outside this part from now on.
    pub(in crate::cache) fn limit(&self, part: &Arc<Lens>) {
        self.part.get_or_init(|| Arc::clone(part));
    }

    /// Returns the values, each once, or what went wrong as a phrase.
    pub(in crate::cache) fn ask(&self, view: &View) -> Result<Box<[Arc<str>]>, String> {
        if self.part.get().is_some_and(|part| !part.admits(view.meta())) {
            return Ok(Box::default());
        }
        // The function sees the effects of its panic on its own state alone; nothing of the store is reachable from it.
        match catch_unwind(AssertUnwindSafe(|| (self.ask)(view))) {
            Ok(Ok(mut values)) => {
                values.sort_unstable();
                values.dedup();
                Ok(values.into_iter().map(Arc::from).collect())
            }
            Ok(Err(error)) => Err(Chain(&*error).to_string()),
            Err(payload) => Err(format!("panicked: {}", panic_text(&*payload))),
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("name", &self.name).finish_non_exhaustive()
    }
}
