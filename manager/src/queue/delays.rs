//! The deadlines of the delayed keys, the earliest first.
//!
//! A binary heap whose entries know their slot, and whose slots know their entry, so that a wait can be ended or
//! shortened anywhere in it: client-go's heap cannot, and runs a key twice that is added while it waits.
//!
//! # Invariants
//! 1. No entry is due before the one above it; equal deadlines come out in the order they went in.
//! 2. The slot of the entry at `i` is `Delayed` and its `heap` is `i`.

use super::clock::Moment;
use super::slots::{Place, Slots};
use crate::key::Key;

/// The heap. An entry takes 16 bytes.
#[derive(Debug, Default)]
pub(super) struct Delays {
    heap: Vec<Entry>,
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
        self.heap.len()
    }

    /// Returns the earliest deadline, and whose it is.
    pub(super) fn first(&self) -> Option<(Moment, u32)> {
        self.heap.first().map(|entry| (entry.until, entry.slot))
    }

    /// Adds a delayed key.
    pub(super) fn push<Q: Key>(&mut self, slots: &mut Slots<Q>, slot: u32, until: Moment) {
        let order = self.next;
        self.next = self.next.wrapping_add(1);
        self.heap.push(Entry { until, order, slot });
        self.rise(slots, self.heap.len() - 1);
    }

    /// Takes out the entry at `at`, whose slot says so.
    pub(super) fn remove<Q: Key>(&mut self, slots: &mut Slots<Q>, at: u32) {
        let at = at as usize;
        if at >= self.heap.len() {
            return;
        }
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.sink(slots, at);
            self.rise(slots, at);
        }
    }

    /// Gives every entry the deadline that `shorten` returns for its slot, if that is earlier.
    pub(super) fn shorten_all<Q: Key>(
        &mut self,
        slots: &mut Slots<Q>,
        mut shorten: impl FnMut(&mut Slots<Q>, u32) -> Option<Moment>,
    ) {
        for entry in &mut self.heap {
            if let Some(until) = shorten(slots, entry.slot) {
                entry.until = entry.until.min(until);
            }
        }
        self.heap.sort_unstable();
        for at in 0..self.heap.len() {
            self.tell(slots, at);
        }
    }

    fn rise<Q: Key>(&mut self, slots: &mut Slots<Q>, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.heap.swap(at, (at - 1) / 2);
            self.tell(slots, at);
            at = (at - 1) / 2;
        }
        self.tell(slots, at);
    }

    fn sink<Q: Key>(&mut self, slots: &mut Slots<Q>, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let right = left + 1;
            let Some(mut least) = (left < self.heap.len()).then_some(left) else { break };
            if right < self.heap.len() && self.heap[right] < self.heap[left] {
                least = right;
            }
            if self.heap[at] <= self.heap[least] {
                break;
            }
            self.heap.swap(at, least);
            self.tell(slots, at);
            at = least;
        }
        self.tell(slots, at);
    }

    /// Writes into the slot of the entry at `at` where its entry is, and when it is due.
    fn tell<Q: Key>(&self, slots: &mut Slots<Q>, at: usize) {
        let entry = self.heap[at];
        if let Place::Delayed { heap, until, .. } = &mut slots.get_mut(entry.slot).place {
            // The heap holds at most one entry per slot, and slots have 32-bit numbers.
            *heap = u32::try_from(at).unwrap_or(u32::MAX);
            *until = entry.until;
        }
    }

    #[cfg(test)]
    pub(super) fn check<Q: Key>(&self, slots: &Slots<Q>) {
        for (at, entry) in self.heap.iter().enumerate() {
            assert!(at == 0 || self.heap[(at - 1) / 2] < *entry, "the heap is out of order at {at}");
            let Place::Delayed { until, heap, .. } = slots.get(entry.slot).place else {
                panic!("the heap lists a key that is not delayed")
            };
            assert_eq!((heap as usize, until), (at, entry.until), "a slot and its entry disagree");
        }
    }
}
