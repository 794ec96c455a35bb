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

use crate::cache::object::view::View;
use crate::key::NamespacedName;

/// Slots that are allocated together: few enough that a short burst of objects wastes little memory.
const PAGE: usize = 256;

/// The number of a slot.
pub(in crate::cache) type Number = u32;

/// All slots of one store.
#[derive(Default)]
pub(in crate::cache) struct Slots {
    /// All pages are full, except for the last one and where objects were removed. An empty page frees its
    /// memory and keeps its position.
    pages: Vec<Page>,
    /// Numbers by key; the key itself is in the version.
    by_key: HashTable<Number>,
    hasher: DefaultHashBuilder,
    /// Free numbers, lowest first, so that a shrinking store empties its last pages.
    free: BinaryHeap<Reverse<Number>>,
    /// The number of insertions so far.
    births: u64,
}

#[derive(Default)]
struct Page {
    slots: Vec<Option<Slot>>,
    taken: usize,
}

pub(in crate::cache) struct Slot {
    pub(in crate::cache) view: View,
    /// The epoch of the last list that contained the key.
    pub(in crate::cache) seen: u64,
    /// The value of `births` at the insertion.
    pub(in crate::cache) born: u64,
}

// === impl Slots ===

impl Slots {
    pub(in crate::cache) fn find(&self, request: &NamespacedName) -> Option<Number> {
        let same = |number: &Number| self.get(*number).is_some_and(|slot| slot.view.request() == request);
        self.by_key.find(self.hasher.hash_one(request), same).copied()
    }

    /// Returns the slot of a key and its number.
    pub(in crate::cache) fn lookup(&self, request: &NamespacedName) -> Option<(Number, &Slot)> {
        let number = self.find(request)?;
        Some((number, self.get(number)?))
    }

    pub(in crate::cache) fn get(&self, number: Number) -> Option<&Slot> {
        let (page, offset) = locate(number);
        self.pages.get(page)?.slots.get(offset)?.as_ref()
    }

    pub(in crate::cache) fn get_mut(&mut self, number: Number) -> Option<&mut Slot> {
        let (page, offset) = locate(number);
        self.pages.get_mut(page)?.slots.get_mut(offset)?.as_mut()
    }

    /// Inserts a version of a key that has no slot.
    pub(in crate::cache) fn insert(&mut self, view: View) -> Number {
        let Reverse(number) = self.free.pop().unwrap_or(Reverse(self.end()));
        let (page, offset) = locate(number);
        if page == self.pages.len() {
            self.pages.push(Page::default());
        }
        let hash = self.hasher.hash_one(view.request());
        self.births += 1;
        let slot = Slot { view, seen: 0, born: self.births };
        if let Some(page) = self.pages.get_mut(page) {
            page.put(offset, slot);
        }
        let (pages, hasher) = (&self.pages, &self.hasher);
        self.by_key.insert_unique(hash, number, |number| hash_in(pages, hasher, *number));
        number
    }

    pub(in crate::cache) fn remove(&mut self, number: Number) -> Option<Slot> {
        let (page, offset) = locate(number);
        let page = self.pages.get_mut(page)?;
        let slot = page.slots.get_mut(offset)?.take()?;
        page.taken -= 1;
        if page.taken == 0 {
            page.slots = Vec::new();
        }
        let hash = self.hasher.hash_one(slot.view.request());
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.free.push(Reverse(number));
        Some(slot)
    }

    /// Iterates over the occupied slots from a number on.
    pub(in crate::cache) fn from(&self, first: Number) -> impl Iterator<Item = (Number, &Slot)> {
        let (first_page, first_offset) = locate(first);
        let pages = self.pages.iter().enumerate().skip(first_page).filter(|(_, page)| page.taken > 0);
        pages.flat_map(move |(at, page)| {
            let skipped = if at == first_page { first_offset } else { 0 };
            let slots = page.slots.iter().enumerate().skip(skipped);
            slots.filter_map(move |(offset, slot)| Some((number(at, offset), slot.as_ref()?)))
        })
    }

    pub(in crate::cache) fn iter(&self) -> impl Iterator<Item = (Number, &Slot)> {
        self.from(0)
    }

    pub(in crate::cache) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the number of insertions so far; slots inserted later have a higher `born`.
    pub(in crate::cache) fn births(&self) -> u64 {
        self.births
    }

    /// Returns the first number that was never used.
    fn end(&self) -> Number {
        Number::try_from(self.by_key.len() + self.free.len()).unwrap_or(Number::MAX)
    }
}

impl Page {
    fn put(&mut self, offset: usize, slot: Slot) {
        if self.slots.is_empty() {
            self.slots.reserve_exact(PAGE);
        }
        if self.slots.len() <= offset {
            self.slots.resize_with(offset + 1, || None);
        }
        if let Some(free) = self.slots.get_mut(offset) {
            *free = Some(slot);
            self.taken += 1;
        }
    }
}

fn locate(number: Number) -> (usize, usize) {
    let number = number as usize;
    (number / PAGE, number % PAGE)
}

fn number(page: usize, offset: usize) -> Number {
    Number::try_from(page * PAGE + offset).unwrap_or(Number::MAX)
}

fn hash_in(pages: &[Page], hasher: &DefaultHashBuilder, number: Number) -> u64 {
    let (page, offset) = locate(number);
    let slot = pages.get(page).and_then(|page| page.slots.get(offset)?.as_ref());
    // Every number in the table has a slot. Without one, its entry could not be found any more.
    slot.map_or(0, |slot| hasher.hash_one(slot.view.request()))
}

#[cfg(test)]
mod tests;
