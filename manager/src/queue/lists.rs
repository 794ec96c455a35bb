//! Linked lists of ready keys that thread through their slots.
//!
//! A key is appended at the end and removed from any position; neither allocates.

use super::index::NONE;
use super::slots::{SlotState, Slots};
use crate::key::Key;

/// The links of one slot in a linked list: the slot before it and the slot after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    prev: u32,
    next: u32,
}

/// A doubly linked list of ready keys that runs through their slots.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    pub(super) len: usize,
    kind: ListKind,
}

/// The kind of a list of ready keys: the list of a lane, or the list of all by age. A slot is in up to two
/// lists, one of each kind, and has a [`Links`] for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Lane,
    Age,
}

// === impl Links ===

impl Links {
    /// The links of a slot that is in no list.
    pub(super) const LOOSE: Self = Self { prev: NONE, next: NONE };
}

// === impl List ===

impl List {
    pub(super) fn new(kind: ListKind) -> Self {
        Self { head: NONE, tail: NONE, len: 0, kind }
    }

    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(super) fn tail(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Appends the ready key in slot `number` to the list.
    pub(super) fn push<Q: Key>(&mut self, slots: &mut Slots<Q>, number: u32) {
        let prev = self.tail;
        if let Some(links) = slots.links(number, self.kind) {
            *links = Links { prev, next: NONE };
        }
        match slots.links(prev, self.kind) {
            Some(links) => links.next = number,
            None => self.head = number,
        }
        self.tail = number;
        self.len += 1;
    }

    /// Removes the ready key in slot `number` from the list, from any position.
    pub(super) fn unlink<Q: Key>(&mut self, slots: &mut Slots<Q>, number: u32) {
        let Some(links) = slots.links(number, self.kind) else { return };
        let Links { prev, next } = std::mem::replace(links, Links::LOOSE);
        match slots.links(prev, self.kind) {
            Some(links) => links.next = next,
            None => self.head = next,
        }
        match slots.links(next, self.kind) {
            Some(links) => links.prev = prev,
            None => self.tail = prev,
        }
        self.len -= 1;
    }
}

// === impl Slots ===

impl<Q: Key> Slots<Q> {
    /// Returns the list links of the ready key in slot `number`; `None` for any other key, which is in no
    /// list.
    fn links(&mut self, number: u32, kind: ListKind) -> Option<&mut Links> {
        match &mut self.pages.get_mut(number)?.state {
            SlotState::Ready { links, .. } => Some(&mut links[kind as usize]),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
