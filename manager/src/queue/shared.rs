//! The lock of a queue, its clock, and the tasks that wait on it.
//!
//! The state machine behind the lock has no clock and no task. Here each operation passes it the time, and
//! sends the wake-ups that its [`Signals`] name once the lock is released.

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

/// The data that all clones of a queue share.
pub(super) struct Shared<Q: Key> {
    pub(super) name: Arc<str>,
    /// The instant at which the queue was made: moment zero of its clock.
    start: Instant,
    inner: Mutex<Inner<Q>>,
    /// Wakes sleeping callers of `get`: one when a key may be handed out or the timer has no holder, all when
    /// the queue is shut down.
    work: Notify,
    /// Wakes the caller of `get` that holds the queue's timer, when an earlier moment than that of the timer
    /// has come up.
    timer: Notify,
    /// Wakes all sources that wait for room in the full queue.
    pub(super) room: Notify,
    /// Wakes all callers that wait for the end of the queue's drain.
    pub(super) ended: Notify,
}

/// A caller of `get`, as the machine counts it: awake or asleep. Unregisters itself when the caller is
/// cancelled.
struct Caller<'a, Q: Key> {
    shared: &'a Shared<Q>,
    /// Whether this sleeping caller holds the queue's timer; `None` while the caller is awake.
    asleep: Option<bool>,
}

// === impl Shared ===

impl<Q: Key> Shared<Q> {
    pub(super) fn new(name: &str, settings: QueueSettings, workers: usize) -> Self {
        Self {
            name: name.into(),
            start: Instant::now(),
            inner: Mutex::new(Inner::new(settings, workers, fastrand::Rng::new())),
            work: Notify::new(),
            timer: Notify::new(),
            room: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Runs an operation under the queue's lock, at the present time, and then sends the resulting wake-ups.
    #[inline]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Inner<Q>) -> R) -> R {
        let now = self.now();
        let mut inner = self.inner.lock();
        inner.advance(now);
        let answer = act(&mut inner);
        let (signals, unused) = (inner.signals(), inner.slots.pages.take_unused());
        drop(inner);
        drop(unused);
        if signals != Signals::default() {
            self.send(signals);
        }
        answer
    }

    /// Takes the next key, and sleeps until there is one. Returns `None` once the queue hands out no more
    /// keys.
    pub(super) async fn wait(self: &Arc<Self>) -> Option<Running<Q>> {
        let mut caller = Caller { shared: self, asleep: None };
        loop {
            // Created before the call, so that a shutdown between the call and the sleep still wakes it.
            let woken = self.work.notified();
            match caller.take() {
                Take::Job(job) => return Some(Running::new(Arc::clone(self), job)),
                Take::Closed => return None,
                Take::Wait(None) => woken.await,
                // More keys are due than one hold of the lock moves: let other tasks run, then continue.
                Take::Wait(Some(moment)) if moment <= self.now() => yield_now().await,
                // No bias needed: after any of the three the caller calls `take` again.
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
        tracing::trace!(queue = &*self.name, "workers woken");
        match signals.callers {
            Callers::None => {}
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
        Moment::START.after(Instant::now().saturating_duration_since(self.start))
    }

    /// Converts a moment of the queue's clock into an instant. A moment beyond the range of an instant
    /// becomes one a century away.
    fn instant(&self, moment: Moment) -> Instant {
        const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
        self.start.checked_add(moment - Moment::START).unwrap_or_else(|| self.start + CENTURY)
    }
}

impl<Q: Key> Observed for Shared<Q> {
    fn read(&self) -> Reading {
        self.with(|inner| Reading::of(Arc::clone(&self.name), inner))
    }
}

// === impl Caller ===

impl<Q: Key> Caller<'_, Q> {
    /// Takes the next key of the queue for this caller, or registers the caller as asleep.
    fn take(&mut self) -> Take<Q> {
        let Self { shared, asleep } = self;
        shared.with(|inner| {
            if let Some(timer) = asleep.take() {
                inner.leave(timer);
            }
            let take = inner.take();
            if let Take::Wait(moment) = &take {
                *asleep = Some(moment.is_some());
            }
            take
        })
    }
}

impl<Q: Key> Drop for Caller<'_, Q> {
    fn drop(&mut self) {
        if let Some(timer) = self.asleep {
            self.shared.with(|inner| inner.leave(timer));
        }
    }
}
