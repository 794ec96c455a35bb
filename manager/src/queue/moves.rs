//! How one key gets from one place to the next.
//!
//! Each function here leaves the key in exactly one place and every list and count in step; the ones that take a key
//! out of its place say so, and are called only by those that put it into another right away.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Moment;
use super::lanes::Choice;
use super::machine::{Inner, Job, Next};
use super::slots::{Dirt, Micros, ParkedFor, Place, Run, Why};
use super::{Added, Band, Lane, Strength};
use crate::key::{Cause, Key, Trigger};

/// Longest error text that is kept per key, in bytes; what is cut off stands in the log.
const MAX_ERROR_BYTES: usize = 1024;

// === impl Inner ===

impl<Q: Key> Inner<Q> {
    /// Makes a delayed key ready whose wait was over at `until`.
    pub(super) fn come_due(&mut self, slot: u32, until: Moment) {
        let why = self.end_delay(slot);
        let cause = &mut self.slots.get_mut(slot).cause;
        match why {
            // The object of the first cause stays: it tells what the row of failures began with.
            Why::Backoff | Why::RetryAfter => cause.trigger = Trigger::Retried,
            Why::Requeue => *cause = Cause::bare(Trigger::Requeued),
            Why::Added(_) => {}
        }
        self.lanes.push(&mut self.slots, slot, Lane::after(why), until);
        self.tally.adds += 1;
    }

    #[inline]
    pub(super) fn hand_out(&mut self, choice: Choice) -> Job<Q> {
        let slot = choice.slot;
        // Before anything is changed: a `Clone` of the user's that panics must not leave the key running for ever.
        let entry = self.slots.get(slot);
        let (key, cause) = (entry.key.clone(), entry.cause.clone());
        let attempt = entry.failures.saturating_add(1);
        let (lane, queued_for) = self.lanes.take(&mut self.slots, choice, self.now);
        self.tally.queued.observe(queued_for);
        let index = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        self.running.push(slot);
        self.slots.get_mut(slot).place = Place::Running(Run {
            since: self.now,
            index,
            lane,
            as_retry: choice.as_retry,
            dirt: None,
            again: None,
            again_at: Moment::NEVER,
        });
        Job { slot, key, cause, attempt, queued_for }
    }

    /// Takes a key out of the running ones. Its next place is up to the caller.
    #[inline]
    pub(super) fn end_run(&mut self, run: Run) {
        self.running.swap_remove(run.index as usize);
        if let Some(moved) = self.running.get(run.index as usize)
            && let Place::Running(other) = &mut self.slots.get_mut(*moved).place
        {
            other.index = run.index;
        }
        self.lanes.running_retries -= usize::from(run.as_retry);
        self.dirty -= usize::from(run.dirt.is_some());
    }

    /// Notes that a run has happened, whatever came out.
    pub(super) fn ran(&mut self, slot: u32, run: Run) {
        let took = self.now.since(run.since);
        self.tally.worked.observe(took);
        let micros = u32::try_from(took.nanos() / 1000).unwrap_or(u32::MAX);
        self.slots.get_mut(slot).last_run = Micros::new(micros.saturating_add(1));
    }

    pub(super) fn succeed(&mut self, slot: u32, run: Run, wait: Duration) {
        self.ran(slot, run);
        let entry = self.slots.get_mut(slot);
        entry.failures = 0;
        entry.last_error = None;
        self.delay(slot, self.now.after(wait), Why::Requeue);
    }

    pub(super) fn fail(&mut self, slot: u32, run: Run, error: &str, next: Next) {
        self.ran(slot, run);
        let entry = self.slots.get_mut(slot);
        let earlier = entry.failures;
        entry.failures = earlier.saturating_add(1);
        let error = &error[..error.floor_char_boundary(MAX_ERROR_BYTES)];
        if entry.last_error.as_deref().is_none_or(|last| last != error) {
            entry.last_error = Some(Arc::new(error.to_owned()));
        }
        let policy = &self.settings.retry;
        let spent = policy.is_spent(entry.failures);
        let (wait, why) = match next {
            Next::Never => return self.park(slot, ParkedFor::Terminal),
            _ if spent => return self.park(slot, ParkedFor::Spent),
            Next::Backoff => (policy.delay(earlier, self.random.f64()), Why::Backoff),
            Next::NotBefore(asked) => {
                let chance = self.random.f64();
                let (own, asked) = (policy.delay(earlier, chance), policy.asked(asked, chance));
                if asked > own { (asked, Why::RetryAfter) } else { (own, Why::Backoff) }
            }
            Next::After(wait) => (wait, Why::RetryAfter),
        };
        self.tally.retries.count(earlier.saturating_add(1));
        self.delay(slot, self.now.after(wait), why);
    }

