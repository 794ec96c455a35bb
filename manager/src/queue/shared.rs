//! The lock of a queue, its clock, and whoever waits on it.
//!
//! The machine behind the lock knows no clock and no task. Here it is told the time, its answer is taken, and those
//! whom its [`Signals`] name are woken once the lock is released.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::clock::Moment;
use super::machine::Inner;
use super::metrics::{Observed, Reading};
use super::waking::{Callers, Signals, Take};
use super::{QueueSettings, Running};
use crate::key::Key;

/// What the clones of a queue share.
pub(super) struct Shared<Q: Key> {
    pub(super) name: Arc<str>,
    /// Moment zero of the machine's clock.
    start: Instant,
    inner: Mutex<Inner<Q>>,
    /// Wakes callers of `get`: one when a key may be handed out or the timer has no holder, all at the end.
    work: Notify,
    /// Wakes the caller that holds the timer, when an earlier moment has come up.
    timer: Notify,
    /// Wakes those who wait for room.
    pub(super) room: Notify,
    /// Wakes those who wait for the end of a drain.
    pub(super) ended: Notify,
}

/// A caller of `get`, as the machine counts it: asleep or not. Leaves when the caller is cancelled.
struct Caller<'a, Q: Key> {
    shared: &'a Shared<Q>,
    asleep: bool,
    /// It holds the queue's timer.
    timer: bool,
}

// === impl Shared ===

impl<Q: Key> Shared<Q> {
    pub(super) fn new(name: &str, settings: QueueSettings, workers: usize, random: fastrand::Rng) -> Self {
        Self {
            name: name.into(),
            start: Instant::now(),
            inner: Mutex::new(Inner::new(settings, workers, random)),
            work: Notify::new(),
            timer: Notify::new(),
            room: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Does one thing to the queue under its lock, at the present time, and then wakes whom it concerns.
    #[inline]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Inner<Q>) -> R) -> R {
        let now = self.now();
        let mut inner = self.inner.lock();
        inner.advance(now);
        let answer = act(&mut inner);
        let (signals, emptied) = (inner.signals(), inner.slots.take_emptied());
        drop(inner);
        drop(emptied);
        if signals != Signals::default() {
            self.send(signals);
        }
        answer
    }

    /// Takes a key, or sleeps until there is one. `None` once there will be none any more.
    pub(super) async fn wait(self: &Arc<Self>) -> Option<Running<Q>> {
        let mut caller = Caller { shared: self, asleep: false, timer: false };
        loop {
            // Made before looking, so that a shutdown between looking and sleeping still wakes it.
            let woken = self.work.notified();
            match caller.take() {
                Take::Job(job) => return Some(Running::new(Arc::clone(self), job)),
                Take::Closed => return None,
                Take::Wait(None) => woken.await,
                // More keys are due than one hold of the lock moves on: everybody else in between, and on with it.
                Take::Wait(Some(moment)) if moment <= self.now() => yield_now().await,
                // No bias needed: whatever wakes the caller, it looks at everything again.
                Take::Wait(Some(moment)) => tokio::select! {
                    () = woken => {}
                    () = self.timer.notified() => {}
                    () = sleep_until(self.instant(moment)) => {}
                },
            }
        }
    }

    #[inline(never)]
    fn send(&self, signals: Signals) {
        match signals.callers {
            Callers::Nobody => {}
            Callers::One => self.work.notify_one(),
            Callers::All => self.work.notify_waiters(),
        }
        if signals.timer {
            self.timer.notify_one();
        }
        if signals.room {
            self.room.notify_waiters();
        }
        if signals.ended {
            self.ended.notify_waiters();
        }
    }

    #[inline]
    fn now(&self) -> Moment {
        Moment::new(Instant::now().saturating_duration_since(self.start))
    }

    /// Returns the instant of a moment. One beyond what an instant can hold is as good as a century away.
    fn instant(&self, moment: Moment) -> Instant {
        const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
        self.start.checked_add(moment.since_start()).unwrap_or_else(|| self.start + CENTURY)
    }
}

impl<Q: Key> Observed for Shared<Q> {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self) -> Reading {
        self.with(|inner| Reading::of(inner))
    }
}

// === impl Caller ===

impl<Q: Key> Caller<'_, Q> {
    /// Takes a key, or falls asleep.
    fn take(&mut self) -> Take<Q> {
        let Self { shared, asleep, timer } = self;
        shared.with(|inner| {
            if std::mem::take(asleep) {
                inner.leave(std::mem::take(timer));
            }
            let take = inner.take();
            if let Take::Wait(moment) = &take {
                *asleep = true;
                *timer = moment.is_some();
            }
            take
        })
    }
}

impl<Q: Key> Drop for Caller<'_, Q> {
    fn drop(&mut self) {
        if self.asleep {
            self.shared.with(|inner| inner.leave(self.timer));
        }
    }
}
