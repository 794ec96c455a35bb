//! The deadlines of the delayed keys, the earliest first.
//!
//! A tree instead of a heap: a slot that knows its deadline can end its delay anywhere in the tree, no slot
//! has to track the position of its entry, and no step takes longer than the logarithm of the number of keys,
//! growing included. (client-go's heap cannot end a delay, and runs a key twice that is added while it is
//! delayed.)
//!
//! # Invariants
//! 1. Entries come out by deadline; equal deadlines in the order in which they were inserted.
//! 2. The slot of each entry is `Delayed` and has the entry's deadline and order.

use std::collections::BTreeSet;

use super::clock::Moment;
use super::slots::{DelayReason, SlotState, Slots};
use crate::key::Key;

/// The deadlines of all delayed keys in a tree, the earliest first. An entry takes 16 bytes, and up to twice
/// that with the spare room of its node.
#[derive(Debug, Default)]
pub(super) struct Delays {
    entries: BTreeSet<Entry>,
    /// Copy of the earliest entry of the tree, which every operation of the queue reads; `None` if no key is
    /// delayed.
    first: Option<Entry>,
    /// Insertion number of the next entry, which orders entries with equal deadlines. Wraps around.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    until: Moment,
    /// Insertion number of the entry, which orders entries with equal deadlines.
    order: u32,
    slot: u32,
}

// === impl Delays ===

impl Delays {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the earliest deadline of all delayed keys, and the slot of its key; `None` if no key is
    /// delayed.
    pub(super) fn first(&self) -> Option<(Moment, u32)> {
        self.first.map(|entry| (entry.until, entry.slot))
    }

    /// Inserts the deadline `until` for the key in `slot`, and returns the insertion number of the entry. The
    /// caller sets the state of the key.
    pub(super) fn push(&mut self, slot: u32, until: Moment) -> u32 {
        let order = self.next;
        self.next = self.next.wrapping_add(1);
        self.insert(Entry { until, order, slot });
        order
    }

    /// Removes the deadline of the delayed key in `slot`, and returns the reason of its delay. The caller
    /// sets the next state of the key.
    pub(super) fn remove<Q: Key>(&mut self, slots: &Slots<Q>, slot: u32) -> DelayReason {
        let SlotState::Delayed { until, order, reason, .. } = slots.get(slot).state else {
            return DelayReason::Requeue;
        };
        self.take_out(Entry { until, order, slot });
        reason
    }

    /// Makes the delayed key in `slot` due at the moment `earlier`, unless it is due before that.
    pub(super) fn shorten<Q: Key>(&mut self, slots: &mut Slots<Q>, slot: u32, earlier: Moment) {
        let SlotState::Delayed { until, order, .. } = &mut slots.get_mut(slot).state else { return };
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