    /// Tells a key that is there of an add.
    pub(super) fn tell(&mut self, slot: u32, dirt: Dirt, until: Option<Moment>, cause: Cause) -> Added {
        let entry = self.slots.get_mut(slot);
        // What a new generation asks for was never tried, so it also ends what the old one failed at.
        let strong = dirt.strength == Strength::Strong || dirt.new_generation;
        if dirt.new_generation && !matches!(entry.place, Place::Running(_)) {
            entry.failures = 0;
        }
        match &mut entry.place {
            Place::Running(run) => {
                // What is to run at once runs before what is to run later, and its cause is the next run's.
                let comes_next = until.is_none() || run.dirt.is_none();
                let (noted, added) = match until {
                    Some(until) => {
                        run.again_at = run.again_at.min(until);
                        (&mut run.again, Added::Delayed)
                    }
                    None if run.dirt.is_some() => (&mut run.dirt, Added::Merged),
                    None => {
                        self.dirty += 1;
                        (&mut run.dirt, Added::Dirtied)
                    }
                };
                // The cause of the next run is the first one, unless a strong one follows weak ones.
                let news = comes_next && noted.is_none_or(|noted| noted.strength < dirt.strength);
                *noted = Some(noted.map_or(dirt, |noted| noted.merge(dirt)));
                if news {
                    entry.cause = cause;
                }
                added
            }
            Place::Ready { lane, .. } => {
                let (from, to) = (*lane, lane.raised(dirt.band, strong));
                if until.is_none() && from != to {
                    entry.cause = cause;
                    self.lanes.change(&mut self.slots, slot, from, to);
                }
                Added::Merged
            }
            Place::Delayed { why: Why::Backoff | Why::RetryAfter, .. } | Place::Parked { .. } if !strong => {
                Added::Kept
            }
            Place::Delayed { until: earlier, .. } if until.is_some_and(|until| until >= *earlier) => {
                Added::Merged
            }
            Place::Delayed { why, .. } => {
                let failed = matches!(why, Why::Backoff | Why::RetryAfter) && entry.failures > 0;
                if let Some(until) = until.filter(|_| failed) {
                    // It goes on waiting as one that failed, only not as long: as an ordinary wait, the rest of it
                    // would end with the next weak add.
                    self.delays.shorten(&mut self.slots, slot, until);
                    return Added::Delayed;
                }
                entry.cause = cause;
                self.end_delay(slot);
                self.queue_up(slot, dirt.band, until)
            }
            Place::Parked { why, .. } => {
                let why = *why;
                entry.cause = cause;
                self.unpark(why);
                self.queue_up(slot, dirt.band, until)
            }
        }
    }

    /// Makes a key that is nowhere ready, or delays it.
    #[inline]
    pub(super) fn queue_up(&mut self, slot: u32, band: Band, until: Option<Moment>) -> Added {
        if let Some(until) = until {
            self.delay(slot, until, Why::Added(band));
            Added::Delayed
        } else {
            self.lanes.push(&mut self.slots, slot, Lane::of(band), self.now);
            Added::Queued
        }
    }

    pub(super) fn park(&mut self, slot: u32, why: ParkedFor) {
        self.slots.get_mut(slot).place = Place::Parked { since: self.now, why };
        self.parked += 1;
        self.paused += usize::from(matches!(why, ParkedFor::Paused(_)));
    }

    /// Takes a key out of the parked ones. Its next place is up to the caller.
    pub(super) fn unpark(&mut self, why: ParkedFor) {
        self.parked -= 1;
        self.paused -= usize::from(matches!(why, ParkedFor::Paused(_)));
    }

    pub(super) fn delay(&mut self, slot: u32, until: Moment, why: Why) {
        self.delays.push(&mut self.slots, slot, self.now, until, why);
    }

    /// Takes a key out of the delayed ones. Its next place is up to the caller.
    pub(super) fn end_delay(&mut self, slot: u32) -> Why {
        self.delays.remove(&self.slots, slot)
    }
}

// === impl Lane ===

impl Lane {
    /// Returns the lane of a first add.
    pub(super) fn of(band: Band) -> Self {
        match band {
            Band::Live => Self::Live,
            Band::New => Self::New,
            Band::Background => Self::Background,
        }
    }

    /// Returns the lane of a key whose wait is over.
    pub(super) fn after(why: Why) -> Self {
        match why {
            Why::Backoff | Why::RetryAfter => Self::Retry,
            // The reconciler asked for this moment, so it does not queue up behind an initial list.
            Why::Requeue => Self::Live,
            Why::Added(band) => Self::of(band),
        }
    }

    /// Returns why a key of this lane would wait, so that it comes back to it.
    pub(super) fn why(self) -> Why {
        match self {
            Self::Live => Why::Added(Band::Live),
            Self::New => Why::Added(Band::New),
            Self::Background => Why::Added(Band::Background),
            Self::Retry => Why::Backoff,
        }
    }

    /// Returns where a ready key belongs after an add. A weak one does not make a retry fresh.
    pub(super) fn raised(self, band: Band, strong: bool) -> Self {
        match (self, band) {
            (Self::Retry, _) if strong => Self::of(band),
            (Self::Background, Band::New) => Self::New,
            (Self::Background | Self::New, Band::Live) => Self::Live,
            _ => self,
        }
    }
}
