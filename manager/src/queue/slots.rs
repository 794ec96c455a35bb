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

/// Largest number of hash buckets merged per removed key, once there are too many buckets: enough to follow a
/// queue that only shrinks, twice over.
const MERGES: usize = 4;

/// All keys of a queue, each stored in a numbered slot and found by key or by number.
#[derive(Debug)]
pub(super) struct Slots<Q> {
    pub(super) pages: Pages<Slot<Q>>,
    index: Index,
    hasher: DefaultHashBuilder,
}

/// The slot of one key in a queue: the only copy of the key, its state and its history.
#[derive(Debug)]
pub(super) struct Slot<Q> {
    pub(super) key: Q,
    pub(super) state: SlotState,
    /// Why the key runs next; for a running key that is not dirty, why it runs now.
    pub(super) cause: Cause,
    /// Number of runs of the key that failed in a row.
    pub(super) failures: u32,
    /// How long the last run of the key took, in microseconds (saturating after 71 minutes); `None` before
    /// the first.
    pub(super) last_run: Option<Micros>,
    /// Error text of the key's latest failure; `None` since a success, and before the first failure. Shared
    /// with snapshots.
    pub(super) last_error: Option<Arc<String>>,
    hash: u32,
    /// The next slot in the hash chain of the index, or [`NONE`] at its end.
    next: u32,
}

/// A duration in microseconds, stored plus one in four bytes, so that 0 is free for `None`.
pub(super) type Micros = std::num::NonZeroU32;

/// The state of a key in a queue, with the data that only this state needs.
#[derive(Clone, Debug)]
pub(super) enum SlotState {
    /// The key is delayed until the moment `until`. `order` is its insertion number among equal deadlines.
    Delayed { until: Moment, since: Moment, order: u32, reason: DelayReason },
    /// The key is ready and waits for a worker, in the list of its lane and in the list of all ready keys by
    /// age.
    Ready { since: Moment, lane: Lane, links: [Links; 2] },
    /// A worker runs the key.
    Running(Run),
    /// The key is parked: it does not run until an add that reports a change (a strong add).
    Parked { since: Moment, reason: ParkReason },
}

/// Why a key is parked, that is, set aside until a change. The slot's `last_error` holds the text of the
/// failure, if there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParkReason {
    /// The key failed in a way that another attempt would not mend.
    Terminal,
    /// The key has failed as often as the retry policy allows; a new policy that allows more attempts retries
    /// it.
    Spent,
    /// The key has not failed, and is set aside for this reason.
    Paused(&'static str),
}

/// Why a key in the queue is delayed, which decides its lane when the delay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayReason {
    /// The key failed and waits out its backoff: then it goes into the retry lane. Weak adds, which report no
    /// change, do not end the delay.
    Backoff,
    /// The key failed and waits for a time that a server or the reconciler has set, which no new retry policy
    /// shortens: a server knows when it has time. Otherwise as `Backoff`.
    RetryAfter,
    /// The last run of the key succeeded and requested the delay.
    Requeue,
    /// The key was added with a delay, and goes into this lane when the delay is over.
    Added(Lane),
}

/// The run of a key that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) since: Moment,
    /// Index of the key's slot in the list of running keys.
    pub(super) index: u32,
    /// The lane from which the running key came, to which it returns if the run is undone.
    pub(super) lane: Lane,
    /// Whether the run holds one of the workers that retries may hold.
    pub(super) as_retry: bool,
    /// Adds of the key without a delay since its run began, merged; `None` while the key is clean.
    pub(super) dirty: Option<MergedAdd>,
    /// Delayed adds of the key since its run began, merged and due at `later_at`; `None` if there are none.
    pub(super) later: Option<MergedAdd>,
    pub(super) later_at: Moment,
}

/// The adds of a key during its run, merged into one: they count as one add right after the run.
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

    /// Returns the hash of a key, for the index. Half of the hasher's bits suffice for four billion slots.
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

    /// Stores a key that has no slot yet, and returns the number of its slot. The caller sets its state and
    /// puts it into the lists and counts.
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

    /// Removes the key in slot `number` from the queue, with its state and history.
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

    /// Puts each slot of a hash chain that is not in the index into the chain of its own bucket. `chain` is
    /// its first slot.
    fn index_chain(&mut self, mut chain: u32) {
        while let Some(slot) = self.pages.get_mut(chain) {
            let head = self.index.replace_head(slot.hash, chain);
            chain = std::mem::replace(&mut slot.next, head);
        }
    }
}

// === impl MergedAdd ===

impl MergedAdd {
    /// Merges two adds of one key into one add that has the effects of both.
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
