//! The objects whose latest version could not be stored.
//!
//! Reads then return an older version or no object, without an error. So each such object is logged once, and
//! listed in the status until the problem is resolved.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

use crate::key::{Key as _, NamespacedName};

/// Largest number of objects named in the log because their latest version was not stored; further ones are
/// only counted.
const LOGGED: usize = 1000;
/// Largest number of objects named in the status because their latest version was not stored; further ones
/// are only counted.
const NAMED: usize = 100;

/// The objects with a latest version that one store could not accept.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Hashes of the combinations of object and reason that were logged; at most [`LOGGED`].
    said: Mutex<HashSet<u64>>,
    /// The objects that were not accepted, to be listed in the status; at most [`NAMED`]. No other lock is
    /// taken under this one.
    now: Mutex<BTreeMap<NamespacedName, Reason>>,
}

/// The reason why a store did not accept the latest version of an object.
#[derive(Debug)]
struct Reason {
    text: String,
    /// The number (epoch) of the list that contained the refused object; 0 for a watch event since the last
    /// list.
    epoch: u64,
}

// === impl LeftOut ===

impl LeftOut {
    /// Returns whether to log this object with this reason: not twice, because an unreadable object returns
    /// with every list, and not beyond the limit.
    pub(crate) fn is_news(&self, object: &str, reason: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        (object, reason).hash(&mut hasher);
        let mut said = self.said.lock();
        said.len() < LOGGED && said.insert(hasher.finish())
    }

    /// Adds an object that was not accepted to the objects listed in the status.
    pub(crate) fn add(&self, request: NamespacedName, epoch: u64, text: String) {
        let mut now = self.now.lock();
        if now.len() < NAMED || now.contains_key(&request) {
            now.insert(request, Reason { text, epoch });
        }
    }

    /// Removes an object that was accepted or deleted from the objects listed in the status.
    pub(crate) fn remove(&self, request: &NamespacedName) {
        let mut now = self.now.lock();
        if !now.is_empty() {
            now.remove(request);
        }
    }

    /// Removes the objects that a complete list did not contain from those listed in the status. `namespace`
    /// is `None` for a list of all namespaces.
    pub(crate) fn listed(&self, namespace: Option<&str>, epoch: u64) {
        let elsewhere = |request: &NamespacedName| namespace.is_some() && request.namespace() != namespace;
        self.now.lock().retain(|request, reason| reason.epoch == epoch || elsewhere(request));
    }

    /// Returns the objects that were not accepted, with their reasons.
    pub(crate) fn named(&self) -> BTreeMap<String, String> {
        let now = self.now.lock();
        now.iter().map(|(request, reason)| (request.to_string(), reason.text.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
