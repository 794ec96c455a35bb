//! Pages that a program adds to those of the manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

/// Makes the answer of a program's page from the path segments behind its name, still escaped. Runs on a
/// blocking thread, one at a time, and may take a while.
pub type OwnPage = dyn Fn(&[&str]) -> Result<Value, PageError> + Send + Sync;

/// An error of a program's page. The text is sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The page does not exist: 404.
    #[error("{0}")]
    NotFound(String),
    /// The request is invalid: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The page cannot be made at present: 503.
    #[error("{0}")]
    Unavailable(String),
}

/// The pages of a program, by name. Cheap to clone; all clones share the same pages.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("OwnPages({:?})", self.names())]
pub struct OwnPages(Arc<RwLock<BTreeMap<&'static str, Arc<OwnPage>>>>);

// === impl OwnPages ===

impl OwnPages {
    /// Adds a page `/debug/NAME`. Returns `false`, and adds nothing, if the name is taken.
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

    /// Returns the page of this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<OwnPage>> {
        self.0.read().get(name).cloned()
    }

    /// Returns the names, sorted.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.read().keys().copied().collect()
    }
}

/// The names of the manager's own pages.
pub(super) const RESERVED: [&str; 6] = ["caches", "config", "controllers", "leader", "log", "watches"];

#[cfg(test)]
mod tests;
