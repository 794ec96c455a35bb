//! The state machine of the queue: the states of a key, and the events that move a key between them.
//!
//! It has no clock, no task and no waiter: time is passed in by [`Inner::advance`], randomness comes from a
//! seeded generator, and `waking` decides which callers to wake, so that a test can drive the whole queue
//! step by step. Everything here runs under the queue's one lock. `moves` holds the transitions of a single
//! key.
//!
//! One rule replaces most of a table: **an add while its key runs is the same add right after the run**. A
//! success leaves the key absent, so any add makes it ready again; a failure leaves it in backoff, which only
//! a strong add ends; and so on. `the_table_of_states_and_events` in the tests prints the resulting table.
//!
//! # Invariants
//! 1. A key is in exactly one state: delayed and in the tree of deadlines, ready and in its lane and in the
//!    list by age, running and in the list of running keys, or parked.
//! 2. The list by age is ordered: due keys become ready before any event at a later time.
//! 3. While the queue drains no key becomes ready except dirty ones, so that draining ends.

use std::time::Duration;

use super::clock::{Moment, Span};
use super::delays::Delays;
use super::lanes::{Choice, Lanes};
use super::metrics::Histogram;
use super::slots::{DelayReason, MergedAdd, ParkReason, Run, SlotState, Slots};
use super::{Add, Added, Band, Lane, QueueSettings, Retried, Retry};
use crate::key::{Cause, Key};

/// Largest number of other keys that one queue operation moves to a new state under the lock, besides the key
/// it is about: some tens of microseconds.
pub(super) const SLICE: u32 = 64;

/// The error text recorded for a run that was dropped without an outcome.
const DROPPED: &str = "the run ended without an outcome: it panicked or was cancelled";

/// The whole state of a work queue, guarded by the queue's lock.
#[derive(Debug)]
pub(super) struct Inner<Q> {
    pub(super) slots: Slots<Q>,
    pub(super) delays: Delays,
    pub(super) lanes: Lanes,
    /// Slot numbers of the running keys, in no order.
    pub(super) running: Vec<u32>,
    /// Number of running keys that are dirty: added again during their run.
    pub(super) dirty: usize,
    pub(super) parked: usize,
    /// Number of parked keys that have not failed, such as the keys of paused objects.
    pub(super) paused: usize,
    pub(super) settings: QueueSettings,
    pub(super) workers: usize,
    pub(super) random: fastrand::Rng,
    pub(super) now: Moment,
    pub(super) leading: bool,
    pub(super) phase: Phase,
    /// A change of the retry policy that has yet to be applied to some of the waiting keys; `None` if there
    /// is none.
    pub(super) sweep: Option<Sweep>,
    /// Whether to send the room signal when the queue has room again: a background add was refused, or a
    /// source waits.
    pub(super) room_wanted: bool,
    /// Number of callers of `get` that sleep.
    pub(super) idle: usize,
    /// Number of wake-ups sent to sleeping callers of `get` since the last of them woke. A caller that wakes
    /// sees the whole queue, so a key that the woken callers will find needs no further wake-up.
    pub(super) notified: usize,
    /// The moment for which one sleeping caller of `get` has set the queue's timer; `START` once this caller
    /// has been woken for an earlier moment; `None` if no caller holds the timer.
    pub(super) timer: Option<Moment>,
    pub(super) totals: Totals,
}

/// Progress of a change of the retry policy, which is applied to the slots of the waiting keys in slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// The moment at which the retry policy changed: backoffs that began later were computed by the new
    /// policy.
    changed: Moment,
    /// Number of the first slot to which the new retry policy has not been applied.
    next: u32,
}

/// The phase of a queue: open, or a stage of its shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The queue drains before its shutdown: adds are ignored; ready keys and keys added during their run are
    /// still handed out.
    Draining,
    /// The queue is shut down: adds are ignored, and no key is handed out any more.
    Stopped,
}

/// Counters and histograms of a queue since it was made, for its metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    /// Number of times that a key became ready, or was added during its run.
    pub(super) adds: u64,
    /// Histogram of the failed runs that are retried, by the number of failures of the key in a row.
    pub(super) retries: Histogram,
    /// Histogram of the times that keys were ready before a worker took them.
    pub(super) queued: Histogram,
    /// Histogram of the times that runs took, of those that ended in a success or a failure.
    pub(super) worked: Histogram,
}

