//! Whom to wake, and when.
//!
//! Callers of `get` that find nothing sleep, and are counted. One of them at most holds the queue's timer. After each
//! operation [`Inner::signals`] says who is concerned: one sleeper if a key may be handed out, who wakes the next one
//! if there is more; the holder of the timer if an earlier moment has come up; everybody at the end.

use super::clock::Moment;
use super::machine::{Inner, Job, Phase};
use crate::key::Key;

/// The answer to a caller of `get`.
#[derive(Debug)]
pub(super) enum Take<Q> {
    Job(Job<Q>),
    /// Nothing to do now. With a moment, the caller has the queue's timer and looks again then.
    Wait(Option<Moment>),
    Closed,
}

/// Whom to wake, once the lock is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signals {
    /// Callers of `get`.
    pub(super) callers: Callers,
    /// The one who has set the timer: an earlier moment has come up.
    pub(super) timer: bool,
    /// Those who wait for room.
    pub(super) room: bool,
    /// Those who wait for the end of a drain.
    pub(super) ended: bool,
}

/// How many callers of `get` to wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Callers {
    #[default]
    Nobody,
    /// Whoever has slept longest.
    One,
    All,
}

// === impl Inner ===

impl<Q: Key> Inner<Q> {
    /// Hands out the next key, or registers the caller as waiting.
    pub(super) fn take(&mut self) -> Take<Q> {
        if self.is_exhausted() {
            return Take::Closed;
        }
        if let Some(job) = self.try_take() {
            return Take::Job(job);
        }
        self.idle += 1;
        let timer = self.next_wake().filter(|_| self.timer.is_none());
        self.timer = self.timer.or(timer);
        Take::Wait(timer)
    }

    /// Unregisters a caller that waited. `timer` says whether it had the queue's timer.
    pub(super) fn leave(&mut self, timer: bool) {
        self.idle -= 1;
        self.called = 0;
        if timer {
            self.timer = None;
        }
    }

    /// Returns whether a source that was refused may come again: half of the depth is free, or nobody cares.
    pub(super) fn has_drained(&mut self) -> bool {
        let most = self.settings.max_depth;
        let drained = self.phase != Phase::Open || most == 0 || self.lanes.len() <= most / 2;
        self.owes_room |= !drained;
        drained
    }

    /// Returns whether a drain is over, or nobody drains.
    pub(super) fn is_drained(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => self.running.is_empty() && self.is_exhausted(),
            Phase::Stopped => true,
        }
    }

    /// Returns whom to wake after what has happened.
    #[inline]
    pub(super) fn signals(&mut self) -> Signals {
        // What a busy queue has to say.
        if self.idle == 0 && !self.owes_room && self.phase == Phase::Open {
            return Signals::default();
        }
        self.whom_to_wake()
    }

    fn whom_to_wake(&mut self) -> Signals {
        let mut signals = Signals { ended: self.is_drained(), ..Signals::default() };
        if self.owes_room && self.has_drained() {
            self.owes_room = false;
            signals.room = true;
        }
        if self.idle == 0 {
            return signals;
        }
        if self.is_exhausted() {
            signals.callers = Callers::All;
        } else if self.called < self.idle.min(self.lanes.len().max(1)) && self.has_work_for_sleeper() {
            // One is enough: whoever takes a key wakes the next one if there is more.
            signals.callers = Callers::One;
            self.called += 1;
        }
        if self.timer.is_some_and(|timer| self.next_wake().is_some_and(|next| next < timer)) {
            // Once: it looks at everything when it wakes, whatever comes up until then.
            signals.timer = true;
            self.timer = Some(Moment::START);
        }
        signals
    }

    /// Returns whether a sleeping caller could take a key, or hold the timer that nobody holds.
    fn has_work_for_sleeper(&self) -> bool {
        self.choose().is_some() || (self.timer.is_none() && self.next_wake().is_some())
    }

    /// Returns whether there is nothing to hand out now or later.
    fn is_exhausted(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            // A dirty key becomes ready when its run ends, and somebody must be there to take it.
            Phase::Draining => !self.leading || (self.lanes.len() == 0 && self.dirty == 0),
            Phase::Stopped => true,
        }
    }

    /// Returns the next moment at which time alone gives a caller of `get` something to do.
    fn next_wake(&self) -> Option<Moment> {
        if !self.leading || self.phase == Phase::Stopped {
            return None;
        }
        if self.sweep.is_some() && self.phase == Phase::Open {
            return Some(self.now);
        }
        let due = self.delays.first().map(|(until, _)| until).filter(|_| self.phase == Phase::Open);
        due.into_iter().chain(self.lanes.next_chance(&self.slots, self.now)).min()
    }
}
