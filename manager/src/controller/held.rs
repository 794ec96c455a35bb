//! What a person has paused by hand, in memory: all of a controller, or some of its keys.
//!
//! Where all of it is paused no worker takes a key, so that the queue stays as it is. A paused key is parked when its turn
//! comes. Whoever resumes looks for parked keys after the pause has ended, and whoever parks one asks once more after
//! that: so none is left behind.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::directory::{InterventionError, Target};
use crate::key::Key;

/// What the queue says of a key that is paused so.
pub(super) const BY_HAND: &str = "paused by hand";

/// Pauses that are kept at most, as each is asked for each run.
const MOST: usize = 100;

/// The pauses of one controller.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// All of it.
    whole: watch::Sender<bool>,
    /// Some of its keys.
    some: Mutex<Vec<Target>>,
    /// Whether `some` holds any; written under its lock. Relaxed: the queue's lock, under which a key is parked and parked
    /// ones are looked for, orders it for those for whom that matters.
    any: AtomicBool,
}

// === impl Held ===

impl Held {
    /// Pauses a target. A second pause of one is none.
    pub(super) fn pause(&self, target: &Target) -> Result<(), InterventionError> {
        if target.is_all() {
            self.whole.send_replace(true);
            return Ok(());
        }
        let mut some = self.some.lock();
        if !some.contains(target) {
            if some.len() == MOST {
                return Err(InterventionError::TooMany { limit: MOST });
            }
            some.push(target.clone());
            self.any.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the pause of a target; that of all ends every other one too. Returns whether there was any.
    pub(super) fn resume(&self, target: &Target) -> bool {
        let mut some = self.some.lock();
        let before = some.len();
        some.retain(|paused| !target.is_all() && paused != target);
        let fewer = some.len() < before;
        self.any.store(!some.is_empty(), Ordering::Relaxed);
        drop(some);
        let whole = target.is_all() && self.whole.send_replace(false);
        fewer || whole
    }

    /// Returns whether a key is paused, be it as one of all.
    #[inline]
    pub(super) fn holds(&self, key: &impl Key) -> bool {
        self.any.load(Ordering::Relaxed) && self.some.lock().iter().any(|paused| paused.admits(key))
    }

    /// Returns whether all of the controller is paused, and every change of it.
    pub(super) fn whole(&self) -> watch::Receiver<bool> {
        self.whole.subscribe()
    }

    pub(super) fn all(&self) -> Vec<Target> {
        let whole = self.whole.borrow().then(Target::default);
        whole.into_iter().chain(self.some.lock().iter().cloned()).collect()
    }
}
