//! An index of WaitDeployments by subject, and of subjects by WaitDeployment.
//!
//! # Invariants
//! 1. `by_subject` and `by_request` contain the same pairs; neither contains an empty collection.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use mainstay::key::NamespacedName;

/// WaitDeployments by the subjects that they wait for, such as the name of a Service. A subject is
/// identified by a `T`.
#[derive(Debug)]
pub(crate) struct Waiters<T> {
    by_subject: HashMap<T, BTreeSet<NamespacedName>>,
    /// The subjects of each waiting WaitDeployment, as given to [`set`](Self::set), with order and
    /// duplicates. Never an empty list.
    by_request: HashMap<NamespacedName, Vec<T>>,
}

// === impl Waiters ===

impl<T: Clone + Eq + Hash> Waiters<T> {
    /// Records that the WaitDeployment `request` waits for these subjects and no others. Returns whether the
    /// list has changed.
    pub(crate) fn set(&mut self, request: &NamespacedName, subjects: Vec<T>) -> bool {
        if self.by_request.get(request).map_or(subjects.is_empty(), |known| *known == subjects) {
            return false;
        }
        self.forget(request);
        for subject in &subjects {
            self.by_subject.entry(subject.clone()).or_default().insert(request.clone());
        }
        if !subjects.is_empty() {
            self.by_request.insert(request.clone(), subjects);
        }
        true
    }

    /// Removes the WaitDeployment `request` from the waiters of every subject. Returns whether it waited for
    /// one.
    pub(crate) fn forget(&mut self, request: &NamespacedName) -> bool {
        let Some(subjects) = self.by_request.remove(request) else { return false };
        for subject in subjects {
            if let Some(waiting) = self.by_subject.get_mut(&subject) {
                waiting.remove(request);
                if waiting.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
        true
    }

    /// Returns whether any WaitDeployment waits for this subject.
    pub(crate) fn has(&self, subject: &T) -> bool {
        self.by_subject.contains_key(subject)
    }

    /// Returns the WaitDeployments that wait for this subject; `None` if there are none.
    pub(crate) fn get(&self, subject: &T) -> Option<&BTreeSet<NamespacedName>> {
        self.by_subject.get(subject)
    }

    /// Returns the WaitDeployments that wait for this subject, in order of their names.
    pub(crate) fn of(&self, subject: &T) -> Vec<NamespacedName> {
        self.get(subject).into_iter().flatten().cloned().collect()
    }

    /// Returns all WaitDeployments that wait for any subject, in no particular order.
    pub(crate) fn all(&self) -> Vec<NamespacedName> {
        self.by_request.keys().cloned().collect()
    }
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self { by_subject: HashMap::new(), by_request: HashMap::new() }
    }
}

#[cfg(test)]
mod tests;
