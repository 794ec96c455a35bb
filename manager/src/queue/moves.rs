//! The transitions of a single key.
//!
//! Each function here leaves the key in exactly one state, and every list and count up to date. The functions
//! that take a key out of its state are marked; their callers put it into another state right away.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Moment;
use super::lanes::Choice;
use super::machine::{Inner, Job};
use super::slots::{DelayReason, MergedAdd, Micros, ParkReason, Run, SlotState};
use super::{Added, Band, Lane, Retry, Strength};
use crate::key::{Cause, Key, Trigger};

/// Longest error text that is kept per key, in bytes; the log has the whole text.
const MAX_ERROR_BYTES: usize = 1024;

// === impl Inner ===

impl<Q: Key> Inner<Q> {
    /// Makes the delayed key in `slot` ready, because its delay was over at `until`; the reason of the delay
    /// decides the lane.
    pub(super) fn come_due(&mut self, slot: u32, until: Moment) {
        let reason = self.delays.remove(&self.slots, slot);
        let cause = &mut self.slots.get_mut(slot).cause;
        let lane = match reason {
            DelayReason::Backoff | DelayReason::RetryAfter => {
                // The object of the first cause stays: with it the failures in a row began.
                cause.trigger = Trigger::Retried;
                Lane::Retry
            }
            DelayReason::Requeue => {
                *cause = Cause::bare(Trigger::Requeued);
                // The reconciler asked for this moment, so the key does not queue up behind an initial list.
                Lane::Live
            }
            DelayReason::Added(lane) => lane,
        };
        self.lanes.push(&mut self.slots, slot, lane, until);
        self.totals.adds += 1;
    }

    #[inline]
    pub(super) fn hand_out(&mut self, choice: Choice) -> Job<Q> {
        let slot = choice.slot;
        // Before any change: if the key's own `Clone` panics, the key must not stay in the running state for
        // ever.
        let entry = self.slots.get(slot);
        let (key, cause) = (entry.key.clone(), entry.cause.clone());
        let attempt = entry.failures.saturating_add(1);
        let (lane, queued_for) = self.lanes.take(&mut self.slots, choice, self.now);
        self.totals.queued.observe(queued_for);
        let index = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        self.running.push(slot);
        self.slots.get_mut(slot).state = SlotState::Running(Run {
            since: self.now,
            index,
            lane,
            as_retry: choice.as_retry,
            dirty: None,
            later: None,
            later_at: Moment::NEVER,
        });
        Job { slot, key, cause, attempt, queued_for }
    }

    /// Removes a key from the list of running keys at the end of its run; the caller sets its next state.
    #[inline]
    pub(super) fn end_run(&mut self, run: Run) {
        self.running.swap_remove(run.index as usize);
        if let Some(moved) = self.running.get(run.index as usize)
            && let SlotState::Running(other) = &mut self.slots.get_mut(*moved).state
        {
            other.index = run.index;
        }
        self.lanes.running_retries -= usize::from(run.as_retry);
        self.dirty -= usize::from(run.dirty.is_some());
    }

    /// Records how long a run took that ended in a success or a failure, in the metrics and in the slot of
    /// its key.
    fn record_run(&mut self, slot: u32, run: Run) {
        let took = self.now.since(run.since);
        self.totals.worked.observe(took);
        let micros = u32::try_from(took.nanos() / 1000).unwrap_or(u32::MAX);
        self.slots.get_mut(slot).last_run = Micros::new(micros.saturating_add(1));
    }

    pub(super) fn succeed(&mut self, slot: u32, run: Run, wait: Duration) {
        self.record_run(slot, run);
        let entry = self.slots.get_mut(slot);
        entry.failures = 0;
        entry.last_error = None;
        self.delay(slot, self.now.after(wait), DelayReason::Requeue);
    }

    pub(super) fn fail(&mut self, slot: u32, run: Run, error: &str, retry: Retry) {
        self.record_run(slot, run);
        let entry = self.slots.get_mut(slot);
        let earlier = entry.failures;
        entry.failures = earlier.saturating_add(1);
        let error = &error[..error.floor_char_boundary(MAX_ERROR_BYTES)];
        if entry.last_error.as_deref().is_none_or(|last| last != error) {
            entry.last_error = Some(Arc::new(error.to_owned()));
        }
        let policy = &self.settings.retry;
        let (wait, reason) = match retry {
            Retry::Never => return self.park(slot, ParkReason::Terminal),
            _ if policy.is_spent(entry.failures) => return self.park(slot, ParkReason::Spent),
            Retry::Backoff => (policy.delay(earlier, self.random.f64()), DelayReason::Backoff),
            Retry::NotBefore(asked) => {
                let random = self.random.f64();
                let (own, asked) = (policy.delay(earlier, random), policy.asked(asked, random));
                if asked > own { (asked, DelayReason::RetryAfter) } else { (own, DelayReason::Backoff) }
            }
            Retry::After(wait) => (wait, DelayReason::RetryAfter),
        };
        self.totals.retries.count(earlier.saturating_add(1));
        self.delay(slot, self.now.after(wait), reason);
    }

