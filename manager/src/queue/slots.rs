//! The keys of a queue, stored in one slot each and found by key or by number.
//!
//! The slot is the only copy of everything known about a key. Lists and the chains of the index thread
//! through the slots by number, and the tree of deadlines holds numbers only, so a key is stored once and a
//! warm queue does not allocate.
//!
//! # Invariants
//! 1. A key has at most one slot, which is in the chain of the bucket of its hash, once.
//! 2. A free slot keeps no part of its former key: the memory of a key is freed with the key.
//! 3. No slot ever moves, and no operation here takes longer the more keys there are.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

use super::clock::Moment;
use super::index::{Index, NONE};
use super::lists::Links;
use super::pages::Pages;
use super::{Band, Lane, Strength};
use crate::key::{Cause, Key};

/// Buckets merged per removal, once there are too many: enough to follow a queue that only shrinks, twice
/// over.
const MERGES: usize = 4;

/// All keys of a queue.
#[derive(Debug)]
pub(super) struct Slots<Q> {
    pub(super) pages: Pages<Slot<Q>>,
    index: Index,
    hasher: DefaultHashBuilder,
}

/// Everything known about one key.
#[derive(Debug)]
pub(super) struct Slot<Q> {
    pub(super) key: Q,
    pub(super) state: SlotState,
    /// Why the next run happens; for a running key that is not dirty, why this run happens.
    pub(super) cause: Cause,
    /// Runs that failed in a row.
    pub(super) failures: u32,
    /// How long the last run took, in microseconds (saturating after 71 minutes); `None` before the first.
    pub(super) last_run: Option<Micros>,
    /// Text of the last failure in a row; `None` without one. Shared with snapshots.
    pub(super) last_error: Option<Arc<String>>,
    hash: u32,
    /// The next slot in the chain of the index, or [`NONE`].
    next: u32,
}

/// A duration in four bytes, of which 0 is free for "none": the number is stored plus one.
pub(super) type Micros = std::num::NonZeroU32;

/// The state of a key, with the data that only this state needs.
#[derive(Clone, Debug)]
pub(super) enum SlotState {
    /// Waits for `until`. `order` is its insertion order among equal deadlines.
    Delayed { until: Moment, since: Moment, order: u32, reason: DelayReason },
    /// Waits for a worker, in the list of its lane and in the list of all ready keys by age.
    Ready { since: Moment, lane: Lane, links: [Links; 2] },
    /// A worker has it.
    Running(Run),
    /// Waits for a strong add.
    Parked { since: Moment, reason: ParkReason },
}

/// Why a key is parked. The slot's `last_error` holds the text of the failure, if there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParkReason {
    /// It failed in a way that another attempt would not mend.
    Terminal,
    /// It has failed as often as the policy allows; a policy that allows more frees it.
    Spent,
    /// It has not failed, and is set aside for this reason.
    Paused(&'static str),
}

/// Why a key is delayed, which decides its lane when the delay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayReason {
    /// It failed: it goes into the retry lane, and weak adds do not end the delay.
    Backoff,
    /// As `Backoff`, but for the time that the error named, which no new policy shortens: a server knows when
    /// it has time.
    RetryAfter,
    /// Its last run asked for the delay.
    Requeue,
    /// It was added with a delay, and goes into this lane.
    Added(Lane),
}

/// A run under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) since: Moment,
    /// Its index in the list of running keys.
    pub(super) index: u32,
    /// The lane the key came from, to which it returns if the run is undone.
    pub(super) lane: Lane,
    /// It holds one of the workers that retries may hold.
    pub(super) as_retry: bool,
    /// Adds since the run began; `None` while the key is clean.
    pub(super) dirty: Option<MergedAdd>,
    /// Delayed adds since the run began, due at `later_at`.
    pub(super) later: Option<MergedAdd>,
    pub(super) later_at: Moment,
}

/// The adds of a key during its run, merged: they count as one add right after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MergedAdd {
    pub(super) strength: Strength,
    pub(super) band: Band,
    pub(super) new_generation: bool,
}

// === impl Slots ===

impl<Q: Key> Slots<Q> {
    pub(super) fn new() -> Self {
        Self { pages: Pages::new(), index: Index::new(), hasher: DefaultHashBuilder::default() }
    }

    #[expect(clippy::expect_used, reason = "the queue's own lists hold no number of a free slot")]
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Slot<Q> {
        self.pages.get(number).expect("a listed slot is in use")
    }

    #[expect(clippy::expect_used, reason = "the queue's own lists hold no number of a free slot")]
    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Slot<Q> {
        self.pages.get_mut(number).expect("a listed slot is in use")
    }

    /// Returns the hash of a key. Half of the hasher's bits suffice for four billion slots.
    pub(super) fn hash(&self, key: &Q) -> u32 {
        let [a, b, c, d, ..] = self.hasher.hash_one(key).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    pub(super) fn find(&self, key: &Q) -> Option<u32> {
        self.find_hashed(self.hash(key), key)
    }

    pub(super) fn find_hashed(&self, hash: u32, key: &Q) -> Option<u32> {
        let mut at = self.index.head(hash);
        while let Some(slot) = self.pages.get(at) {
            if slot.hash == hash && slot.key == *key {
                return Some(at);
            }
            at = slot.next;
        }
        None
    }

    /// Stores a key that has no slot yet. The caller sets its state and puts it into the lists and counts.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, key: Q, cause: Cause) -> u32 {
        let number = self.pages.insert(Slot {
            key,
            state: SlotState::Parked { since: Moment::START, reason: ParkReason::Terminal },
            cause,
            failures: 0,
            last_run: None,
            last_error: None,
            hash,
            next: NONE,
        });
        let next = self.index.replace_head(hash, number);
        self.get_mut(number).next = next;
        if let Some(chain) = self.index.grow(self.pages.len()) {
            self.index_chain(chain);
        }
        number
    }

    /// Forgets a key and everything known about it.
    pub(super) fn remove(&mut self, number: u32) {
        let Some(&Slot { hash, next, .. }) = self.pages.get(number) else { return };
        let mut at = self.index.head(hash);
        if at == number {
            self.index.replace_head(hash, next);
        } else {
            while let Some(slot) = self.pages.get_mut(at) {
                at = slot.next;
                if at == number {
                    slot.next = next;
                    break;
                }
            }
        }
        self.pages.remove(number);
        for _ in 0..MERGES {
            let Some(chain) = self.index.shrink(self.pages.len()) else { break };
            self.index_chain(chain);
        }
    }

    /// Puts each slot of a chain that is not in the index into the chain of its own bucket.
    fn index_chain(&mut self, mut chain: u32) {
        while let Some(slot) = self.pages.get_mut(chain) {
            let head = self.index.replace_head(slot.hash, chain);
            chain = std::mem::replace(&mut slot.next, head);
        }
    }
}

// === impl MergedAdd ===

impl MergedAdd {
    /// Merges two adds into one that has the effects of both.
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
