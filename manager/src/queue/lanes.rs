//! Which ready key is next.
//!
//! Fresh work goes before retries, live events before new objects and these before the initial list. No key
//! starves: retries have a share of the workers and a share of the turns, and a key that has waited for
//! `max_wait` goes first.
//!
//! The choice, in this order:
//! 1. the oldest ready key, if it has waited for `max_wait`: it counts as fresh in any lane;
//! 2. with fresh keys and retries both waiting, a retry if retries hold less than their share of the workers
//!    and it is their turn, else a fresh key;
//! 3. the fresh key or the retry that waits. A retry also needs a token if the policy has a rate.

use std::time::Duration;

use super::clock::{Moment, Span};
use super::lists::{Links, List, ListKind};
use super::slots::{SlotState, Slots};
use super::{Lane, QueueSettings};
use crate::key::Key;
use crate::util::{Limit, TokenBucket};

/// Largest share of the turns, in percent, that retries get while fresh work waits, even with a large share
/// of the workers: with one worker, or short fresh runs beside long retries, the share alone would let them
/// take every turn.
const MOST_TURNS_PERCENT: u32 = 50;

/// The ready keys of a queue, listed by lane and by age; chooses the next key to hand out.
#[derive(Debug)]
pub(super) struct Lanes {
    /// One list of ready keys per lane, in the order of [`Lane`].
    lists: [List; 4],
    /// All ready keys of all lanes, the one that became ready first at the head.
    by_age: List,
    /// Number of running keys that were handed out in the retry lane's turn.
    pub(super) running_retries: usize,
    /// Largest number of retries that may run while fresh work waits; at least 1 and at most `most_alone`.
    most_retries: usize,
    /// Largest number of retries that may run while no fresh work waits; at least 1.
    most_alone: usize,
    /// Part of a turn, in percent, that the retry lane gains each time a fresh key and a retry are both
    /// available.
    gain: u32,
    /// Part of a turn, in percent, that the retry lane has gained so far; a sum of 100 lets a retry go first.
    turn: u32,
    /// Token bucket that limits the rate of retries; `None` without a limit of their rate.
    bucket: Option<TokenBucket<Moment>>,
    max_wait: Span,
    /// The moment at which this replica began to lead: no key counts as ready for longer than since then.
    pub(super) epoch: Moment,
}

/// A ready key chosen to be handed out now, as fresh work or as a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) slot: u32,
    /// Whether the key is handed out in the retry lane's turn, so that it counts against the share of retries
    /// and takes a token.
    pub(super) as_retry: bool,
    /// Whether a fresh key and a retry were both available and the share allowed either, so that turns are
    /// counted.
    contested: bool,
}

// === impl Lanes ===

impl Lanes {
    pub(super) fn new(settings: &QueueSettings, workers: usize) -> Self {
        let mut lanes = Self {
            lists: std::array::from_fn(|_| List::new(ListKind::Lane)),
            by_age: List::new(ListKind::Age),
            running_retries: 0,
            most_retries: 1,
            most_alone: 1,
            gain: 1,
            turn: 0,
            bucket: None,
            max_wait: settings.max_wait.into(),
            epoch: Moment::START,
        };
        lanes.reconfigure(settings, workers, Moment::START);
        lanes
    }

    pub(super) fn reconfigure(&mut self, settings: &QueueSettings, workers: usize, now: Moment) {
        let share = u32::from(settings.retry_share.clamp(1, 100));
        // A single worker cannot be kept free: retries would never run.
        self.most_alone = if share == 100 || workers < 2 { usize::MAX } else { workers - 1 };
        self.most_retries = workers.saturating_mul(share as usize).div_ceil(100).clamp(1, self.most_alone);
        self.gain = share.min(MOST_TURNS_PERCENT);
        self.max_wait = settings.max_wait.into();
        let limit = settings.retry.rate.map(|rate| Limit::per_second(rate.per_second, rate.burst));
        match (limit, &mut self.bucket) {
            (Some(limit), Some(bucket)) => bucket.set_limit(limit, now),
            (limit, bucket) => *bucket = limit.map(TokenBucket::new),
        }
    }

    /// Returns the number of ready keys in all lanes.
    pub(super) fn len(&self) -> usize {
        self.by_age.len
    }

    /// Returns the number of ready keys in one lane.
    pub(super) fn len_of(&self, lane: Lane) -> usize {
        self.lists[lane as usize].len
    }

