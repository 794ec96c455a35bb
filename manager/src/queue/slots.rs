//! Where the keys of a queue lie: one slot each, found by key or by number.
//!
//! The slot is the only copy of what is known about a key. Lists thread through the slots by number, the heap of
//! deadlines and the table of hashes hold numbers only, so a key is stored once and a warm queue allocates nothing.
//!
//! # Invariants
//! 1. A key has at most one slot, and the table leads to it.
//! 2. A free slot holds nothing of the key that was there: its memory is given back with the key.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::HashTable;

use super::clock::Moment;
use super::{Band, Lane, Strength};
use crate::key::{Cause, Key};

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

/// All keys of a queue.
#[derive(Debug)]
pub(super) struct Slots<Q> {
    list: Vec<Option<Slot<Q>>>,
    /// Numbers of the slots that hold `None`.
    free: Vec<u32>,
    /// Numbers of the others, by the hash of their key.
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// Everything known about one key.
#[derive(Debug)]
pub(super) struct Slot<Q> {
    pub(super) key: Q,
    pub(super) place: Place,
    /// Why the next run happens; of a running key that is not dirty, why this one does.
    pub(super) cause: Cause,
    /// Runs that failed in a row.
    pub(super) failures: u32,
    /// How long the last run took, in microseconds (saturating after 71 minutes); `None` before the first.
    pub(super) last_run: Option<Micros>,
    /// Text of the last failure in a row; `None` without one. Shared with snapshots.
    pub(super) last_error: Option<Arc<String>>,
}

/// A duration in four bytes, and room for "none" in the same four: the number is stored plus one.
pub(super) type Micros = std::num::NonZeroU32;

/// In which state a key is, with what only that state needs.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Waits for `until`, at `heap` in the heap of deadlines.
    Delayed { until: Moment, since: Moment, heap: u32, why: Why },
    /// Waits for a worker, in the list of its lane and in the list of all ready keys by age.
    Ready { since: Moment, lane: Lane, in_lane: Links, by_age: Links },
    /// Is with a worker.
    Running(Run),
    /// Waits for a strong add. `why` is `None` for a key that failed: its last error says it.
    Parked { since: Moment, why: Option<&'static str> },
}

/// Why a key waits for a moment, which decides where it goes when the moment comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It failed: the retry lane, and weak adds do not end the wait.
    Backoff,
    /// Its last run asked for it.
    Requeue,
    /// It was added for that moment.
    Added(Band),
}

/// A run under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) since: Moment,
    /// Its place in the list of running keys.
    pub(super) index: u32,
    /// The lane the key came from, and goes back to if the run does not happen.
    pub(super) lane: Lane,
    /// It holds one of the workers that retries may hold.
    pub(super) as_retry: bool,
    /// Adds since the run began; `None` while the key is clean.
    pub(super) dirt: Option<Dirt>,
    /// Delayed adds since the run began, for the moment `again_at`.
    pub(super) again: Option<Dirt>,
    pub(super) again_at: Moment,
}

/// The adds of a key while it runs, merged: they count as one add right after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dirt {
    pub(super) strength: Strength,
    pub(super) band: Band,
    pub(super) new_generation: bool,
}

/// The neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    prev: u32,
    next: u32,
}

/// A list of ready keys that threads through their slots.
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

// === impl Slots ===

