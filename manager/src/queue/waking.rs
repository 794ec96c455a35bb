//! Which sleeping callers to wake, and when.
//!
//! A caller of `get` that finds no key sleeps, and is counted. At most one of them holds the queue's timer.
//! After each operation [`Inner::signals`] returns the wake-ups to send: one to a sleeping caller if a key
//! may be handed out, and this caller wakes the next one if there are more keys; one to the holder of the
//! timer if an earlier moment has come up; one to every caller at the end.

use super::clock::Moment;
use super::machine::{Inner, Job, Phase};
use crate::key::Key;

/// The answer of the queue to a caller of `get` that wants a key.
#[derive(Debug)]
pub(super) enum Take<Q> {
    Job(Job<Q>),
    /// No key may be handed out now, so the caller sleeps. With a moment, the caller holds the queue's timer
    /// and calls again then.
    Wait(Option<Moment>),
    /// The queue is shut down: no key will be handed out any more.
    Closed,
}

/// The wake-ups to send after a queue operation, once the queue's lock is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signals {
    /// How many sleeping callers of `get` to wake.
    pub(super) callers: Callers,
    /// Whether to wake the caller that holds the queue's timer: an earlier moment has come up.
    pub(super) timer: bool,
    /// Whether to wake all sources that wait for room in the queue.
    pub(super) room: bool,
    /// Whether to wake all callers that wait for the end of the queue's drain.
    pub(super) ended: bool,
}

/// The number of sleeping callers of `get` to wake: none, one or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Callers {
    #[default]
    None,
    /// Wake one caller, the one that has slept longest.
    One,
    All,
}

// === impl Inner ===

impl<Q: Key> Inner<Q> {
    /// Hands out the next key to a caller of `get`, or registers the caller as asleep.
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

    /// Unregisters a caller of `get` that slept; `timer` is whether it also held the queue's timer.
    pub(super) fn leave(&mut self, timer: bool) {
        self.idle -= 1;
        self.notified = 0;
        if timer {
            self.timer = None;
        }
    }

    /// Returns whether a source with refused adds may add again: at most half of the depth is used, there is
    /// no limit any more, or the queue shuts down. If not, the room signal is sent once there is room.
    pub(super) fn has_room(&mut self) -> bool {
        let most = self.settings.max_depth;
        let room = self.phase != Phase::Open || most == 0 || self.lanes.len() <= most / 2;
        self.room_wanted |= !room;
        room
    }

    /// Returns whether the queue's drain has ended: no key runs or will be handed out any more, or the queue
    /// was stopped.
    pub(super) fn is_drained(&self) -> bool {
        self.phase == Phase::Stopped || (self.running.is_empty() && self.is_exhausted())
    }

    /// Returns the wake-ups to send after a queue operation.
    #[inline]
    pub(super) fn signals(&mut self) -> Signals {
        // The usual case of a busy queue.
        if self.idle == 0 && !self.room_wanted && self.phase == Phase::Open {
            return Signals::default();
        }
        self.find_signals()
    }

    fn find_signals(&mut self) -> Signals {
        let mut signals = Signals { ended: self.is_drained(), ..Signals::default() };
        if self.room_wanted && self.has_room() {
            self.room_wanted = false;
            signals.room = true;
        }
        if self.idle == 0 {
            return signals;
        }
        if self.is_exhausted() {
            signals.callers = Callers::All;
        } else if self.notified < self.idle.min(self.lanes.len().max(1)) && self.has_work_for_sleeper() {
            // One is enough: a caller that takes a key wakes the next one if there are more.
            signals.callers = Callers::One;
            self.notified += 1;
        }
        if self.timer.is_some_and(|timer| self.next_wake().is_some_and(|next| next < timer)) {
            // Once: the caller sees the whole queue when it wakes, with all that has happened until then.
            signals.timer = true;
            self.timer = Some(Moment::START);
        }
        signals
    }

    /// Returns whether a sleeping caller of `get` could take a key, or hold the timer that no caller holds.
    fn has_work_for_sleeper(&self) -> bool {
        self.choose().is_some() || (self.timer.is_none() && self.next_wake().is_some())
    }

    /// Returns whether the queue hands out no more keys, now or later.
    fn is_exhausted(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            // A dirty key becomes ready when its run ends, and then needs a caller.
            Phase::Draining => !self.leading || (self.lanes.len() == 0 && self.dirty == 0),
            Phase::Stopped => true,
        }
    }

    /// Returns the next moment at which time alone gives work to a caller of `get`, such as the end of a
    /// delay; `None` if there is none.
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
