//! Which objects a store does not have as they are now, because they could not be taken.
//!
//! What is stored of such an object is an older version, or nothing; reads cannot tell. So each is named: once in the
//! log, and here for as long as it lasts.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

use crate::key::{Key as _, NamespacedName};

/// Objects that are named in the log; the others are only counted.
const LOGGED: usize = 1000;
/// Objects that are named on request; the others are only counted.
const NAMED: usize = 100;

/// The objects that one store could not take.
#[derive(Debug, Default)]
pub(in crate::cache) struct LeftOut {
    /// Hashes of what was said; no more than [`LOGGED`].
    said: Mutex<HashSet<u64>>,
    /// No more than [`NAMED`]. The last lock that is taken: nothing is locked under it.
    now: Mutex<BTreeMap<NamespacedName, Reason>>,
}

/// Why an object could not be taken.
#[derive(Debug)]
struct Reason {
    text: String,
    /// The list that had it; 0 if it came with an event, before the next list.
    epoch: u64,
}

// === impl LeftOut ===

impl LeftOut {
    /// Returns whether this has not been said of this object yet, or nothing more is to be said: an object that cannot
    /// be read comes again with every list.
    pub(in crate::cache) fn is_news(&self, object: &str, reason: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        (object, reason).hash(&mut hasher);
        let mut said = self.said.lock();
        said.len() < LOGGED && said.insert(hasher.finish())
    }

    /// Notes that an object could not be taken.
    pub(in crate::cache) fn add(&self, request: NamespacedName, epoch: u64, text: String) {
        let mut now = self.now.lock();
        if now.len() < NAMED || now.contains_key(&request) {
            now.insert(request, Reason { text, epoch });
        }
    }

    /// Notes that it was taken, or is gone.
    pub(in crate::cache) fn remove(&self, request: &NamespacedName) {
        let mut now = self.now.lock();
        if !now.is_empty() {
            now.remove(request);
        }
    }

    /// Notes the end of a list: what it did not have is gone. `None` is a list of all namespaces.
    pub(in crate::cache) fn listed(&self, namespace: Option<&str>, epoch: u64) {
        let elsewhere = |request: &NamespacedName| namespace.is_some() && request.namespace() != namespace;
        self.now.lock().retain(|request, reason| reason.epoch == epoch || elsewhere(request));
    }

    /// Returns the objects by name, with the reasons.
    pub(in crate::cache) fn named(&self) -> BTreeMap<String, String> {
        let now = self.now.lock();
        now.iter().map(|(request, reason)| (request.to_string(), reason.text.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
