//! Index functions: user functions that return the index values of an object.
//!
//! Each is called once per version, before the version is stored, by the task that stores it. A failure
//! affects only this object: the index does not contain it until its next version.

use std::sync::{Arc, OnceLock};

use crate::cache::object::{HookFailure, View, call_hook};
use crate::cache::store::SubScope;
use crate::key::KindId;

/// Error of the declaration of an index: the store handle has an index of this name with another function. A
/// retry does not help; choose another name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this handle of the cache of {kind} has another index {name:?} already; give one of them another name"
)]
pub struct IndexError {
    pub(in crate::cache) kind: KindId,
    pub(in crate::cache) name: String,
}

type Evaluate = dyn Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync;

/// An index function with its name: it returns the values under which an object is found.
#[derive(derive_more::Debug)]
#[debug("IndexFunction {{ name: {:?}, .. }}", self.name)]
pub(crate) struct IndexFunction {
    pub(crate) name: Box<str>,
    evaluate: Box<Evaluate>,
    /// If the index is built in a wider store, the part of that store for which the function is called.
    /// Written at most once, before the first call there; empty = all objects.
    part: OnceLock<Arc<SubScope>>,
}

// === impl IndexFunction ===

impl IndexFunction {
    pub(crate) fn new(
        name: &str,
        evaluate: impl Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), evaluate: Box::new(evaluate), part: OnceLock::new() }
    }

    /// Limits the index function to a part of a wider store from now on.
    pub(crate) fn limit(&self, part: &Arc<SubScope>) {
        self.part.get_or_init(|| Arc::clone(part));
    }

    /// Returns the index values of an object without duplicates, or the failure of the function as a phrase.
    pub(crate) fn evaluate(&self, view: &View) -> Result<Box<[Arc<str>]>, String> {
        if self.part.get().is_some_and(|part| !part.admits(view.meta())) {
            return Ok(Box::default());
        }
        let mut values = call_hook(|| (self.evaluate)(view))?;
        values.sort_unstable();
        values.dedup();
        Ok(values.into_iter().map(Arc::from).collect())
    }
}
