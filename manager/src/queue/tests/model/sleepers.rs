//! Callers of `get` without tasks: asleep until a signal or the clock wakes them.
//!
//! They simulate the futures that `WorkQueue::get` awaits: one `Notify` for all callers, one for the holder
//! of the timer, and the timer itself. A woken caller may be slow to call `take` again, or be cancelled
//! before it does; its unused wake-up then goes to the next caller, as `Notify` passes it on.

use super::*;

pub(super) struct Sleepers {
    /// `None` for a caller that is awake.
    pub(super) list: Vec<Option<Sleep>>,
    /// A wake-up that was sent while no caller slept.
    notified: bool,
    /// The same for the holder of the timer.
    timer_notified: bool,
    order: u64,
}

#[derive(Debug)]
pub(super) struct Sleep {
    /// When it wakes without a signal.
    pub(super) timer: Option<Moment>,
    notified: Option<Callers>,
    timer_notified: bool,
    order: u64,
}

impl Sleepers {
    pub(super) fn new(count: usize) -> Self {
        Self { list: (0..count).map(|_| None).collect(), notified: false, timer_notified: false, order: 0 }
    }

    pub(super) fn wake(&mut self, signals: Signals) {
        match signals.callers {
            Callers::None => {}
            Callers::One => self.wake_one(),
            Callers::All => {
                for sleep in self.list.iter_mut().flatten() {
                    sleep.notified.get_or_insert(Callers::All);
                }
            }
        }
        if signals.timer {
            match self.list.iter_mut().flatten().find(|sleep| sleep.timer.is_some()) {
                Some(holder) => holder.timer_notified = true,
                None => self.timer_notified = true,
            }
        }
    }

    fn wake_one(&mut self) {
        let waiting = self.list.iter_mut().flatten().filter(|sleep| sleep.notified.is_none());
        match waiting.min_by_key(|sleep| sleep.order) {
            Some(longest) => longest.notified = Some(Callers::One),
            None => self.notified = true,
        }
    }

    pub(super) fn fall_asleep(&mut self, caller: usize, timer: Option<Moment>) {
        self.order += 1;
        let notified = std::mem::take(&mut self.notified).then_some(Callers::One);
        let timer_notified = timer.is_some() && std::mem::take(&mut self.timer_notified);
        self.list[caller] = Some(Sleep { timer, notified, timer_notified, order: self.order });
    }

    /// Ends a sleep. Unless the wake-up ended it, the wake-up goes on to another caller.
    pub(super) fn end(&mut self, caller: usize, by_wake: bool) -> Option<Sleep> {
        let sleep = self.list[caller].take()?;
        if sleep.notified == Some(Callers::One) && !by_wake {
            self.wake_one();
        }
        Some(sleep)
    }
}

impl Sleep {
    pub(super) fn is_notified(&self) -> bool {
        self.notified.is_some()
    }

    /// Returns whether it is about to call `take` again.
    pub(super) fn is_woken(&self, now: Moment) -> bool {
        self.is_notified() || self.timer_notified || self.timer.is_some_and(|timer| timer <= now)
    }
}
