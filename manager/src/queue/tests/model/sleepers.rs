//! Callers of `get` without tasks: asleep until a signal or the clock wakes them.
//!
//! They stand for what `WorkQueue::get` awaits: one `Notify` for all, one for whoever holds the timer, and the timer
//! itself. A woken caller may take its time before it looks again, or be cancelled before it does; a call it has not
//! answered then goes to the next one, as `Notify` hands it on.

use super::*;

pub(super) struct Sleepers {
    /// `None` for a caller that is elsewhere.
    pub(super) list: Vec<Option<Sleep>>,
    /// A call that came while nobody slept.
    call: bool,
    /// The same of the timer's.
    ring: bool,
    order: u64,
}

#[derive(Debug)]
pub(super) struct Sleep {
    /// When it looks again by itself.
    pub(super) timer: Option<Moment>,
    called: Option<Callers>,
    rung: bool,
    order: u64,
}

impl Sleepers {
    pub(super) fn new(count: usize) -> Self {
        Self { list: (0..count).map(|_| None).collect(), call: false, ring: false, order: 0 }
    }

    pub(super) fn heed(&mut self, signals: Signals) {
        match signals.callers {
            Callers::Nobody => {}
            Callers::One => self.call_one(),
            Callers::All => {
                for sleep in self.list.iter_mut().flatten() {
                    sleep.called.get_or_insert(Callers::All);
                }
            }
        }
        if signals.timer {
            match self.list.iter_mut().flatten().find(|sleep| sleep.timer.is_some()) {
                Some(holder) => holder.rung = true,
                None => self.ring = true,
            }
        }
    }

    fn call_one(&mut self) {
        let waiting = self.list.iter_mut().flatten().filter(|sleep| sleep.called.is_none());
        match waiting.min_by_key(|sleep| sleep.order) {
            Some(longest) => longest.called = Some(Callers::One),
            None => self.call = true,
        }
    }

    pub(super) fn fall_asleep(&mut self, who: usize, timer: Option<Moment>) {
        self.order += 1;
        let called = std::mem::take(&mut self.call).then_some(Callers::One);
        let rung = timer.is_some() && std::mem::take(&mut self.ring);
        self.list[who] = Some(Sleep { timer, called, rung, order: self.order });
    }

    /// Ends a sleep. A call that did not end it goes on to another caller.
    pub(super) fn end(&mut self, who: usize, by_call: bool) -> Option<Sleep> {
        let sleep = self.list[who].take()?;
        if sleep.called == Some(Callers::One) && !by_call {
            self.call_one();
        }
        Some(sleep)
    }
}

impl Sleep {
    pub(super) fn is_called(&self) -> bool {
        self.called.is_some()
    }

    /// Returns whether it is about to look again.
    pub(super) fn is_woken(&self, now: Moment) -> bool {
        self.is_called() || self.rung || self.timer.is_some_and(|timer| timer <= now)
    }
}