/// A key that was handed out to a worker, with the data of its run.
#[derive(Debug)]
pub(super) struct Job<Q> {
    pub(super) slot: u32,
    pub(super) key: Q,
    pub(super) cause: Cause,
    /// Number of this attempt to run the key: 1 for the first, one more for each failure in a row.
    pub(super) attempt: u32,
    pub(super) queued_for: Span,
}

/// How the run of a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    Done,
    RequeueAfter(Duration),
    /// The run failed with this error; the key is retried at the time that the [`Retry`] gives.
    Failed(&'a str, Retry),
    /// The hand-out of the key is undone: the key waits again as before, and no failure is counted.
    PutBack,
    /// The hand-out of the key is undone, and the key is parked for this reason.
    Park(&'static str),
    /// The guard of the run was dropped without an outcome: this counts as a failure, unless the queue shuts
    /// down or this replica does not lead.
    Dropped,
}

// === impl Inner ===

impl<Q: Key> Inner<Q> {
    pub(super) fn new(settings: QueueSettings, workers: usize, random: fastrand::Rng) -> Self {
        Self {
            slots: Slots::new(),
            delays: Delays::default(),
            lanes: Lanes::new(&settings, workers),
            running: Vec::new(),
            dirty: 0,
            parked: 0,
            paused: 0,
            settings,
            workers,
            random,
            now: Moment::START,
            leading: true,
            phase: Phase::Open,
            sweep: None,
            room_wanted: false,
            idle: 0,
            notified: 0,
            timer: None,
            totals: Totals::default(),
        }
    }

    // --- commands; each comes after an `advance` ---

    /// Sets the time of the queue: keys with a delay that is over become ready. One call moves a slice of
    /// them; later commands move the rest, and until then [`Self::next_wake`] is in the past.
    #[inline]
    pub(super) fn advance(&mut self, now: Moment) {
        // Callers read the clock before they get the lock, so they may arrive out of order.
        self.now = self.now.max(now);
        let is_due = self.delays.first().is_some_and(|(until, _)| until <= self.now);
        if is_due || self.sweep.is_some() {
            self.catch_up();
        }
    }

    #[cold]
    fn catch_up(&mut self) {
        if self.sweep.is_some() {
            self.sweep_slice();
        }
        if self.phase != Phase::Open {
            return;
        }
        for _ in 0..SLICE {
            let due = self.delays.first().filter(|(until, _)| *until <= self.now);
            let Some((until, slot)) = due else { break };
            self.come_due(slot, until);
        }
    }

    /// Adds a key to the queue, or applies the add to the entry of a key that is already in it.
    #[inline]
    pub(super) fn add(&mut self, key: Q, add: Add) -> Added {
        if self.phase != Phase::Open {
            return Added::ShuttingDown;
        }
        let Add { strength, band, cause, after, new_generation } = add;
        let until = after.filter(|wait| !wait.is_zero()).map(|wait| self.now.after(wait));
        let hash = self.slots.hash(&key);
        let added = if let Some(slot) = self.slots.find_hashed(hash, &key) {
            self.apply(slot, MergedAdd { strength, band, new_generation }, until, cause)
        } else if band == Band::Background && !self.takes_background() {
            self.room_wanted = true;
            Added::Refused
        } else {
            let slot = self.slots.insert(hash, key, cause);
            self.enqueue(slot, band, until)
        };
        if matches!(added, Added::Queued | Added::Dirtied) {
            self.totals.adds += 1;
        }
        added
    }

    /// Hands out the next key to a worker; `None` if no key may be handed out now.
    #[inline]
    pub(super) fn try_take(&mut self) -> Option<Job<Q>> {
        self.choose().map(|choice| self.hand_out(choice))
    }

    /// Ends the run of the key in `slot`, which ran for `cause`, and puts the key into its next state.
    /// Returns when its next attempt is; of interest after a failure.
    #[inline]
    pub(super) fn finish(&mut self, slot: u32, cause: &Cause, outcome: Outcome<'_>) -> Retried {
        let SlotState::Running(run) = self.slots.get(slot).state else { return Retried::Parked };
        self.end_run(run);
        if matches!(outcome, Outcome::Done) && run.dirty.is_none() && run.later.is_none() {
            self.totals.worked.observe(self.now.since(run.since));
            self.slots.remove(slot);
            return Retried::After(Duration::ZERO);
        }
        self.requeue(slot, run, cause, outcome)
    }

    /// Puts a key that stays in the queue after its run into its next state, by the outcome of the run and
    /// the adds that came during it. Returns when its next attempt is.
    #[inline(never)]
    fn requeue(&mut self, slot: u32, run: Run, cause: &Cause, outcome: Outcome<'_>) -> Retried {
        // The slot holds the cause of the next run, which differs from this run's if the key is dirty.
        let next_cause = std::mem::replace(&mut self.slots.get_mut(slot).cause, cause.clone());
        match outcome {
            // An endless delay, which the add during the run ends or shortens below.
            Outcome::Done => self.succeed(slot, run, Duration::MAX),
            Outcome::RequeueAfter(wait) => self.succeed(slot, run, wait),
            Outcome::Failed(error, retry) => self.fail(slot, run, error, retry),
            Outcome::Park(reason) => self.park(slot, ParkReason::Paused(reason)),
            Outcome::Dropped if self.phase == Phase::Open && self.leading => {
                self.fail(slot, run, DROPPED, Retry::Backoff);
            }
            // Due at once, but not ready: a drain hands out no key twice.
            Outcome::PutBack | Outcome::Dropped if self.phase == Phase::Draining => {
                let failed = run.lane == Lane::Retry;
                let reason = if failed { DelayReason::Backoff } else { DelayReason::Added(run.lane) };
                self.delay(slot, self.now, reason);
            }
            Outcome::PutBack | Outcome::Dropped => self.lanes.push(&mut self.slots, slot, run.lane, self.now),
        }
        if let Some(add) = run.later {
            // Its moment may have passed during the run: then it is due now.
            self.apply(slot, add, Some(run.later_at.max(self.now)), next_cause.clone());
        }
        if let Some(add) = run.dirty {
            self.apply(slot, add, None, next_cause);
        }
        self.advance(self.now);
        match self.slots.get(slot).state {
            SlotState::Parked { .. } => Retried::Parked,
            SlotState::Delayed { until, .. } => Retried::After(until - self.now),
            SlotState::Ready { .. } | SlotState::Running(_) => Retried::After(Duration::ZERO),
        }
    }

    /// Replaces the settings of the queue and its number of workers, for waiting keys too.
    pub(super) fn reconfigure(&mut self, settings: QueueSettings, workers: usize) {
        self.lanes.reconfigure(&settings, workers, self.now);
        let (new, old) = (&settings.retry, &self.settings.retry);
        let changed = new.delay != old.delay || new.max_attempts != old.max_attempts;
        self.settings = settings;
        self.workers = workers;
        if changed {
            self.sweep = Some(Sweep { changed: self.now, next: 0 });
            self.advance(self.now);
        }
    }

    /// Applies a new retry policy to the next slice of the slots: a delay of a quarter of an hour must end
    /// sooner once the maximum is ten seconds, and a key that was out of attempts gets more if the new policy
    /// allows more.
    fn sweep_slice(&mut self) {
        let Some(Sweep { changed, next }) = self.sweep else { return };
        let end = next.saturating_add(SLICE).min(self.slots.pages.end());
        for number in next..end {
            let Some(slot) = self.slots.pages.get(number) else { continue };
            let (failures, retry) = (slot.failures, &self.settings.retry);
            let mut until = || changed.after(retry.delay(failures.saturating_sub(1), self.random.f64()));
            match slot.state {
                SlotState::Delayed { reason: DelayReason::Backoff, since, .. } if since <= changed => {
                    let until = until();
                    self.delays.shorten(&mut self.slots, number, until);
                }
                SlotState::Parked { reason: ParkReason::Spent, .. } if !retry.is_spent(failures) => {
                    let until = until();
                    self.unpark(ParkReason::Spent);
                    self.totals.retries.count(failures);
                    self.delay(number, until, DelayReason::Backoff);
                }
                _ => {}
            }
        }
        self.sweep = (end < self.slots.pages.end()).then_some(Sweep { changed, next: end });
    }

    pub(super) fn set_leading(&mut self, leading: bool) {
        if leading && !self.leading {
            self.lanes.epoch = self.now;
        }
        self.leading = leading;
    }

    pub(super) fn shut_down(&mut self, phase: Phase) {
        // A stopped queue never drains again.
        if self.phase != Phase::Stopped {
            self.phase = phase;
        }
    }

    // --- queries ---

    fn takes_background(&self) -> bool {
        self.settings.max_depth == 0 || self.lanes.len() < self.settings.max_depth
    }

    #[inline]
    pub(super) fn choose(&self) -> Option<Choice> {
        let open = self.leading && self.phase != Phase::Stopped;
        open.then(|| self.lanes.choose(&self.slots, self.now)).flatten()
    }
}

#[cfg(test)]
mod tests;
