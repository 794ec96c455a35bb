//! When a failing key has its next attempt.
//!
//! A [`RetryPolicy`] has two halves. Its [`Delay`] is per key: pure arithmetic over the number of failures in
//! a row and a random number, so the queue computes it under its lock and stores only that number per key.
//! Its [`Rate`] is shared by all keys of a queue: a key with a delay that is over also needs a token. A retry
//! takes its token when it is handed out and reserves none before, so waiting keys leave no debt and fresh
//! work does not wait behind them.
//!
//! The rate limiters of client-go and their counterparts:
//!
//! | client-go | here |
//! |---|---|
//! | `ItemExponentialFailureRateLimiter` | [`RetryPolicy::exponential`] |
//! | `ItemFastSlowRateLimiter` | [`RetryPolicy::fast_slow`] |
//! | `BucketRateLimiter` | [`RetryPolicy::with_rate`]; alone: `fixed(Duration::ZERO).with_rate(10.0, 100)` |
//! | `WithMaxWaitRateLimiter` | the longest delay, an argument of [`RetryPolicy::exponential`] |
//! | `When` | [`RetryPolicy::delay()`] |
//! | `Forget` | [`Running::done`](super::Running::done) |
//! | `NumRequeues` | [`KeySnapshot::attempts`](super::KeySnapshot::attempts) |
//!
//! Unlike them it has jitter: in client-go keys that fail together run again together, here their retries
//! spread.
//!
//! # Invariants
//! 1. Without jitter `delay(n) <= delay(n + 1)`: a key that fails once more never waits less.
//! 2. `delay(n) <= longest_delay()` for every `n`, `u32::MAX` included, and for every factor, invalid ones
//!    included.
//! 3. Jitter only shortens a delay, by at most `jitter_percent`: the configured delays are upper bounds. It
//!    only lengthens a wait that a server asked for, which is a lower bound.

use std::time::Duration;

/// Default wait of a key after its first failure: a few round trips to a healthy API server.
pub const DEFAULT_BASE_DELAY: Duration = Duration::from_millis(5);
/// Default upper bound of the wait after a failure: the 5 ms of the default, doubled 18 times, passes it.
pub const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(1000);
/// Default factor by which the wait grows with each further failure in a row.
pub const DEFAULT_FACTOR: f64 = 2.0;
/// Default jitter of a wait, in percent: enough that 10,000 keys failing together come back over a tenth of
/// their delay.
pub const DEFAULT_JITTER_PERCENT: u8 = 10;

/// Longest wait before a retry that a server may request, unless the policy itself has longer delays; a
/// longer one is shortened to it. API servers request seconds; a request for hours is a mistake, or comes
/// from another kind of server.
pub const MAX_ASKED_WAIT: Duration = Duration::from_mins(1);

/// When a failing key has its next attempt, and after how many failures it is parked.
///
/// # Common policies
///
/// ```
/// use std::time::Duration;
/// use mainstay::queue::RetryPolicy;
///
/// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
///
/// // The default: 5 ms, 10 ms, 20 ms and so on to 1000 s. The second argument is random, for the jitter.
/// let policy = RetryPolicy::default();
/// assert_eq!(policy.delay(0, 0.0), Duration::from_millis(5));
/// assert_eq!(policy.delay(3, 0.0), Duration::from_millis(40));
/// assert_eq!(policy.delay(100, 0.0), Duration::from_secs(1000));
///
/// // Three quick attempts, then one a minute.
/// let policy = RetryPolicy::fast_slow(second, minute, 3);
/// assert_eq!([0, 2, 3].map(|failures| policy.delay(failures, 0.0)), [second, second, minute]);
///
/// // The same wait after every failure, and the object is parked after five.
/// let policy = RetryPolicy::fixed(second).with_max_attempts(5);
/// assert_eq!(policy.delay(4, 0.0), second);
///
/// // The default of a Go controller: a backoff per object, and at most ten retries a second over all.
/// let policy = RetryPolicy::default().with_rate(10.0, 100);
/// assert_eq!(policy.delay(3, 0.0), Duration::from_millis(40));
/// ```
///
/// # Invalid policies
///
/// The fields are public and unchecked; [`QueueSettings::problems`](super::QueueSettings::problems) lists
/// invalid values.
///
/// ```
/// use std::time::Duration;
/// use mainstay::queue::{QueueSettings, RetryPolicy};
///
/// let retry = RetryPolicy::exponential(Duration::from_secs(9), Duration::from_secs(3));
/// let problems = QueueSettings { retry, ..QueueSettings::default() }.problems();
/// assert_eq!(
///     problems[0].to_string(),
///     "retry.baseDelay 9s is longer than retry.maxDelay 3s; raise maxDelay or lower baseDelay"
/// );
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// How long a failing key waits for its next attempt, by the number of its failures in a row.
    pub delay: Delay,
    /// Limit of the rate of retries over all keys of the queue; `None` for no limit.
    ///
    /// A key that has been ready for the queue's `max_wait` needs no token, so no key starves.
    pub rate: Option<Rate>,
    /// Largest random change of a wait, `0..=100` percent: a delay of the policy is shortened by up to this
    /// part, a wait that a server requested is lengthened.
    pub jitter_percent: u8,
    /// Number of failures in a row after which a key is parked; 0 means never.
    pub max_attempts: u32,
}

