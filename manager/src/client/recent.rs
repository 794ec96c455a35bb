//! A map that forgets what nobody asked for lately, so that memory is bounded whatever comes.
//!
//! Two generations: what is touched lives in the young one; when that is full it becomes the old one, and what was old
//! is forgotten. Each step costs a look-up or two, never a search for the oldest.
//!
//! # Invariants
//! 1. It holds at most twice its capacity.
//! 2. The last `capacity` different keys that were touched are all there.

use std::hash::Hash;

use hashbrown::HashMap;

/// At most `2 × capacity` entries, the most recently used ones among them.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    capacity: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

// === impl Recent ===

impl<K: Eq + Hash + Clone, V> Recent<K, V> {
    /// Makes an empty map; `capacity` is at least 1.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), young: HashMap::new(), old: HashMap::new() }
    }

    /// Returns the value, made first if the key is not known. It counts as used now.
    pub(super) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        let known = self.old.remove(key);
        if known.is_some() || !self.young.contains_key(key) {
            self.make_room();
        }
        self.young.entry(key.clone()).or_insert_with(|| known.unwrap_or_else(make))
    }

    /// Returns the value, if the key is known. It counts as used now.
    pub(super) fn touch(&mut self, key: &K) -> Option<&mut V> {
        if let Some(value) = self.old.remove(key) {
            self.insert(key.clone(), value);
        }
        self.young.get_mut(key)
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Puts a value in, over what was there. It counts as used now.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if !self.young.contains_key(&key) {
            self.make_room();
        }
        self.young.insert(key, value);
    }

    fn make_room(&mut self) {
        if self.young.len() >= self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut recent = Recent::new(2);
        for key in 1..100 {
            recent.get_or_insert_with(&key, || "first");
            assert_eq!(recent.get_or_insert_with(&0, || if key == 1 { "first" } else { "again" }), &"first");
        }
        assert_eq!(recent.get_or_insert_with(&50, || "again"), &"again");
        assert_eq!(recent.get_or_insert_with(&99, || "again"), &"first");
    }

    #[test]
    fn what_is_taken_out_or_replaced_does_not_come_back() {
        let mut recent = Recent::new(2);
        recent.insert(0, "first");
        recent.insert(1, "first");
        recent.insert(2, "first");
        recent.insert(0, "second");
        assert_eq!(recent.touch(&3), None);
        assert_eq!(recent.touch(&1), Some(&mut "first"));
        assert_eq!(recent.remove(&0), Some("second"));
        assert_eq!(recent.remove(&0), None);
        assert_eq!(recent.remove(&1), Some("first"));
    }

    #[test]
    fn it_never_holds_more_than_twice_its_capacity() {
        let mut recent = Recent::new(10);
        for key in 0..1000 {
            *recent.get_or_insert_with(&(key % 37), || 0) += 1;
            assert!(recent.young.len() <= 10 && recent.old.len() <= 10);
        }
    }
}
