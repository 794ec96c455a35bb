//! How long a reflector waits after another failure in a row.

use std::time::Duration;

/// The first wait: client-go's, long enough for a restarting API server to be back.
const BASE: Duration = Duration::from_millis(800);
/// No wait is this long; the longest are 20 s and half as much again.
const MAX: Duration = Duration::from_secs(30);

/// Doubling waits with jitter, from 0.8 s and below 30 s.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Failures since the last progress.
    failures: u32,
}

impl Backoff {
    /// Returns the next wait; `random` is in `0.0..1.0`.
    pub(super) fn next(&mut self, random: f64) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        BASE.saturating_mul(factor).min(MAX * 2 / 3).mul_f64(1.0 + random / 2.0)
    }

    /// Forgets the failures. Called when the watch has moved, never because a connection was made.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_the_base_and_stay_below_the_maximum() {
        let mut low = Backoff::default();
        let waits: Vec<f64> = (0..7).map(|_| low.next(0.0).as_secs_f64()).collect();
        assert_eq!(waits, [0.8, 1.6, 3.2, 6.4, 12.8, 20.0, 20.0]);
        let mut high = Backoff { failures: u32::MAX - 1 };
        assert!(high.next(0.999).max(high.next(0.999)) < MAX);
        high.reset();
        assert_eq!(high.next(0.0), BASE);
    }
}