/// How long a key waits after each of its failures in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// The wait is `base` after the first failure, `factor` times longer after each further one, never longer
    /// than `max`.
    Exponential {
        /// Wait of a key after its first failure.
        base: Duration,
        /// Factor by which the wait grows with each further failure, at least 1.
        factor: f64,
        /// Longest wait of a failing key. If `base` is longer, this is the wait after every failure.
        max: Duration,
    },
    /// The wait is `fast` after each of the first `max_fast` failures, `slow` after every further one.
    FastSlow {
        /// Wait after each of the first `max_fast` failures in a row.
        fast: Duration,
        /// Wait after every failure beyond the first `max_fast`; not shorter than `fast`.
        slow: Duration,
        /// Number of failures in a row that are followed by the wait `fast`; all later ones are followed by
        /// `slow`.
        max_fast: u32,
    },
    /// The same wait after every failure.
    Fixed(Duration),
}

/// How many retries a queue may start per second, and how many at once after a pause. Part of a
/// [`RetryPolicy`].
///
/// A token bucket without reservations, and so without debt: in client-go's bucket 10,000 first failures
/// queue up a wait of sixteen minutes, which later failures share. Here a key without a token keeps its
/// position in its lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Number of retries that may start per second, as tokens added to the bucket; above 0.
    pub per_second: f64,
    /// Number of retries that may start at once after a pause, as tokens in a full bucket; at least 1.
    pub burst: u32,
}

