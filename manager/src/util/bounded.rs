//! A map of bounded size that forgets the least recently used entry first, and old entries after a set time.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// At most `capacity` entries. A new key takes the place of the least recently used one; an entry may also expire.
///
/// Each call costs one look-up by hash and one by age. Keys are stored twice, so a long key is better an `Arc`.
///
/// ```
/// # use {mainstay::util::BoundedMap, std::time::Duration, tokio::time::Instant};
/// let (second, now) = (Duration::from_secs(1), Instant::now());
/// let mut answers = BoundedMap::new(2).expire_after(10 * second);
/// answers.insert("a", 1, now);
/// answers.insert("b", 2, now + second);
/// assert_eq!(answers.get("a", now + 2 * second), Some(&mut 1));
/// answers.insert("c", 3, now + 3 * second);
/// assert_eq!(answers.peek("b", now + 3 * second), None); // the least recently used
/// assert_eq!(answers.peek("a", now + 10 * second), None); // expired
/// ```
#[derive(Clone, Debug)]
pub struct BoundedMap<K, V> {
    capacity: usize,
    ttl: Option<Duration>,
    entries: HashMap<K, Entry<V>>,
    /// The key of each entry by its `used`, least recently used first.
    by_use: BTreeMap<u64, K>,
    /// The highest `used` so far.
    uses: u64,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    value: V,
    /// The number of its last use; no two entries share one.
    used: u64,
    /// `None` if it does not expire.
    until: Option<Instant>,
}

// === impl BoundedMap ===

impl<K: Clone + Eq + Hash, V> BoundedMap<K, V> {
    /// Makes an empty map; a capacity of 0 counts as 1.
    pub fn new(capacity: usize) -> Self {
        let (entries, by_use) = (HashMap::new(), BTreeMap::new());
        Self { capacity: capacity.max(1), ttl: None, entries, by_use, uses: 0 }
    }

    /// Sets how long an entry lives after its insertion. Reading it does not prolong its life.
    #[must_use]
    pub fn expire_after(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Returns the value of a key that is known and has not expired. It counts as used.
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

    /// Returns the value of a key that is known and has not expired. It does not count as used.
    pub fn peek<Q>(&self, key: &Q, now: Instant) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries.get(key).filter(|entry| entry.is_alive(now)).map(|entry| &entry.value)
    }

    /// Returns the value of a key, made first if the key is not known or has expired. It counts as used.
    pub fn get_or_insert_with(&mut self, key: &K, now: Instant, make: impl FnOnce() -> V) -> &mut V {
        let until = self.ttl.and_then(|ttl| now.checked_add(ttl));
        self.place(key.clone(), until, now, make)
    }

    /// Puts a value in and returns the one it replaces, unless that had expired. It counts as used.
    pub fn insert(&mut self, key: K, value: V, now: Instant) -> Option<V> {
        let replaced = self.remove(&key, now);
        let until = self.ttl.and_then(|ttl| now.checked_add(ttl));
        self.place(key, until, now, || value);
        replaced
    }

    /// Like [`insert`](Self::insert), with a time to live of this entry's own.
    pub fn insert_for(&mut self, key: K, value: V, ttl: Duration, now: Instant) -> Option<V> {
        let replaced = self.remove(&key, now);
        self.place(key, now.checked_add(ttl), now, || value);
        replaced
    }

    /// Takes a value out, and returns it unless it had expired.
    pub fn remove<Q>(&mut self, key: &Q, now: Instant) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.used);
        entry.is_alive(now).then_some(entry.value)
    }

    /// Takes the least recently used entry out, whether it has expired or not.
    pub fn pop_least_used(&mut self) -> Option<(K, V)> {
        let (_, key) = self.by_use.pop_first()?;
        let entry = self.entries.remove(&key)?;
        Some((key, entry.value))
    }

    /// Returns how many entries are stored, expired ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no entry is stored, not even an expired one.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn place(&mut self, key: K, until: Option<Instant>, now: Instant, make: impl FnOnce() -> V) -> &mut V {
        if self.len() >= self.capacity && !self.entries.contains_key(&key) {
            self.pop_least_used();
        }
        self.uses += 1;
        let used = self.uses;
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
