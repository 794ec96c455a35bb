//! Lists of ready keys that thread through their slots.
//!
//! A key is put in at the end and taken out wherever it is, and neither allocates.

use super::slots::{Place, Slots};
use crate::key::Key;

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

/// The neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    prev: u32,
    next: u32,
}

/// One list.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: usize,
    thread: Thread,
}

/// Which links of a slot a list uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    Lane,
    Age,
}

// === impl Links ===

impl Links {
    /// In no list.
    pub(super) const LOOSE: Self = Self { prev: NONE, next: NONE };
}

// === impl List ===

impl List {
    pub(super) fn new(thread: Thread) -> Self {
        Self { head: NONE, tail: NONE, len: 0, thread }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(super) fn tail(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Puts a ready key at the end.
    pub(super) fn push<Q: Key>(&mut self, slots: &mut Slots<Q>, number: u32) {
        let prev = self.tail;
        if let Some(links) = slots.links(number, self.thread) {
            *links = Links { prev, next: NONE };
        }
        match slots.links(prev, self.thread) {
            Some(links) => links.next = number,
            None => self.head = number,
        }
        self.tail = number;
        self.len += 1;
    }

    /// Takes a ready key out, wherever it is.
    pub(super) fn unlink<Q: Key>(&mut self, slots: &mut Slots<Q>, number: u32) {
        let Some(links) = slots.links(number, self.thread) else { return };
        let Links { prev, next } = std::mem::replace(links, Links::LOOSE);
        match slots.links(prev, self.thread) {
            Some(links) => links.next = next,
            None => self.head = next,
        }
        match slots.links(next, self.thread) {
            Some(links) => links.prev = prev,
            None => self.tail = prev,
        }
        self.len -= 1;
    }
}

// === impl Slots ===

impl<Q: Key> Slots<Q> {
    /// Returns the links of a ready key; nothing for any other, which is in no list.
    fn links(&mut self, number: u32, thread: Thread) -> Option<&mut Links> {
        match (&mut self.peek_mut(number)?.place, thread) {
            (Place::Ready { in_lane, .. }, Thread::Lane) => Some(in_lane),
            (Place::Ready { by_age, .. }, Thread::Age) => Some(by_age),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
