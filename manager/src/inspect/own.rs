//! Pages that a program adds to those of the manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

/// Makes the answer of a program's debug page from the path segments behind its name, still escaped. Runs on
/// a blocking thread, one at a time, and may take a while.
pub type OwnPage = dyn Fn(&[&str]) -> Result<Value, PageError> + Send + Sync;

/// An error of a program's debug page. The text is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The debug page does not exist: the answer is 404 with this text.
    #[error("{0}")]
    NotFound(String),
    /// The request for a debug page is invalid: the answer is 400 with this text.
    #[error("{0}")]
    BadRequest(String),
    /// The debug page cannot be made at present: the answer is 503 with this text.
    #[error("{0}")]
    Unavailable(String),
}

/// The debug pages that a program adds, by name. Cheap to clone; all clones share the same pages.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("OwnPages({:?})", self.names())]
pub struct OwnPages(Arc<RwLock<BTreeMap<&'static str, Arc<OwnPage>>>>);

// === impl OwnPages ===

impl OwnPages {
    /// Adds a debug page `/debug/NAME`. Returns `false`, and adds nothing, if the name is taken.
    pub fn add(
        &self,
        name: &'static str,
        answer: impl Fn(&[&str]) -> Result<Value, PageError> + Send + Sync + 'static,
    ) -> bool {
        let mut pages = self.0.write();
        let free = !RESERVED.contains(&name) && !pages.contains_key(name);
        if free {
            pages.insert(name, Arc::new(answer));
        }
        free
    }

    /// Returns the function that makes the program's debug page of this name, if there is one.
    pub(super) fn find(&self, name: &str) -> Option<Arc<OwnPage>> {
        self.0.read().get(name).cloned()
    }

    /// Returns the names of the program's debug pages, sorted.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.read().keys().copied().collect()
    }
}

/// The names of the manager's own debug pages, which a program cannot use.
pub(super) const RESERVED: [&str; 6] = ["caches", "config", "controllers", "leader", "log", "watches"];

#[cfg(test)]
mod tests;