impl<Q: Key> Slots<Q> {
    pub(super) fn new() -> Self {
        Self {
            list: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Returns how many keys there are.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns one more than the highest slot number ever used.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(NONE)
    }

    /// Returns the slot of a number below [`Self::end`], if it is in use.
    pub(super) fn peek(&self, number: u32) -> Option<&Slot<Q>> {
        self.list.get(number as usize)?.as_ref()
    }

    pub(super) fn find(&self, key: &Q) -> Option<u32> {
        let found = |number: &u32| self.peek(*number).is_some_and(|slot| slot.key == *key);
        self.table.find(self.hasher.hash_one(key), found).copied()
    }

    /// Stores a key that is not there yet.
    pub(super) fn insert(&mut self, key: Q, place: Place, cause: Cause) -> u32 {
        let hash = self.hasher.hash_one(&key);
        let slot = Some(Slot { key, place, cause, failures: 0, last_run: None, last_error: None });
        let number = if let Some(number) = self.free.pop() {
            self.list[number as usize] = slot;
            number
        } else {
            let number = self.end();
            self.list.push(slot);
            number
        };
        let Self { list, table, hasher, .. } = self;
        table.insert_unique(hash, number, |number| {
            list[*number as usize].as_ref().map_or(0, |slot| hasher.hash_one(&slot.key))
        });
        number
    }

    /// Takes a key out, and returns what was known about it.
    pub(super) fn remove(&mut self, number: u32) -> Option<Slot<Q>> {
        let slot = self.list.get_mut(number as usize)?.take()?;
        let hash = self.hasher.hash_one(&slot.key);
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.free.push(number);
        Some(slot)
    }

    #[expect(
        clippy::expect_used,
        reason = "numbers come from the queue's own lists, which hold no free slot"
    )]
    pub(super) fn get(&self, number: u32) -> &Slot<Q> {
        self.list[number as usize].as_ref().expect("a listed slot is in use")
    }

    #[expect(
        clippy::expect_used,
        reason = "numbers come from the queue's own lists, which hold no free slot"
    )]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Slot<Q> {
        self.list[number as usize].as_mut().expect("a listed slot is in use")
    }

    /// Returns the links of a ready key; nothing for any other, which is in no list.
    fn links(&mut self, number: u32, thread: Thread) -> Option<&mut Links> {
        match (&mut self.list.get_mut(number as usize)?.as_mut()?.place, thread) {
            (Place::Ready { in_lane, .. }, Thread::Lane) => Some(in_lane),
            (Place::Ready { by_age, .. }, Thread::Age) => Some(by_age),
            _ => None,
        }
    }
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

    /// Returns the members from head to tail.
    #[cfg(test)]
    pub(super) fn walk<Q: Key>(&self, slots: &Slots<Q>) -> Vec<u32> {
        let mut members = Vec::new();
        let mut at = self.head;
        while at != NONE {
            members.push(at);
            let Place::Ready { in_lane, by_age, .. } = &slots.get(at).place else {
                panic!("a list holds a key that is not ready")
            };
            at = if self.thread == Thread::Lane { in_lane.next } else { by_age.next };
        }
        assert_eq!(members.last().copied().unwrap_or(NONE), self.tail, "a list ends elsewhere than it says");
        members
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

// === impl Dirt ===

impl Dirt {
    /// Adds up two adds: what either of them would have done, both together do.
    pub(super) fn merge(self, other: Self) -> Self {
        Self {
            strength: self.strength.max(other.strength),
            band: self.band.max(other.band),
            new_generation: self.new_generation || other.new_generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Request, Trigger};

    fn parked() -> Place {
        Place::Parked { since: Moment::START, why: None }
    }

    #[test]
    fn a_removed_key_leaves_nothing_behind_and_its_slot_is_used_again() {
        let mut slots = Slots::new();
        let name: Arc<str> = "web".into();
        let number =
            slots.insert(Request::cluster(Arc::clone(&name)), parked(), Cause::bare(Trigger::Generic));
        assert_eq!(slots.find(&Request::cluster("web")), Some(number));
        drop(slots.remove(number));
        assert_eq!((Arc::strong_count(&name), slots.len()), (1, 0));
        assert_eq!(slots.insert(Request::cluster("api"), parked(), Cause::bare(Trigger::Generic)), number);
        assert_eq!(slots.find(&Request::cluster("web")), None);
    }

    #[test]
    fn a_slot_costs_at_most_80_bytes_beyond_its_key() {
        let size = size_of::<Option<Slot<Request>>>() - size_of::<Request>();
        assert!(size <= 80, "{size}");
    }
}
