//! Where the versions of one store lie: numbered slots, found by key.
//!
//! A number is what indexes hold instead of a key, and what makes a long list possible without holding the lock for
//! long: the walk goes by number and lets writers in between any two.
//!
//! # Invariants
//! 1. A key keeps its number for as long as it is stored, whatever its versions.
//! 2. A slot born after a walk began holds a key that was not stored, or was stored elsewhere, when the walk began.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::cache::object::view::View;
use crate::key::NamespacedName;

/// Slots that are allocated together: few enough that one burst of objects wastes little.
const PAGE: usize = 256;

/// The number of a slot.
pub(in crate::cache) type Number = u32;

/// All slots of one store.
#[derive(Default)]
pub(in crate::cache) struct Slots {
    /// Full, but for the last ones and where objects have gone. An empty one is given back and keeps its place.
    pages: Vec<Page>,
    /// Numbers by key; the key itself stands in the version.
    by_key: HashTable<Number>,
    hasher: DefaultHashBuilder,
    /// Numbers below the end that are free, lowest first, so that a store that shrinks empties its last pages.
    free: BinaryHeap<Reverse<Number>>,
    /// Slots ever taken.
    births: u64,
}

#[derive(Default)]
struct Page {
    slots: Vec<Option<Slot>>,
    taken: usize,
}

pub(in crate::cache) struct Slot {
    pub(in crate::cache) view: View,
    /// The last list that had the key.
    pub(in crate::cache) seen: u64,
    /// Which birth it was.
    pub(in crate::cache) born: u64,
}

// === impl Slots ===

impl Slots {
    pub(in crate::cache) fn find(&self, request: &NamespacedName) -> Option<Number> {
        let same = |number: &Number| self.get(*number).is_some_and(|slot| slot.view.request() == request);
        self.by_key.find(self.hasher.hash_one(request), same).copied()
    }

    /// Returns the slot of a key, with its number.
    pub(in crate::cache) fn lookup(&self, request: &NamespacedName) -> Option<(Number, &Slot)> {
        let number = self.find(request)?;
        Some((number, self.get(number)?))
    }

    pub(in crate::cache) fn get(&self, number: Number) -> Option<&Slot> {
        let (page, place) = place(number);
        self.pages.get(page)?.slots.get(place)?.as_ref()
    }

    pub(in crate::cache) fn get_mut(&mut self, number: Number) -> Option<&mut Slot> {
        let (page, place) = place(number);
        self.pages.get_mut(page)?.slots.get_mut(place)?.as_mut()
    }

    /// Gives a slot to a key that has none.
    pub(in crate::cache) fn insert(&mut self, view: View) -> Number {
        let Reverse(number) = self.free.pop().unwrap_or(Reverse(self.end()));
        let (page, place) = place(number);
        if page == self.pages.len() {
            self.pages.push(Page::default());
        }
        let hash = self.hasher.hash_one(view.request());
        self.births += 1;
        let slot = Slot { view, seen: 0, born: self.births };
        if let Some(page) = self.pages.get_mut(page) {
            page.put(place, slot);
        }
        let (pages, hasher) = (&self.pages, &self.hasher);
        self.by_key.insert_unique(hash, number, |number| hash_in(pages, hasher, *number));
        number
    }

    pub(in crate::cache) fn remove(&mut self, number: Number) -> Option<Slot> {
        let (page, place) = place(number);
        let page = self.pages.get_mut(page)?;
        let slot = page.slots.get_mut(place)?.take()?;
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

    /// Goes through the slots that are taken, from a number on.
    pub(in crate::cache) fn from(&self, first: Number) -> impl Iterator<Item = (Number, &Slot)> {
        let (first_page, first_place) = place(first);
        let pages = self.pages.iter().enumerate().skip(first_page).filter(|(_, page)| page.taken > 0);
        pages.flat_map(move |(at, page)| {
            let skipped = if at == first_page { first_place } else { 0 };
            let slots = page.slots.iter().enumerate().skip(skipped);
            slots.filter_map(move |(place, slot)| Some((number(at, place), slot.as_ref()?)))
        })
    }

    pub(in crate::cache) fn iter(&self) -> impl Iterator<Item = (Number, &Slot)> {
        self.from(0)
    }

    pub(in crate::cache) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns how many slots were ever taken: those of later birth are news to who asked.
    pub(in crate::cache) fn births(&self) -> u64 {
        self.births
    }

    /// The first number that was never given.
    fn end(&self) -> Number {
        Number::try_from(self.by_key.len() + self.free.len()).unwrap_or(Number::MAX)
    }
}

impl Page {
    fn put(&mut self, place: usize, slot: Slot) {
        if self.slots.is_empty() {
            self.slots.reserve_exact(PAGE);
        }
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        if let Some(free) = self.slots.get_mut(place) {
            *free = Some(slot);
            self.taken += 1;
        }
    }
}

fn place(number: Number) -> (usize, usize) {
    let number = number as usize;
    (number / PAGE, number % PAGE)
}

fn number(page: usize, place: usize) -> Number {
    Number::try_from(page * PAGE + place).unwrap_or(Number::MAX)
}

fn hash_in(pages: &[Page], hasher: &DefaultHashBuilder, number: Number) -> u64 {
    let (page, place) = place(number);
    let slot = pages.get(page).and_then(|page| page.slots.get(place)?.as_ref());
    // Every number in the map has its slot; without one the entry could only be lost.
    slot.map_or(0, |slot| hasher.hash_one(slot.view.request()))
}

#[cfg(test)]
mod tests;