    /// Makes the key in `slot` ready in `lane`, since the moment `since`, or since the youngest of the ready
    /// keys became ready if that is later: this keeps the list by age ordered when many deadlines have passed
    /// at once.
    #[inline]
    pub(super) fn push<Q: Key>(&mut self, slots: &mut Slots<Q>, slot: u32, lane: Lane, since: Moment) {
        let since = self.by_age.tail().map_or(since, |youngest| since.max(self.ready_since(slots, youngest)));
        slots.get_mut(slot).state = SlotState::Ready { since, lane, links: [Links::LOOSE; 2] };
        self.lists[lane as usize].push(slots, slot);
        self.by_age.push(slots, slot);
    }

    /// Moves a ready key from lane `from` to the end of lane `to`; the moment since which it is ready stays.
    pub(super) fn change<Q: Key>(&mut self, slots: &mut Slots<Q>, slot: u32, from: Lane, to: Lane) {
        self.lists[from as usize].unlink(slots, slot);
        if let SlotState::Ready { lane, .. } = &mut slots.get_mut(slot).state {
            *lane = to;
        }
        self.lists[to as usize].push(slots, slot);
    }

    /// Returns the ready key to hand out next; `None` if no key may be handed out at `now`.
    #[inline]
    pub(super) fn choose<Q: Key>(&self, slots: &Slots<Q>, now: Moment) -> Option<Choice> {
        let oldest = self.by_age.head()?;
        if now.since(self.ready_since(slots, oldest)) >= self.max_wait {
            return Some(Choice { slot: oldest, as_retry: false, contested: false });
        }
        let head = |lane: Lane| self.lists[lane as usize].head();
        let retry = head(Lane::Retry).filter(|_| self.allows_retry() && self.token_at(now) <= now);
        let retry = retry.map(|slot| Choice { slot, as_retry: true, contested: false });
        let fresh = [Lane::Live, Lane::New, Lane::Background].into_iter().find_map(head);
        let fresh = fresh.map(|slot| Choice { slot, as_retry: false, contested: false });
        match (fresh, retry) {
            (Some(fresh), Some(retry)) if self.running_retries < self.most_retries => {
                let next = if self.turn + self.gain >= 100 { retry } else { fresh };
                Some(Choice { contested: true, ..next })
            }
            (fresh, retry) => fresh.or(retry),
        }
    }

    /// Removes the chosen key from the ready keys. Returns its lane and how long it was ready.
    #[inline]
    pub(super) fn take<Q: Key>(&mut self, slots: &mut Slots<Q>, choice: Choice, now: Moment) -> (Lane, Span) {
        let waited = now.since(self.ready_since(slots, choice.slot));
        let SlotState::Ready { lane, .. } = slots.get(choice.slot).state else { return (Lane::Live, waited) };
        self.lists[lane as usize].unlink(slots, choice.slot);
        self.by_age.unlink(slots, choice.slot);
        if choice.contested {
            self.turn = if choice.as_retry { self.turn + self.gain - 100 } else { self.turn + self.gain };
        }
        if choice.as_retry {
            self.running_retries += 1;
            if let Some(bucket) = &mut self.bucket {
                bucket.spend(now);
            }
        }
        (lane, waited)
    }

    /// Returns the moment at which a ready key that may not be handed out now may be handed out later: a
    /// token for a retry becomes available, or the oldest key has waited for `max_wait`. With as many running
    /// retries as are allowed, the next retry waits for the end of a run instead of a token. `None` if no key
    /// is ready.
    pub(super) fn next_chance<Q: Key>(&self, slots: &Slots<Q>, now: Moment) -> Option<Moment> {
        let oldest = self.ready_since(slots, self.by_age.head()?).after(self.max_wait);
        Some(if self.allows_retry() { self.token_at(now).min(oldest) } else { oldest })
    }

    /// Returns how long the oldest ready key has been ready; `None` if no key is ready.
    pub(super) fn oldest<Q: Key>(&self, slots: &Slots<Q>, now: Moment) -> Option<Duration> {
        self.by_age.head().map(|slot| now - self.ready_since(slots, slot))
    }

    /// Returns whether one more retry may run besides the retries that run now.
    fn allows_retry(&self) -> bool {
        self.running_retries < self.most_alone
    }

    fn token_at(&self, now: Moment) -> Moment {
        self.bucket.as_ref().map_or(now, |bucket| bucket.ready_at(now))
    }

    fn ready_since<Q: Key>(&self, slots: &Slots<Q>, slot: u32) -> Moment {
        match slots.get(slot).state {
            SlotState::Ready { since, .. } => since.max(self.epoch),
            _ => Moment::NEVER,
        }
    }
}

#[cfg(test)]
mod tests;
