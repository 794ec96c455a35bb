//! The deadlines of the delayed keys, the earliest first.
//!
//! A tree rather than a heap: a wait can be ended anywhere in it by whoever knows its deadline, no slot has to be told
//! where its entry is, and no step takes longer than the logarithm of the keys, growing included. (client-go's heap
//! cannot end a wait, and runs a key twice that is added while it waits.)
//!
//! # Invariants
//! 1. Entries come out by deadline; equal deadlines in the order they went in.
//! 2. The slot of each entry is `Delayed` and has the entry's deadline and order.

use std::collections::BTreeSet;

use super::clock::Moment;
use super::slots::{Place, Slots, Why};
use crate::key::Key;

/// The tree. An entry takes 16 bytes, and up to twice that with the room its node keeps.
#[derive(Debug, Default)]
pub(super) struct Delays {
    entries: BTreeSet<Entry>,
    /// The earliest of them, looked at with every operation of the queue.
    first: Option<Entry>,
    /// Number of the next entry. Wraps; it only breaks ties.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    until: Moment,
    /// Insertion order among equal deadlines.
    order: u32,
    slot: u32,
}

// === impl Delays ===

impl Delays {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the earliest deadline, and whose it is.
    pub(super) fn first(&self) -> Option<(Moment, u32)> {
        self.first.map(|entry| (entry.until, entry.slot))
    }

    /// Delays a key that is in no place.
    pub(super) fn push<Q: Key>(
        &mut self,
        slots: &mut Slots<Q>,
        slot: u32,
        since: Moment,
        until: Moment,
        why: Why,
    ) {
        let order = self.next;
        self.next = self.next.wrapping_add(1);
        slots.get_mut(slot).place = Place::Delayed { until, since, order, why };
        self.insert(Entry { until, order, slot });
    }

    /// Takes a delayed key out. Its next place is up to the caller.
    pub(super) fn remove<Q: Key>(&mut self, slots: &Slots<Q>, slot: u32) -> Why {
        let Place::Delayed { until, order, why, .. } = slots.get(slot).place else { return Why::Requeue };
        self.take_out(Entry { until, order, slot });
        why
    }

    /// Makes a delayed key due at `until`, if that is earlier.
    pub(super) fn shorten<Q: Key>(&mut self, slots: &mut Slots<Q>, slot: u32, earlier: Moment) {
        let Place::Delayed { until, order, .. } = &mut slots.get_mut(slot).place else { return };
        if earlier < *until {
            let entry = Entry { until: *until, order: *order, slot };
            *until = earlier;
            self.take_out(entry);
            self.insert(Entry { until: earlier, ..entry });
        }
    }

    fn insert(&mut self, entry: Entry) {
        self.entries.insert(entry);
        self.first = Some(self.first.map_or(entry, |first| first.min(entry)));
    }

    fn take_out(&mut self, entry: Entry) {
        self.entries.remove(&entry);
        if self.first == Some(entry) {
            self.first = self.entries.first().copied();
        }
    }
}

#[cfg(test)]
mod tests;