/// The time of the next run of a failed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The key runs again after the delay of the queue's retry policy.
    Backoff,
    /// The key runs again after the delay of the queue's retry policy, and not before this time, which a
    /// server has requested. See [`RetryPolicy::asked`] for its limit.
    NotBefore(Duration),
    /// The key runs again after exactly this time, which the reconciler has set.
    After(Duration),
    /// The key is parked: it runs again only after an add that reports a change, because a retry would fail
    /// again.
    Never,
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// Makes a retry policy with a delay that starts at `base_delay` and doubles up to `max_delay`, with the
    /// default jitter.
    pub fn exponential(base_delay: Duration, max_delay: Duration) -> Self {
        Self::of(Delay::Exponential { base: base_delay, factor: DEFAULT_FACTOR, max: max_delay })
    }

    /// Makes a retry policy that waits for `fast` after each of the first `max_fast` failures and for `slow`
    /// after every further one, with the default jitter.
    pub fn fast_slow(fast: Duration, slow: Duration, max_fast: u32) -> Self {
        Self::of(Delay::FastSlow { fast, slow, max_fast })
    }

    /// Makes a retry policy that waits the same time after every failure, without jitter.
    pub fn fixed(delay: Duration) -> Self {
        Self { jitter_percent: 0, ..Self::of(Delay::Fixed(delay)) }
    }

    fn of(delay: Delay) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Returns this policy with a limit of `per_second` retries over all keys of the queue, and `burst` at
    /// once after a pause.
    pub fn with_rate(self, per_second: f64, burst: u32) -> Self {
        Self { rate: Some(Rate { per_second, burst }), ..self }
    }

    /// Returns this policy with a jitter that shortens each delay at random by up to `percent` percent; 0
    /// makes the waits exact.
    pub fn with_jitter(self, percent: u8) -> Self {
        Self { jitter_percent: percent, ..self }
    }

    /// Returns this policy with a limit of attempts: a key is parked after `attempts` failures in a row; 0
    /// means never.
    pub fn with_max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: attempts, ..self }
    }

    /// Returns the delay of a key after a failure that follows `earlier_failures` others in a row (0 = this
    /// was the first).
    ///
    /// `random` is uniform in `0.0..1.0`; 0.0 gives the longest wait.
    pub fn delay(&self, earlier_failures: u32, random: f64) -> Duration {
        let delay = self.delay.after(earlier_failures);
        // Rounding could lengthen a delay by a nanosecond.
        self.jittered(delay, -random).min(delay)
    }

    /// Returns the wait after a failure for which a server requested `wait`: at least that long, but not
    /// longer than the longest delay of this policy or [`MAX_ASKED_WAIT`], the longer of the two, before
    /// jitter.
    ///
    /// Jitter lengthens the wait, by up to `jitter_percent`: a server names the same time to all clients that
    /// it refuses, and none of them should come back sooner. `random` is uniform in `0.0..1.0`; 0.0 gives the
    /// shortest wait.
    pub fn asked(&self, wait: Duration, random: f64) -> Duration {
        let wait = wait.min(self.longest_delay().max(MAX_ASKED_WAIT));
        self.jittered(wait, random).max(wait)
    }

    /// Returns `wait` lengthened by the jitter percentage times `random`; a negative `random` shortens it.
    fn jittered(&self, wait: Duration, random: f64) -> Duration {
        let jitter = f64::from(self.jitter_percent.min(100)) / 100.0;
        Duration::try_from_secs_f64(wait.as_secs_f64() * (1.0 + jitter * random)).unwrap_or(wait)
    }

    /// Returns the upper bound of all delays of this policy, after any number of failures. Only a wait that a
    /// server requested may be longer.
    pub fn longest_delay(&self) -> Duration {
        match self.delay {
            Delay::Exponential { max, .. } => max,
            // Settings from code may be unchecked: `fast` may be the longer one.
            Delay::FastSlow { fast, slow, .. } => fast.max(slow),
            Delay::Fixed(delay) => delay,
        }
    }

    /// Returns whether a key that has failed `failures` times in a row is out of attempts, and so is parked.
    pub(super) fn is_spent(&self, failures: u32) -> bool {
        self.max_attempts != 0 && failures >= self.max_attempts
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { delay: Delay::default(), rate: None, jitter_percent: DEFAULT_JITTER_PERCENT, max_attempts: 0 }
    }
}

// === impl Delay ===

impl Delay {
    fn after(&self, earlier_failures: u32) -> Duration {
        match *self {
            Self::Exponential { base, factor, max } => {
                let exponent = i32::try_from(earlier_failures).unwrap_or(i32::MAX);
                let grown = base.as_secs_f64() * factor.powi(exponent);
                // A product beyond f64 is infinite, zero times infinity is NaN: both must give the maximum.
                let delay =
                    if grown < max.as_secs_f64() { Duration::try_from_secs_f64(grown) } else { Ok(max) };
                delay.unwrap_or(max).min(max)
            }
            Self::FastSlow { fast, max_fast, .. } if earlier_failures < max_fast => fast,
            Self::FastSlow { slow: delay, .. } | Self::Fixed(delay) => delay,
        }
    }
}

/// The default backoff of a failing key: 5 ms, doubled with each failure up to 1000 s.
impl Default for Delay {
    fn default() -> Self {
        Self::Exponential { base: DEFAULT_BASE_DELAY, factor: DEFAULT_FACTOR, max: DEFAULT_MAX_DELAY }
    }
}

#[cfg(test)]
mod tests;
