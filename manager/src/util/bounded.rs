//! A map of bounded size that drops the least recently used entry first, and entries older than a set time.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// A map of at most `capacity` entries. The insertion of a new key into a full map evicts the least recently
/// used entry; entries may also expire.
///
/// Each call costs one look-up by hash and one by age. Each key is stored twice, so use an `Arc` for long
/// keys.
///
/// ```
/// # use {mainstay::util::BoundedMap, std::time::Duration, tokio::time::Instant};
/// let (second, now) = (Duration::from_secs(1), Instant::now());
/// let mut answers = BoundedMap::new(2).expire_after(10 * second);
/// answers.insert("a", 1, now);
/// answers.insert("b", 2, now + second);
/// assert_eq!(answers.get("a", now + 2 * second), Some(&mut 1));
/// answers.insert("c", 3, now + 3 * second);
/// assert_eq!(answers.get("b", now + 3 * second), None); // the least recently used
/// assert_eq!(answers.get("a", now + 10 * second), None); // expired
/// ```
#[derive(Clone, Debug)]
pub struct BoundedMap<K, V> {
    capacity: usize,
    /// Time to live of an entry of the map; [`Duration::MAX`] if entries do not expire.
    ttl: Duration,
    entries: HashMap<K, Entry<V>>,
    /// The key of each entry of the map by the number of its last use, least recently used first.
    by_use: BTreeMap<u64, K>,
    /// Number of uses of the map's entries so far; each use gets the next number.
    uses: u64,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    value: V,
    /// The number of the entry's last use; no two entries share one.
    used: u64,
    /// Time at which the entry expires; `None` if it does not expire.
    until: Option<Instant>,
}

// === impl BoundedMap ===

impl<K: Clone + Eq + Hash, V> BoundedMap<K, V> {
    /// Makes an empty map for at most `capacity` entries; a capacity of 0 counts as 1.
    pub fn new(capacity: usize) -> Self {
        let (entries, by_use) = (HashMap::new(), BTreeMap::new());
        Self { capacity: capacity.max(1), ttl: Duration::MAX, entries, by_use, uses: 0 }
    }

    /// Sets the time to live of the map's entries, counted from their insertion. A read does not prolong it.
    #[must_use]
    pub fn expire_after(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Returns the value of a key in the map, unless it is absent or expired. Counts as a use.
    pub fn get<Q>(&mut self, key: &Q, now: Instant) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.entries.get_mut(key).filter(|entry| entry.is_alive(now))?;
        let key = self.by_use.remove(&entry.used)?;
        self.uses += 1;
        entry.used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(&mut entry.value)
    }

    /// Returns the value of a key in the map, and makes the value first if it is absent or expired. Counts as
    /// a use.
    pub fn get_or_insert_with(&mut self, key: &K, now: Instant, make: impl FnOnce() -> V) -> &mut V {
        self.place(key.clone(), self.ttl, now, make)
    }

    /// Inserts a value into the map and returns the one it replaces, unless that had expired. Counts as a
    /// use.
    pub fn insert(&mut self, key: K, value: V, now: Instant) -> Option<V> {
        self.insert_for(key, value, self.ttl, now)
    }

    /// Inserts a value into the map as [`insert`](Self::insert) does, with a time to live for this entry
    /// alone.
    pub fn insert_for(&mut self, key: K, value: V, ttl: Duration, now: Instant) -> Option<V> {
        let replaced = self.remove(&key, now);
        self.place(key, ttl, now, || value);
        replaced
    }

    /// Removes the value of a key from the map and returns it, unless it had expired.
    pub fn remove<Q>(&mut self, key: &Q, now: Instant) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.used);
        entry.is_alive(now).then_some(entry.value)
    }

    /// Removes and returns the least recently used entry of the map, expired or not.
    pub fn pop_least_used(&mut self) -> Option<(K, V)> {
        let (_, key) = self.by_use.pop_first()?;
        let entry = self.entries.remove(&key)?;
        Some((key, entry.value))
    }

    /// Returns the number of entries stored in the map, including expired ones.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the map stores no entry, not even an expired one.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn place(&mut self, key: K, ttl: Duration, now: Instant, make: impl FnOnce() -> V) -> &mut V {
        if self.len() >= self.capacity && !self.entries.contains_key(&key) {
            self.pop_least_used();
        }
        self.uses += 1;
        let (used, until) = (self.uses, now.checked_add(ttl));
        let entry = match self.entries.entry(key.clone()) {
            hash_map::Entry::Vacant(vacant) => vacant.insert(Entry { value: make(), used, until }),
            hash_map::Entry::Occupied(known) => {
                let entry = known.into_mut();
                if !entry.is_alive(now) {
                    (entry.value, entry.until) = (make(), until);
                }
                self.by_use.remove(&std::mem::replace(&mut entry.used, used));
                entry
            }
        };
        self.by_use.insert(used, key);
        &mut entry.value
    }
}

// === impl Entry ===

impl<V> Entry<V> {
    fn is_alive(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