    /// Applies an add to a key that is already in the queue. `until` is the end of the add's delay; `None`
    /// for no delay.
    pub(super) fn apply(&mut self, slot: u32, add: MergedAdd, until: Option<Moment>, cause: Cause) -> Added {
        let entry = self.slots.get_mut(slot);
        // The new generation has not been tried yet, so it also ends the failures of the old one.
        let strong = add.strength == Strength::Strong || add.new_generation;
        if add.new_generation && !matches!(entry.state, SlotState::Running(_)) {
            entry.failures = 0;
        }
        match &mut entry.state {
            SlotState::Running(run) => {
                let clean = run.dirty.is_none();
                let (noted, added) = match until {
                    Some(_) => (&mut run.later, Added::Delayed),
                    None if clean => (&mut run.dirty, Added::Dirtied),
                    None => (&mut run.dirty, Added::Merged),
                };
                run.later_at = run.later_at.min(until.unwrap_or(Moment::NEVER));
                self.dirty += usize::from(added == Added::Dirtied);
                // An immediate add runs before a delayed one, and gives the next run its cause: the cause of
                // the first add, unless a strong add follows weak ones.
                let comes_next = until.is_none() || clean;
                if comes_next && noted.is_none_or(|noted| noted.strength < add.strength) {
                    entry.cause = cause;
                }
                *noted = Some(noted.map_or(add, |noted| noted.merge(add)));
                added
            }
            SlotState::Ready { lane, .. } => {
                let (from, to) = (*lane, lane.raised(add.band, strong));
                if until.is_none() && from != to {
                    entry.cause = cause;
                    self.lanes.change(&mut self.slots, slot, from, to);
                }
                Added::Merged
            }
            SlotState::Delayed { reason, .. } if reason.is_failure() && !strong => Added::Kept,
            SlotState::Parked { .. } if !strong => Added::Kept,
            SlotState::Delayed { until: earlier, .. } if until.is_some_and(|until| until >= *earlier) => {
                Added::Merged
            }
            SlotState::Delayed { reason, .. } => {
                let failed = reason.is_failure() && entry.failures > 0;
                if let Some(until) = until.filter(|_| failed) {
                    // The key stays in its backoff, only for a shorter time: the next weak add would end the
                    // rest of an ordinary delay.
                    self.delays.shorten(&mut self.slots, slot, until);
                    return Added::Delayed;
                }
                entry.cause = cause;
                self.delays.remove(&self.slots, slot);
                self.enqueue(slot, add.band, until)
            }
            SlotState::Parked { reason, .. } => {
                let reason = *reason;
                entry.cause = cause;
                self.unpark(reason);
                self.enqueue(slot, add.band, until)
            }
        }
    }

    /// Makes a key that has no state yet ready; with `until`, delays it until that moment instead.
    #[inline]
    pub(super) fn enqueue(&mut self, slot: u32, band: Band, until: Option<Moment>) -> Added {
        if let Some(until) = until {
            self.delay(slot, until, DelayReason::Added(Lane::of(band)));
            Added::Delayed
        } else {
            self.lanes.push(&mut self.slots, slot, Lane::of(band), self.now);
            Added::Queued
        }
    }

    pub(super) fn delay(&mut self, slot: u32, until: Moment, reason: DelayReason) {
        let order = self.delays.push(slot, until);
        self.slots.get_mut(slot).state = SlotState::Delayed { until, since: self.now, order, reason };
    }

    pub(super) fn park(&mut self, slot: u32, reason: ParkReason) {
        self.slots.get_mut(slot).state = SlotState::Parked { since: self.now, reason };
        self.parked += 1;
        self.paused += usize::from(matches!(reason, ParkReason::Paused(_)));
    }

    /// Removes a key from the counts of parked keys; the caller sets its next state.
    pub(super) fn unpark(&mut self, reason: ParkReason) {
        self.parked -= 1;
        self.paused -= usize::from(matches!(reason, ParkReason::Paused(_)));
    }
}

// === impl DelayReason ===

impl DelayReason {
    /// Returns whether this reason of a delay is a failure of the key.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Backoff | Self::RetryAfter)
    }
}

// === impl Lane ===

impl Lane {
    /// Returns the lane of a key that is added in this band and was not waiting before.
    fn of(band: Band) -> Self {
        match band {
            Band::Live => Self::Live,
            Band::New => Self::New,
            Band::Background => Self::Background,
        }
    }

    /// Returns the lane of a ready key after an add in `band`: the more urgent one of its own and that of the
    /// add. An add that reports no change (not `strong`) leaves a retry in its lane.
    fn raised(self, band: Band, strong: bool) -> Self {
        match (self, band) {
            (Self::Retry, _) if strong => Self::of(band),
            (Self::Background, Band::New) => Self::New,
            (Self::Background | Self::New, Band::Live) => Self::Live,
            _ => self,
        }
    }
}
