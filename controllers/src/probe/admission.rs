//! Which targets of a namespace are probed at all: the first so many that its objects asked for.
//!
//! # Invariants
//! 1. A namespace has no target beyond the limit while one of its places is free.
//! 2. Of two targets the one asked for first has its place first, and loses it last.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Admission {
    /// Most targets of one namespace.
    limit: usize,
    /// Those that have a target.
    namespaces: HashMap<Arc<str>, Places>,
}

/// Entries by age, since their numbers rise.
#[derive(Debug, Default)]
struct Places {
    taken: BTreeSet<u64>,
    beyond: BTreeSet<u64>,
}

/// What a change of places comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// To be probed from now on.
    pub(super) admitted: Vec<u64>,
    /// Not to be probed any more.
    pub(super) put_back: Vec<u64>,
}

// === impl Admission ===

impl Admission {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, namespaces: HashMap::new() }
    }

    /// Returns the most targets of one namespace.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes a new entry in. Returns whether it may be probed.
    pub(super) fn insert(&mut self, namespace: &Arc<str>, id: u64) -> bool {
        let places = self.namespaces.entry(Arc::clone(namespace)).or_default();
        let admitted = places.taken.len() < self.limit;
        if admitted {
            places.taken.insert(id)
        } else {
            places.beyond.insert(id)
        };
        admitted
    }

    /// Lets an entry go. Returns who has its place now.
    pub(super) fn remove(&mut self, namespace: &Arc<str>, id: u64) -> Option<u64> {
        let places = self.namespaces.get_mut(namespace)?;
        if !places.taken.remove(&id) {
            places.beyond.remove(&id);
        }
        let admitted = places.settle(self.limit).admitted.pop();
        if places.taken.is_empty() && places.beyond.is_empty() {
            self.namespaces.remove(namespace);
        }
        admitted
    }

    /// Changes the limit.
    pub(super) fn set_limit(&mut self, limit: usize) -> Moved {
        self.limit = limit;
        let mut moved = Moved::default();
        for places in self.namespaces.values_mut() {
            let Moved { admitted, put_back } = places.settle(limit);
            moved.admitted.extend(admitted);
            moved.put_back.extend(put_back);
        }
        moved
    }
}

// === impl Places ===

impl Places {
    fn settle(&mut self, limit: usize) -> Moved {
        let mut moved = Moved::default();
        while self.taken.len() > limit
            && let Some(last) = self.taken.pop_last()
        {
            self.beyond.insert(last);
            moved.put_back.push(last);
        }
        while self.taken.len() < limit
            && let Some(first) = self.beyond.pop_first()
        {
            self.taken.insert(first);
            moved.admitted.push(first);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_to_the_oldest_of_each_namespace() {
        let (shop, pay): (Arc<str>, Arc<str>) = ("shop".into(), "pay".into());
        let mut admission = Admission::new(2);
        let admitted: Vec<_> = (0..5).map(|id| admission.insert(&shop, id)).collect();
        assert_eq!(admitted, [true, true, false, false, false]);
        assert!(admission.insert(&pay, 5), "another namespace has places of its own");

        assert_eq!(admission.remove(&shop, 0), Some(2));
        assert_eq!(admission.remove(&shop, 3), None, "it had no place to leave");
        assert_eq!(admission.set_limit(3), Moved { admitted: vec![4], put_back: vec![] });
        assert_eq!(admission.set_limit(1), Moved { admitted: vec![], put_back: vec![4, 2] });
        for id in [1, 2, 4] {
            admission.remove(&shop, id);
        }
        admission.remove(&pay, 5);
        assert!(admission.namespaces.is_empty(), "nothing is kept of who has left");
    }
}
