//! The state of each key of a queue, as plain data for the debug pages and the metrics.

use std::sync::Arc;
use std::time::Duration;

use super::Lane;
use super::machine::{Inner, Phase};
use super::slots::{ParkReason, Slot, SlotState};
use crate::key::{Cause, Key};

/// Slots read per hold of the lock: some tens of microseconds.
pub(super) const CHUNK: u32 = 256;

/// How many keys are in which state, all at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready in the lane of live events.
    pub ready_live: usize,
    /// Ready in the lane of new objects.
    pub ready_new: usize,
    /// Ready in the lane of initial lists and resyncs.
    pub ready_background: usize,
    /// Ready in the lane of retries.
    pub ready_retry: usize,
    /// Waiting for a moment.
    pub delayed: usize,
    /// With a worker; dirty ones included.
    pub running: usize,
    /// With a worker, and added during the run.
    pub dirty: usize,
    /// Set aside until a strong add; paused ones included.
    pub parked: usize,
    /// Parked without having failed, as the keys of paused objects are.
    pub paused: usize,
    /// How long the oldest ready key has been ready; `None` if no key is ready.
    pub oldest_ready: Option<Duration>,
    /// Number of workers from which the shares are computed.
    pub workers: usize,
    /// Whether this replica leads, so that keys are handed out.
    pub leading: bool,
    /// Whether the queue takes no more adds.
    pub shutting_down: bool,
}

/// One key. Durations count from the moment of the snapshot.
#[derive(Clone, Debug)]
pub struct KeySnapshot<Q> {
    /// The key.
    pub key: Q,
    /// Its state.
    pub state: State,
    /// The lane in which it is ready, or from which it came while it runs; `None` while delayed or parked.
    pub lane: Option<Lane>,
    /// Runs that failed in a row.
    pub attempts: u32,
    /// How long it has been in this state. A ready key counts from the election at the earliest.
    pub since: Duration,
    /// How long until it is ready; `None` unless delayed.
    pub next_run: Option<Duration>,
    /// Why it is parked without having failed; `None` in any other state.
    pub reason: Option<&'static str>,
    /// The error of the last run; `None` if it succeeded, or there was no run yet.
    pub last_error: Option<Arc<String>>,
    /// How long the last run took; `None` before the first.
    pub last_duration: Option<Duration>,
    /// Why it runs next, or runs now.
    pub cause: Cause,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It waits for a moment without having failed: its last run asked for the delay, or it was added with
    /// one.
    Requeued,
    /// It failed and waits for its next attempt.
    Backoff,
    /// It waits for a worker.
    Ready,
    /// A worker has it.
    Running,
    /// A worker has it, and it was added during the run.
    Dirty,
    /// It has failed for good or too often, or was set aside for a reason, and waits for a strong add.
    Parked,
}

// === impl Counts ===

impl Counts {
    /// Returns how many keys wait for a worker.
    pub fn ready(&self) -> usize {
        self.ready_live + self.ready_new + self.ready_background + self.ready_retry
    }
}

// === impl KeySnapshot ===

impl<Q> KeySnapshot<Q> {
    /// Replaces the key by another form of it.
    #[must_use]
    pub fn map_key<R>(self, form: impl FnOnce(Q) -> R) -> KeySnapshot<R> {
        let Self { key, state, lane, attempts, since, next_run, reason, last_error, last_duration, cause } =
            self;
        let key = form(key);
        KeySnapshot { key, state, lane, attempts, since, next_run, reason, last_error, last_duration, cause }
    }
}

// === impl State ===

impl State {
    /// All states, in the order in which a key passes through them.
    pub const ALL: [Self; 6] =
        [Self::Requeued, Self::Ready, Self::Running, Self::Dirty, Self::Backoff, Self::Parked];

    /// Returns the lower-case word used in JSON and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requeued => "requeued",
            Self::Backoff => "backoff",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Dirty => "dirty",
            Self::Parked => "parked",
        }
    }
}

// === impl Inner ===

impl<Q: Key> Inner<Q> {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            ready_live: self.lanes.len_of(Lane::Live),
            ready_new: self.lanes.len_of(Lane::New),
            ready_background: self.lanes.len_of(Lane::Background),
            ready_retry: self.lanes.len_of(Lane::Retry),
            delayed: self.delays.len(),
            running: self.running.len(),
            dirty: self.dirty,
            parked: self.parked,
            paused: self.paused,
            oldest_ready: self.lanes.oldest(&self.slots, self.now),
            workers: self.workers,
            leading: self.leading,
            shutting_down: self.phase != Phase::Open,
        }
    }

    /// Appends the keys of one chunk of slots from `start` on. Returns the start of the next chunk, if there
    /// is one.
    pub(super) fn list_chunk(&self, start: u32, keys: &mut Vec<KeySnapshot<Q>>) -> Option<u32> {
        let end = start.saturating_add(CHUNK).min(self.slots.pages.end());
        keys.extend(
            (start..end).filter_map(|slot| self.slots.pages.get(slot)).map(|slot| self.describe(slot)),
        );
        (end < self.slots.pages.end()).then_some(end)
    }

    pub(super) fn describe(&self, slot: &Slot<Q>) -> KeySnapshot<Q> {
        let (state, lane, since, next_run, reason) = match slot.state {
            SlotState::Delayed { until, since, reason, .. } => {
                let state = if reason.is_failure() { State::Backoff } else { State::Requeued };
                (state, None, since, Some(until - self.now), None)
            }
            SlotState::Ready { since, lane, .. } => {
                (State::Ready, Some(lane), since.max(self.lanes.epoch), None, None)
            }
            SlotState::Running(run) => {
                let state = if run.dirty.is_some() { State::Dirty } else { State::Running };
                (state, Some(run.lane), run.since, None, None)
            }
            SlotState::Parked { since, reason: ParkReason::Paused(reason) } => {
                (State::Parked, None, since, None, Some(reason))
            }
            SlotState::Parked { since, .. } => (State::Parked, None, since, None, None),
        };
        KeySnapshot {
            key: slot.key.clone(),
            state,
            lane,
            attempts: slot.failures,
            since: self.now - since,
            next_run,
            reason,
            last_error: slot.last_error.clone(),
            last_duration: slot.last_run.map(|micros| Duration::from_micros(u64::from(micros.get()) - 1)),
            cause: slot.cause.clone(),
        }
    }
}
