//! The state of each key of a queue, as plain data for the debug pages and the metrics.

use std::sync::Arc;
use std::time::Duration;

use super::Lane;
use super::machine::{Inner, Phase};
use super::slots::{ParkReason, Slot, SlotState};
use crate::key::{Cause, Key};

/// Number of slots that one hold of the queue's lock reads: some tens of microseconds.
pub(super) const CHUNK: u32 = 256;

/// The number of keys of a queue in each state, all at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of keys that are ready in the lane of live events.
    pub ready_live: usize,
    /// Number of keys that are ready in the lane of new objects.
    pub ready_new: usize,
    /// Number of keys that are ready in the lane of initial lists and resyncs.
    pub ready_background: usize,
    /// Number of keys that are ready in the lane of retries.
    pub ready_retry: usize,
    /// Number of keys that are delayed until a moment: in backoff, requeued after a time, or added with a
    /// delay.
    pub delayed: usize,
    /// Number of keys that workers run at the moment; dirty ones included.
    pub running: usize,
    /// Number of running keys that were added again during their run.
    pub dirty: usize,
    /// Number of keys that are parked until an add that reports a change; paused ones included.
    pub parked: usize,
    /// Number of keys that are parked without having failed, as the keys of paused objects are.
    pub paused: usize,
    /// How long the oldest ready key has been ready; `None` if no key is ready.
    pub oldest_ready: Option<Duration>,
    /// Number of workers of the queue, from which the shares of retries are computed.
    pub workers: usize,
    /// Whether this replica leads, so that the queue hands out its keys.
    pub leading: bool,
    /// Whether the queue shuts down, so that it takes no more adds.
    pub shutting_down: bool,
}

/// The state and history of one key in a queue. Durations count from the moment of the snapshot.
#[derive(Clone, Debug)]
pub struct KeySnapshot<Q> {
    /// The key in the queue to which this snapshot belongs.
    pub key: Q,
    /// The state of the key in the queue.
    pub state: State,
    /// The lane in which the key is ready, or from which it came while it runs; `None` while it is delayed or
    /// parked.
    pub lane: Option<Lane>,
    /// Number of runs of the key that failed in a row; 0 after a success.
    pub attempts: u32,
    /// How long the key has been in its state. A ready key counts from the election at the earliest.
    pub since: Duration,
    /// How long until a delayed key becomes ready; `None` unless the key is delayed.
    pub next_run: Option<Duration>,
    /// Why the key is parked without having failed; `None` in any other state.
    pub reason: Option<&'static str>,
    /// Error text of the key's latest failure; `None` since a success, and before the first failure.
    pub last_error: Option<Arc<String>>,
    /// How long the last run of the key took; `None` before the first.
    pub last_duration: Option<Duration>,
    /// Why the key runs next, or runs now.
    pub cause: Cause,
}

/// The state of a key in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The key waits for a moment without having failed: its last run requested the delay, or it was added
    /// with one.
    Requeued,
    /// The key failed and waits for its next attempt.
    Backoff,
    /// The key waits for a worker.
    Ready,
    /// A worker runs the key.
    Running,
    /// A worker runs the key, which was added again during the run and so runs once more.
    Dirty,
    /// The key has failed for good or too often, or was set aside for a reason, and waits for an add that
    /// reports a change.
    Parked,
}

// === impl Counts ===

impl Counts {
    /// Returns the number of keys that wait for a worker, in all lanes.
    pub fn ready(&self) -> usize {
        self.ready_live + self.ready_new + self.ready_background + self.ready_retry
    }
}

// === impl KeySnapshot ===

impl<Q> KeySnapshot<Q> {
    /// Returns this snapshot with its key replaced by the result of `form`.
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
    /// All states of a key, in the order in which a key passes through them.
    pub const ALL: [Self; 6] =
        [Self::Requeued, Self::Ready, Self::Running, Self::Dirty, Self::Backoff, Self::Parked];

    /// Returns the name of the state as a lower-case word, for JSON and tables.
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

    /// Appends snapshots of the keys in one chunk of slots, from slot `start` on, to `keys`. Returns the
    /// start of the next chunk; `None` if this was the last one.
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
