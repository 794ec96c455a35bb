//! A clock that a test moves forward.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Clock;

/// The distance of a server's clock from the clock of its options; clones share it.
#[derive(Clone, Default)]
pub struct Shift {
    /// In nanoseconds, enough for 292 years. No other memory depends on it, so `Relaxed` is enough.
    distance: Arc<AtomicI64>,
}

// === impl Shift ===

impl Shift {
    /// Returns a clock that is ahead of `clock` by this distance.
    pub fn over(&self, clock: Clock) -> Clock {
        let distance = Arc::clone(&self.distance);
        Arc::new(move || {
            let time = clock();
            match distance.load(Ordering::Relaxed) {
                0 => time,
                ahead => time.checked_add(SignedDuration::from_nanos(ahead)).unwrap_or(Timestamp::MAX),
            }
        })
    }

    /// Increases the distance.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        // Never fails, because the function always returns a value.
        _ = self
            .distance
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ahead| Some(ahead.saturating_add(by)));
    }
}

impl fmt::Debug for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shift").field(&self.distance).finish()
    }
}
