//! What a queue holds, as plain data.
//!
//! A failing object is never a mystery: every key is listed with its state, its attempts, its last error and the
//! moment of its next run.

use std::sync::Arc;
use std::time::Duration;

use super::Lane;
use super::clock::Span;
use super::machine::{Inner, Phase};
use super::slots::{ParkedFor, Place, Slot, Why};
use crate::key::{Cause, Key};

/// Slots read per hold of the lock: some tens of microseconds.
pub(super) const CHUNK: u32 = 256;

/// What a queue held when it was looked at.
#[derive(Clone, Debug)]
pub struct Snapshot<Q> {
    /// Name of the queue.
    pub name: Arc<str>,
    /// How many keys are in which state.
    pub counts: Counts,
    /// The keys, in no order. Read a few hundred at a time while the queue goes on, so that a key which left and
    /// came back meanwhile may be listed twice or not at all.
    pub keys: Vec<KeySnapshot<Q>>,
}

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
    /// With a worker, and added meanwhile.
    pub dirty: usize,
    /// Out of the way until something changes; paused ones included.
    pub parked: usize,
    /// Parked without having failed, as the keys of paused objects are.
    pub paused: usize,
    /// How long the oldest ready key has been ready; `None` if none is.
    pub oldest_ready: Option<Duration>,
    /// Workers the shares are counted by.
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
    /// What it does.
    pub state: State,
    /// The lane it is ready in, or came from while it runs; `None` while delayed or parked.
    pub lane: Option<Lane>,
    /// Runs that failed in a row.
    pub attempts: u32,
    /// How long it has been in this state. Being ready counts from the election at the earliest.
    pub since: Duration,
    /// How long until it is ready; `None` unless delayed.
    pub next_run: Option<Duration>,
    /// Why it is parked without having failed; `None` in any other state.
    pub reason: Option<&'static str>,
    /// What the last run failed with; `None` if it succeeded, or there was none.
    pub last_error: Option<Arc<String>>,
    /// How long the last run took; `None` before the first.
    pub last_duration: Option<Duration>,
    /// Why it runs next, or runs now.
    pub cause: Cause,
}

/// In which state a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It waits for a moment without having failed: its last run asked for one, or it was added for later.
    Requeued,
    /// It failed and waits for its next attempt.
    Backoff,
    /// It waits for a worker.
    Ready,
    /// A worker has it.
    Running,
    /// A worker has it, and it was added meanwhile.
    Dirty,
    /// It has failed for good or too often, or was set aside for a reason, and waits for something to change.
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
    /// Puts another form of the key in its place.
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
    /// All states, in the order of a key's life.
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
            oldest_ready: self.lanes.oldest(&self.slots, self.now).map(Span::duration),
            workers: self.workers,
            leading: self.leading,
            shutting_down: self.phase != Phase::Open,
        }
    }

    /// Appends the keys of the slots from `start` on. Returns where to go on, if there are more.
    pub(super) fn list_chunk(&self, start: u32, keys: &mut Vec<KeySnapshot<Q>>) -> Option<u32> {
        let end = start.saturating_add(CHUNK).min(self.slots.end());
        keys.extend((start..end).filter_map(|slot| self.slots.peek(slot)).map(|slot| self.describe(slot)));
        (end < self.slots.end()).then_some(end)
    }

    pub(super) fn describe(&self, slot: &Slot<Q>) -> KeySnapshot<Q> {
        let (mut next_run, mut reason) = (None, None);
        let (state, lane, since) = match &slot.place {
            Place::Delayed { until, since, why, .. } => {
                next_run = Some(until.since(self.now).duration());
                let failed = matches!(why, Why::Backoff | Why::RetryAfter);
                (if failed { State::Backoff } else { State::Requeued }, None, *since)
            }
            Place::Ready { since, lane, .. } => (State::Ready, Some(*lane), (*since).max(self.lanes.epoch)),
            Place::Running(run) => {
                (if run.dirt.is_some() { State::Dirty } else { State::Running }, Some(run.lane), run.since)
            }
            Place::Parked { since, why } => {
                if let ParkedFor::Paused(why) = why {
                    reason = Some(*why);
                }
                (State::Parked, None, *since)
            }
        };
        KeySnapshot {
            key: slot.key.clone(),
            state,
            lane,
            attempts: slot.failures,
            since: self.now.since(since).duration(),
            next_run,
            reason,
            last_error: slot.last_error.clone(),
            last_duration: slot.last_run.map(|micros| Duration::from_micros(u64::from(micros.get()) - 1)),
            cause: slot.cause.clone(),
        }
    }
}

/// Returns how long the runs under way have taken so far: all together, and the longest.
pub(super) fn unfinished<Q: Key>(inner: &Inner<Q>) -> (Duration, Duration) {
    let age = |slot: &u32| match inner.slots.get(*slot).place {
        Place::Running(run) => inner.now.since(run.since),
        _ => Span::default(),
    };
    let ages = inner.running.iter().map(age);
    let (sum, longest) = ages.fold((Span::default(), Span::default()), |(sum, longest), age| {
        (sum.saturating_add(age), longest.max(age))
    });
    (sum.duration(), longest.duration())
}
