//! Who waits for what, both ways round.
//!
//! # Invariants
//! 1. `by_thing` and `by_request` hold the same pairs; neither holds an empty list.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use mainstay::key::NamespacedName;

/// Who waits for things that are known by a `T`.
#[derive(Debug)]
pub(crate) struct Waiters<T> {
    by_thing: HashMap<T, HashSet<NamespacedName>>,
    /// As given: in order, and a thing that is waited for twice stands there twice.
    by_request: HashMap<NamespacedName, Vec<T>>,
}

// === impl Waiters ===

impl<T: Clone + Eq + Hash> Waiters<T> {
    /// Notes that `request` waits for these things and for no others. Returns whether that is news.
    pub(crate) fn set(&mut self, request: &NamespacedName, things: Vec<T>) -> bool {
        if self.by_request.get(request).map_or(things.is_empty(), |known| *known == things) {
            return false;
        }
        self.forget(request);
        for thing in &things {
            self.by_thing.entry(thing.clone()).or_default().insert(request.clone());
        }
        if !things.is_empty() {
            self.by_request.insert(request.clone(), things);
        }
        true
    }

    /// Notes that `request` waits for nothing any more. Returns whether that is news.
    pub(crate) fn forget(&mut self, request: &NamespacedName) -> bool {
        let Some(things) = self.by_request.remove(request) else { return false };
        for thing in things {
            if let Some(waiting) = self.by_thing.get_mut(&thing) {
                waiting.remove(request);
                if waiting.is_empty() {
                    self.by_thing.remove(&thing);
                }
            }
        }
        true
    }

    /// Returns whether anybody waits for a thing.
    pub(crate) fn has(&self, thing: &T) -> bool {
        self.by_thing.contains_key(thing)
    }

    /// Returns who waits for a thing, in no particular order.
    pub(crate) fn of(&self, thing: &T) -> Vec<NamespacedName> {
        self.by_thing.get(thing).into_iter().flatten().cloned().collect()
    }

    /// Returns everybody who waits, in no particular order.
    pub(crate) fn all(&self) -> Vec<NamespacedName> {
        self.by_request.keys().cloned().collect()
    }
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self { by_thing: HashMap::new(), by_request: HashMap::new() }
    }
}

#[cfg(test)]
mod tests;
