//! What happens to a key: the states of the queue, and the events that move a key between them.
//!
//! No clock, no task, no waiter in here: time is passed in by [`Inner::advance`], chance comes from a seeded source,
//! and whom to wake is answered by `waking`, so that a test can drive the whole queue step by step. Everything here
//! runs under the queue's one lock. How one key gets from place to place is in `moves`.
//!
//! One rule replaces most of a table: **an add while its key runs is the same add right after the run**. A success
//! leaves the key absent, so any add makes it ready again; a failure leaves it in backoff, which only a strong add
//! ends; and so on. `the_table_of_states_and_events` in the tests prints what follows.
//!
//! # Invariants
//! 1. A key is in exactly one place: delayed and in the tree of deadlines, ready and in its lane and in the list by age, running
//!    and in the list of running keys, or parked.
//! 2. The list by age is ordered: due keys become ready before anything else happens at a later time.
//! 3. While the queue drains nothing becomes ready except dirty keys, so that draining ends.

use std::time::Duration;

use super::clock::{Moment, Span};
use super::delays::Delays;
use super::lanes::{Choice, Lanes};
use super::metrics::{Retries, Spread};
use super::slots::{Dirt, ParkedFor, Place, Run, Slots, Why};
use super::{Add, Added, Band, QueueSettings, Retried};
use crate::key::{Cause, Key};

/// Keys that one lock hold moves on at most, besides the one it is about: some tens of microseconds.
pub(super) const SLICE: u32 = 64;

/// What a run that was dropped without an outcome is said to have failed with.
const DROPPED: &str = "the run ended without an outcome: it panicked or was cancelled";

/// The queue behind its lock.
#[derive(Debug)]
pub(super) struct Inner<Q> {
    pub(super) slots: Slots<Q>,
    pub(super) delays: Delays,
    pub(super) lanes: Lanes,
    /// Slots of the running keys, in no order.
    pub(super) running: Vec<u32>,
    /// How many of them are dirty.
    pub(super) dirty: usize,
    pub(super) parked: usize,
    /// How many of the parked keys have not failed.
    pub(super) paused: usize,
    pub(super) settings: QueueSettings,
    pub(super) workers: usize,
    pub(super) random: fastrand::Rng,
    pub(super) now: Moment,
    pub(super) leading: bool,
    pub(super) phase: Phase,
    /// A change of policy that keys which wait already have yet to learn of.
    pub(super) sweep: Option<Sweep>,
    /// A background add was refused, or a source waits: tell when there is room again.
    pub(super) owes_room: bool,
    /// Callers of `get` that sleep.
    pub(super) idle: usize,
    /// How often one of them has been called since the last one woke. Whoever wakes looks at everything, so nobody
    /// need be called again for a key that those called will find.
    pub(super) called: usize,
    /// The moment for which one of them has set the queue's timer, `START` once it has been told to look earlier;
    /// `None` if none has.
    pub(super) timer: Option<Moment>,
    pub(super) tally: Tally,
}

/// How far the slots have been looked through for what a new policy shortens or frees.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// Backoffs that began later know the new policy.
    changed: Moment,
    next: u32,
}

/// How far the queue has come in shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// No adds; what is ready or dirty is still handed out.
    Draining,
    /// Nothing is handed out any more.
    Stopped,
}

/// What the metrics count up.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Keys that became ready or dirty, once per time.
    pub(super) adds: u64,
    /// Failures that were put on a backoff.
    pub(super) retries: Retries,
    /// From ready to running.
    pub(super) queued: Spread,
    /// From running to an outcome.
    pub(super) worked: Spread,
}

