//! How long a failing key waits before its next attempt.
//!
//! Pure arithmetic: the queue calls it under its lock and passes the random number in. The sequence is that of
//! client-go's `ItemExponentialFailureRateLimiter` (5 ms doubled up to 1000 s), which has no jitter: keys that fail
//! together there come back together, here they spread.
//!
//! # Invariants
//! 1. Without jitter `delay(n) <= delay(n + 1)`: a key that fails once more never waits less.
//! 2. `delay(n) <= max_delay` for every `n`, `u32::MAX` included, and for every factor, nonsense included.
//! 3. Jitter only shortens, by at most `jitter_percent`: the configured delays are upper bounds.

use std::time::Duration;

/// Wait after the first failure unless configured: a few round trips to a healthy API server.
pub const DEFAULT_BASE_DELAY: Duration = Duration::from_millis(5);
/// Longest wait unless configured: the 5 ms of the default, doubled 18 times, passes it.
pub const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(1000);
/// Growth per failure unless configured.
pub const DEFAULT_FACTOR: f64 = 2.0;
/// Jitter unless configured: enough that 10,000 keys failing together come back over a tenth of their delay.
pub const DEFAULT_JITTER_PERCENT: u8 = 10;

/// Delay per failing key: `min(base_delay · factorⁿ, max_delay)`, shortened by up to `jitter_percent`.
///
/// ```
/// use std::time::Duration;
/// use mainstay::queue::RetryPolicy;
///
/// let policy = RetryPolicy::default();
/// assert_eq!(policy.delay(0, 0.0), Duration::from_millis(5));
/// assert_eq!(policy.delay(3, 0.0), Duration::from_millis(40));
/// assert_eq!(policy.delay(100, 0.0), Duration::from_secs(1000));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Wait after the first failure, before jitter.
    pub base_delay: Duration,
    /// Growth per further failure, at least 1; 1 is a fixed delay.
    pub factor: f64,
    /// No wait is longer. Never below `base_delay`: the smaller of the two holds.
    pub max_delay: Duration,
    /// How much of a wait chance may take away, `0..=100` percent.
    pub jitter_percent: u8,
    /// Failures in a row after which the key is parked; 0 means never.
    pub max_attempts: u32,
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// A policy that waits the same time after every failure.
    #[must_use]
    pub fn fixed(delay: Duration) -> Self {
        Self { base_delay: delay, factor: 1.0, max_delay: delay, jitter_percent: 0, max_attempts: 0 }
    }

    /// A policy that starts at `base_delay` and doubles up to `max_delay`, with the default jitter.
    #[must_use]
    pub fn exponential(base_delay: Duration, max_delay: Duration) -> Self {
        Self { base_delay, max_delay, ..Self::default() }
    }

    /// Returns the wait after a failure that had `earlier_failures` right before it (0 = this was the first).
    ///
    /// `random` is uniform in `0.0..1.0`; 0.0 gives the longest wait.
    #[must_use]
    pub fn delay(&self, earlier_failures: u32, random: f64) -> Duration {
        let longest = self.max_delay.as_secs_f64();
        let exponent = i32::try_from(earlier_failures).unwrap_or(i32::MAX);
        let grown = self.base_delay.as_secs_f64() * self.factor.powi(exponent);
        // A product beyond f64 is infinite, zero times infinity is NaN: both must end at the maximum.
        let delay = if grown < longest { grown } else { longest };
        let jitter = f64::from(self.jitter_percent.min(100)) / 100.0;
        Duration::try_from_secs_f64(delay * (1.0 - jitter * random))
            .unwrap_or(self.max_delay)
            .min(self.max_delay)
    }

    /// Returns whether a key that has failed this often in a row is to be parked.
    pub(super) fn is_spent(&self, failures: u32) -> bool {
        self.max_attempts != 0 && failures >= self.max_attempts
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base_delay: DEFAULT_BASE_DELAY,
            factor: DEFAULT_FACTOR,
            max_delay: DEFAULT_MAX_DELAY,
            jitter_percent: DEFAULT_JITTER_PERCENT,
            max_attempts: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_jitter() -> RetryPolicy {
        RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() }
    }

    #[test]
    fn delays_double_from_five_milliseconds_to_a_thousand_seconds() {
        let policy = without_jitter();
        for n in 0..18 {
            assert_eq!(policy.delay(n, 0.5), Duration::from_millis(5 << n), "after {n} earlier failures");
        }
        for n in [18, 19, 40, 1000, 1 << 31, u32::MAX] {
            assert_eq!(policy.delay(n, 0.5), Duration::from_secs(1000), "after {n} earlier failures");
        }
    }

    #[test]
    fn one_more_failure_never_waits_less() {
        let policy = RetryPolicy { factor: 1.37, ..without_jitter() };
        for n in 0..200 {
            assert!(policy.delay(n, 0.0) <= policy.delay(n + 1, 0.0), "after {n} earlier failures");
        }
    }

    #[test]
    fn jitter_only_shortens_and_by_its_percentage_at_most() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(0, 0.0), Duration::from_millis(5));
        for n in 0..40 {
            let (longest, shortest) = (policy.delay(n, 0.0), policy.delay(n, 0.999_999));
            assert!(shortest >= longest.mul_f64(0.9), "{shortest:?} of {longest:?}");
            assert!(shortest <= longest.mul_f64(0.91), "{shortest:?} of {longest:?}");
        }
    }

    #[test]
    fn ten_thousand_keys_after_ten_failures_spread_over_two_fifths_of_a_second() {
        let policy = RetryPolicy::default();
        let mut random = fastrand::Rng::with_seed(7);
        let delays: Vec<Duration> = (0..10_000).map(|_| policy.delay(10, random.f64())).collect();
        let spread = delays.iter().max().unwrap().saturating_sub(*delays.iter().min().unwrap());
        // 5 ms doubled ten times is 5.12 s; a tenth of it is what jitter takes away at most.
        assert!(spread >= Duration::from_millis(400), "{spread:?}");
        assert!(delays.iter().all(|delay| *delay <= Duration::from_millis(5120)));
    }

    #[test]
    fn nonsense_stays_within_the_maximum() {
        let max_delay = Duration::from_secs(3);
        for (base_delay, factor) in [
            (Duration::MAX, f64::MAX),
            (Duration::ZERO, f64::INFINITY),
            (Duration::from_secs(9), f64::NAN),
            (Duration::from_secs(1), -2.0),
        ] {
            let policy = RetryPolicy { base_delay, factor, max_delay, jitter_percent: 255, max_attempts: 0 };
            for n in 0..5 {
                assert!(policy.delay(n, 0.7) <= max_delay, "{policy:?} after {n}");
            }
        }
    }

    #[test]
    fn a_maximum_of_zero_attempts_is_no_maximum() {
        assert!(!without_jitter().is_spent(u32::MAX));
        let three = RetryPolicy { max_attempts: 3, ..without_jitter() };
        assert_eq!([2, 3, 4].map(|failures| three.is_spent(failures)), [false, true, true]);
    }
}
