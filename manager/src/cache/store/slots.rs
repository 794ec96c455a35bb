//! Storage of the versions of one store: numbered slots, found by key.
//!
//! Indexes contain slot numbers instead of keys. A long list visits the slots in the order of their numbers
//! and can release the lock between any two of them.
//!
//! # Invariants
//! 1. A key keeps its number as long as it is stored, through all versions.
//! 2. If a slot was born after a walk began, its key was not stored at that time, or was stored in another
//!    slot.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::cache::object::View;
use crate::key::NamespacedName;

/// The smallest number of slots for which memory is allocated at once. A larger store grows by an eighth,
/// because doubling would waste more memory.
const GROWTH: usize = 256;

/// The number of a slot, which holds one object of a store.
pub(crate) type Number = u32;

/// All slots of one store: its objects, found by slot number or by key.
#[derive(Default)]
pub(crate) struct Slots {
    /// The slots by number; `None` where an object was removed. The last one is never `None`.
    by_number: Vec<Option<Slot>>,
    /// The slot numbers by the key of the object; the key itself is in the version.
    by_key: HashTable<Number>,
    hasher: DefaultHashBuilder,
    /// Free slot numbers, lowest first, so that a shrinking store empties the end of `by_number`.
    free: BinaryHeap<Reverse<Number>>,
    /// The number of insertions of objects into the store so far; a later one gives its slot a higher `born`.
    pub(crate) births: u64,
}

/// A slot: the stored version of one object.
pub(crate) struct Slot {
    pub(crate) view: View,
    /// The number (epoch) of the last list that contained the object.
    pub(crate) seen: u64,
    /// The number of insertions into the store up to that of this slot's object: a later one has a higher
    /// number.
    pub(crate) born: u64,
}

// === impl Slots ===

impl Slots {
    /// Returns the slot of the object with this name, and the number of the slot; `None` if there is no such
    /// object.
    pub(crate) fn lookup(&self, request: &NamespacedName) -> Option<(Number, &Slot)> {
        let same = |number: &Number| self.get(*number).is_some_and(|slot| slot.view.request() == request);
        let number = *self.by_key.find(self.hasher.hash_one(request), same)?;
        Some((number, self.get(number)?))
    }

    pub(crate) fn get(&self, number: Number) -> Option<&Slot> {
        self.by_number.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: Number) -> Option<&mut Slot> {
        self.by_number.get_mut(number as usize)?.as_mut()
    }

    /// Inserts the first version of an object that has no slot, and returns the number of its slot.
    pub(crate) fn insert(&mut self, view: View) -> Number {
        let unused = Number::try_from(self.by_key.len()).unwrap_or(Number::MAX);
        let Reverse(number) = self.free.pop().unwrap_or(Reverse(unused));
        let hash = self.hasher.hash_one(view.request());
        self.births += 1;
        let slot = Some(Slot { view, seen: 0, born: self.births });
        if self.by_number.len() == self.by_number.capacity() {
            self.by_number.reserve_exact(GROWTH.max(self.by_number.len() / 8));
        }
        match self.by_number.get_mut(number as usize) {
            Some(free) => *free = slot,
            // The lowest free number is at most the length.
            None => self.by_number.push(slot),
        }
        let Self { by_number, hasher, by_key, .. } = self;
        by_key.insert_unique(hash, number, |number| {
            let slot = by_number.get(*number as usize).and_then(Option::as_ref);
            // Every number in the table has a slot. Without one, its entry could not be found any more.
            slot.map_or(0, |slot| hasher.hash_one(slot.view.request()))
        });
        number
    }

    pub(crate) fn remove(&mut self, number: Number) -> Option<Slot> {
        let slot = self.by_number.get_mut(number as usize)?.take()?;
        let hash = self.hasher.hash_one(slot.view.request());
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.free.push(Reverse(number));
        self.by_number.truncate(self.by_number.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        if 2 * self.by_number.len() + GROWTH <= self.by_number.capacity() {
            self.by_number.shrink_to_fit();
        }
        Some(slot)
    }

    /// Iterates over the occupied slots with a number from `first` on, ascending.
    pub(crate) fn from(&self, first: Number) -> impl Iterator<Item = (Number, &Slot)> {
        let slots = self.by_number.get(first as usize..).unwrap_or_default();
        (first..).zip(slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests;
