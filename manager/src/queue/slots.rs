//! Where the keys of a queue lie: one slot each, found by key or by number.
//!
//! The slot is the only copy of what is known about a key. Lists and the chains of the index thread through the slots
//! by number, the deadlines hold numbers only, so a key is stored once and a warm queue allocates nothing.
//!
//! # Invariants
//! 1. A key has at most one slot, and the index leads to it.
//! 2. A free slot holds nothing of the key that was there: its memory is given back with the key.
//! 3. No slot ever moves, and nothing here takes longer the more keys there are.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

use super::clock::Moment;
use super::index::{Chained, Index, Link};
use super::lists::Links;
use super::pages::{Emptied, Pages};
use super::{Band, Lane, Strength};
use crate::key::{Cause, Key};

/// All keys of a queue.
#[derive(Debug)]
pub(super) struct Slots<Q> {
    pages: Pages<Slot<Q>>,
    index: Index,
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
    link: Link,
}

/// A duration in four bytes, and room for "none" in the same four: the number is stored plus one.
pub(super) type Micros = std::num::NonZeroU32;

/// In which state a key is, with what only that state needs.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Waits for `until`, where it is the one that came in as `order`.
    Delayed { until: Moment, since: Moment, order: u32, why: Why },
    /// Waits for a worker, in the list of its lane and in the list of all ready keys by age.
    Ready { since: Moment, lane: Lane, in_lane: Links, by_age: Links },
    /// Is with a worker.
    Running(Run),
    /// Waits for a strong add.
    Parked { since: Moment, why: ParkedFor },
}

/// Why a key is parked. What exactly a failed one failed at, its last error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParkedFor {
    /// It failed in a way that another attempt would not mend.
    Terminal,
    /// It has failed as often as the policy allows; a policy that allows more frees it.
    Spent,
    /// It has not failed, and is left alone for this reason.
    Paused(&'static str),
}

/// Why a key waits for a moment, which decides where it goes when the moment comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It failed: the retry lane, and weak adds do not end the wait.
    Backoff,
    /// As `Backoff`, for as long as its error says, whatever the policy becomes: a server knows when it has time.
    RetryAfter,
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

// === impl Slots ===

impl<Q: Key> Slots<Q> {
    pub(super) fn new() -> Self {
        Self { pages: Pages::new(), index: Index::default(), hasher: DefaultHashBuilder::default() }
    }

    /// Returns how many keys there are.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns a number above all that are in use.
    pub(super) fn end(&self) -> u32 {
        self.pages.end()
    }

    /// Returns the slot of any number, if it is in use.
    #[inline]
    pub(super) fn peek(&self, number: u32) -> Option<&Slot<Q>> {
        self.pages.get(number)
    }

    #[inline]
    pub(super) fn peek_mut(&mut self, number: u32) -> Option<&mut Slot<Q>> {
        self.pages.get_mut(number)
    }

    /// Returns by what a key is looked up. Half of what the hasher gives is plenty for four billion slots.
    pub(super) fn hash(&self, key: &Q) -> u32 {
        let [a, b, c, d, ..] = self.hasher.hash_one(key).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    pub(super) fn find(&self, key: &Q) -> Option<u32> {
        self.find_hashed(self.hash(key), key)
    }

    pub(super) fn find_hashed(&self, hash: u32, key: &Q) -> Option<u32> {
        self.index.find(&self.pages, hash, |slot| slot.key == *key)
    }

    /// Stores a key that is not there yet. It is in no list and no count, and its place is up to the caller.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, key: Q, cause: Cause) -> u32 {
        let number = self.pages.insert(Slot {
            key,
            place: Place::Parked { since: Moment::START, why: ParkedFor::Terminal },
            cause,
            failures: 0,
            last_run: None,
            last_error: None,
            link: Link::new(hash),
        });
        self.index.insert(&mut self.pages, number);
        number
    }

    /// Forgets a key and all that is known about it.
    pub(super) fn remove(&mut self, number: u32) {
        self.index.remove(&mut self.pages, number);
        self.pages.remove(number);
    }

    /// Returns memory that was given up, to be dropped once the lock is released.
    pub(super) fn take_emptied(&mut self) -> Option<Emptied<Slot<Q>>> {
        self.pages.take_emptied()
    }

    #[expect(
        clippy::expect_used,
        reason = "numbers come from the queue's own lists, which hold no free slot"
    )]
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Slot<Q> {
        self.peek(number).expect("a listed slot is in use")
    }

    #[expect(
        clippy::expect_used,
        reason = "numbers come from the queue's own lists, which hold no free slot"
    )]
    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Slot<Q> {
        self.peek_mut(number).expect("a listed slot is in use")
    }
}

impl<Q> Chained for Slot<Q> {
    fn link(&self) -> Link {
        self.link
    }

    fn link_mut(&mut self) -> &mut Link {
        &mut self.link
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
mod tests;