/// A key that was handed out.
#[derive(Debug)]
pub(super) struct Job<Q> {
    pub(super) slot: u32,
    pub(super) key: Q,
    pub(super) cause: Cause,
    /// 1 for the first attempt, one more for each failure in a row.
    pub(super) attempt: u32,
    pub(super) queued_for: Span,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    Done,
    RequeueAfter(Duration),
    /// It failed.
    Failed(&'a str, Next),
    /// It did not happen.
    PutBack,
    /// It did not happen, and is not to until something changes.
    Park(&'static str),
    /// Its guard was dropped: a failure, unless the queue shuts down or this replica does not lead.
    Dropped,
}

/// What a failure asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another attempt when the policy says.
    Backoff,
    /// Another attempt when the policy says, and not before this time, which a server asked for.
    NotBefore(Duration),
    /// Another attempt after this time.
    After(Duration),
    /// None until something changes.
    Never,
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
            owes_room: false,
            idle: 0,
            called: 0,
            timer: None,
            tally: Tally::default(),
        }
    }

    // --- commands; each comes after an `advance` ---

    /// Lets time pass: keys whose wait is over become ready. Of very many the rest follows with the next commands, and
    /// until then [`Self::next_wake`] has come already.
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
            self.sweep_on();
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

    /// Adds a key, or tells one that is already there.
    #[inline]
    pub(super) fn add(&mut self, key: Q, add: Add) -> Added {
        if self.phase != Phase::Open {
            return Added::ShuttingDown;
        }
        let until = add.after.filter(|wait| !wait.is_zero()).map(|wait| self.now.after(wait));
        let dirt = Dirt { strength: add.strength, band: add.band, new_generation: add.new_generation };
        let hash = self.slots.hash(&key);
        let added = if let Some(slot) = self.slots.find_hashed(hash, &key) {
            self.tell(slot, dirt, until, add.cause)
        } else if add.band == Band::Background && !self.takes_background() {
            self.owes_room = true;
            Added::Refused
        } else {
            let slot = self.slots.insert(hash, key, add.cause);
            self.queue_up(slot, dirt.band, until)
        };
        if matches!(added, Added::Queued | Added::Dirtied) {
            self.tally.adds += 1;
        }
        added
    }

    /// Hands out the next key, if there is one.
    #[inline]
    pub(super) fn try_take(&mut self) -> Option<Job<Q>> {
        self.choose().map(|choice| self.hand_out(choice))
    }

    /// Ends the run of a key, which had this cause. Returns what becomes of it; of interest after a failure.
    #[inline]
    pub(super) fn finish(&mut self, slot: u32, cause: &Cause, outcome: Outcome<'_>) -> Retried {
        let Place::Running(run) = self.slots.get(slot).place else { return Retried::Parked };
        self.end_run(run);
        if matches!(outcome, Outcome::Done) && run.dirt.is_none() && run.again.is_none() {
            self.tally.worked.observe(self.now.since(run.since));
            self.slots.remove(slot);
            return Retried::After(Duration::ZERO);
        }
        self.go_on(slot, run, cause, outcome)
    }

    /// Finds the next place of a key whose run has ended.
    #[inline(never)]
    fn go_on(&mut self, slot: u32, run: Run, cause: &Cause, outcome: Outcome<'_>) -> Retried {
        let outcome = match outcome {
            Outcome::Dropped if self.phase == Phase::Open && self.leading => {
                Outcome::Failed(DROPPED, Next::Backoff)
            }
            Outcome::Dropped => Outcome::PutBack,
            told => told,
        };
        // The slot holds the cause of the next run, which is another one if the key is dirty.
        let news = std::mem::replace(&mut self.slots.get_mut(slot).cause, cause.clone());
        match outcome {
            // A wait without end, which the add during the run is about to end or to shorten.
            Outcome::Done => self.succeed(slot, run, Duration::MAX),
            Outcome::RequeueAfter(wait) => self.succeed(slot, run, wait),
            Outcome::Failed(error, next) => self.fail(slot, run, error, next),
            // Due at once, and yet not ready: a drain hands out nothing twice.
            Outcome::PutBack if self.phase == Phase::Draining => self.delay(slot, self.now, run.lane.why()),
            // A drop has become one of the others above.
            Outcome::PutBack | Outcome::Dropped => self.lanes.push(&mut self.slots, slot, run.lane, self.now),
            Outcome::Park(why) => self.park(slot, ParkedFor::Paused(why)),
        }
        if let Some(dirt) = run.again {
            // Its moment may have passed during the run: then it comes right after, and is ready since now.
            self.tell(slot, dirt, Some(run.again_at.max(self.now)), news.clone());
        }
        if let Some(dirt) = run.dirt {
            self.tell(slot, dirt, None, news);
        }
        self.advance(self.now);
        match self.slots.get(slot).place {
            Place::Parked { .. } => Retried::Parked,
            Place::Delayed { until, .. } => Retried::After(until.since(self.now).duration()),
            Place::Ready { .. } | Place::Running(_) => Retried::After(Duration::ZERO),
        }
    }

    /// Forgets the failures of a key. A parked key has nothing left to be parked for, and goes.
    pub(super) fn forget(&mut self, key: &Q) {
        let Some(number) = self.slots.find(key) else { return };
        let slot = self.slots.get_mut(number);
        slot.failures = 0;
        slot.last_error = None;
        if let Place::Parked { why, .. } = slot.place {
            self.unpark(why);
            self.slots.remove(number);
        }
    }

    /// Puts other settings in force, for keys that wait already too.
    pub(super) fn reconfigure(&mut self, settings: QueueSettings, workers: usize) {
        self.lanes.reconfigure(&settings, workers, self.now);
        let retry = (&settings.retry, &self.settings.retry);
        let changed = retry.0.delay != retry.1.delay || retry.0.max_attempts != retry.1.max_attempts;
        self.settings = settings;
        self.workers = workers;
        if changed {
            self.sweep = Some(Sweep { changed: self.now, next: 0 });
            self.advance(self.now);
        }
    }

    /// Tells the next slice of the slots of a new policy: a key that waits for a quarter of an hour must not keep
    /// doing so once the maximum is ten seconds, and one that was out of attempts is not once there are more.
    fn sweep_on(&mut self) {
        let Some(Sweep { changed, next }) = self.sweep else { return };
        let end = next.saturating_add(SLICE).min(self.slots.end());
        for number in next..end {
            let Some(slot) = self.slots.peek(number) else { continue };
            let (failures, retry) = (slot.failures, &self.settings.retry);
            let mut until = || changed.after(retry.delay(failures.saturating_sub(1), self.random.f64()));
            match slot.place {
                Place::Delayed { why: Why::Backoff, since, .. } if since <= changed => {
                    let until = until();
                    self.delays.shorten(&mut self.slots, number, until);
                }
                Place::Parked { why: ParkedFor::Spent, .. } if !retry.is_spent(failures) => {
                    let until = until();
                    self.unpark(ParkedFor::Spent);
                    self.tally.retries.count(failures);
                    self.delay(number, until, Why::Backoff);
                }
                _ => {}
            }
        }
        self.sweep = (end < self.slots.end()).then_some(Sweep { changed, next: end });
    }

    pub(super) fn set_leading(&mut self, leading: bool) {
        if leading && !self.leading {
            self.lanes.epoch = self.now;
        }
        self.leading = leading;
    }

    pub(super) fn shut_down(&mut self, phase: Phase) {
        // A drain that has become a stop stays one.
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
        if self.leading && self.phase != Phase::Stopped {
            self.lanes.choose(&self.slots, self.now)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
