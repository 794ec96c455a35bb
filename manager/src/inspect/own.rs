//! Pages of a program's own, beside those of every manager.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

/// Answers a page of a program's own. Given the segments of the path that follow its name, as they
/// stand there; it runs on a thread of its own, one at a time, and may take a while.
pub type OwnPage = dyn Fn(&[&str]) -> Result<Value, PageError> + Send + Sync;

/// A page that is not there, or was asked for in a wrong way. The text is for who asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// There is none such: 404.
    #[error("{0}")]
    NotFound(String),
    /// The question makes no sense: 400.
    #[error("{0}")]
    BadRequest(String),
    /// It cannot be answered at present: 503.
    #[error("{0}")]
    Unavailable(String),
}

/// The pages, by name. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct OwnPages(Arc<RwLock<BTreeMap<&'static str, Arc<OwnPage>>>>);

// === impl OwnPages ===

impl OwnPages {
    /// Adds a page; returns whether its name was free.
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

    pub(super) fn find(&self, name: &str) -> Option<Arc<OwnPage>> {
        self.0.read().get(name).cloned()
    }

    /// Returns the names in order.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.read().keys().copied().collect()
    }
}

/// The names of the pages of every manager.
pub(super) const RESERVED: [&str; 6] = ["caches", "config", "controllers", "leader", "log", "watches"];

impl fmt::Debug for OwnPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnPages").field(&self.names()).finish()
    }
}

#[cfg(test)]
mod tests;
