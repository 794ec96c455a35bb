//! When a failing key has its next attempt.
//!
//! A [`RetryPolicy`] has two halves. Its *delays* are per key: pure arithmetic over the number of failures in a row and
//! a random number, so that the queue calls it under its lock and keeps nothing per key but that number. Its *rates*
//! are over all keys of a queue: a key whose delay is over also needs a token of each. A token is taken when the
//! retry is handed out and never reserved, so a key that waits owes nothing, and fresh work does not wait behind it.
//!
//! The rate limiters of client-go are ready values here:
//!
//! | client-go | here |
//! |---|---|
//! | `ItemExponentialFailureRateLimiter` | [`RetryPolicy::exponential`] |
//! | `ItemFastSlowRateLimiter` | [`RetryPolicy::fast_slow`] |
//! | `BucketRateLimiter` | [`RetryPolicy::bucket`] |
//! | `MaxOfRateLimiter` | [`RetryPolicy::max_of`] |
//! | `WithMaxWaitRateLimiter` | [`RetryPolicy::with_max_delay`] |
//! | `When`, `Forget`, `NumRequeues` | [`RetryPolicy::delay`], [`WorkQueue::forget`](super::WorkQueue::forget), [`KeySnapshot::attempts`](super::KeySnapshot::attempts) |
//!
//! Differs from them in its jitter: keys that fail together there come back together, here they spread.
//!
//! # Invariants
//! 1. Without jitter `delay(n) <= delay(n + 1)`: a key that fails once more never waits less.
//! 2. `delay(n) <= longest_delay()` for every `n`, `u32::MAX` included, and for every factor, nonsense included.
//! 3. Jitter only shortens a delay, by at most `jitter_percent`: the configured delays are upper bounds. It only
//!    lengthens a wait that a server asked for, which is a lower bound.

use std::time::Duration;

use super::Rate;

/// Wait after the first failure unless configured: a few round trips to a healthy API server.
pub const DEFAULT_BASE_DELAY: Duration = Duration::from_millis(5);
/// Longest wait unless configured: the 5 ms of the default, doubled 18 times, passes it.
pub const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(1000);
/// Growth per failure unless configured.
pub const DEFAULT_FACTOR: f64 = 2.0;
/// Jitter unless configured: enough that 10,000 keys failing together come back over a tenth of their delay.
pub const DEFAULT_JITTER_PERCENT: u8 = 10;

/// A server that asks for a longer wait is not obeyed further than this, unless the policy has longer delays itself.
/// API servers ask for seconds; what asks for hours is a mistake, or no API server.
pub const MAX_ASKED_WAIT: Duration = Duration::from_mins(1);

/// When a failing key has its next attempt, and after how many there is none.
///
/// # The policies of the field
///
/// ```
/// use std::time::Duration;
/// use mainstay::queue::RetryPolicy;
///
/// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
///
/// // The default: 5 ms, 10 ms, 20 ms and so on to 1000 s. The second argument of `delay` is the jitter's chance.
/// let policy = RetryPolicy::default();
/// assert_eq!(policy.delay(0, 0.0), Duration::from_millis(5));
/// assert_eq!(policy.delay(3, 0.0), Duration::from_millis(40));
/// assert_eq!(policy.delay(100, 0.0), Duration::from_secs(1000));
///
/// // Three quick attempts, then one a minute.
/// let policy = RetryPolicy::fast_slow(second, minute, 3);
/// assert_eq!([0, 2, 3].map(|failures| policy.delay(failures, 0.0)), [second, second, minute]);
///
/// // The same wait after every failure, and the object is out of the way after five.
/// let policy = RetryPolicy::fixed(second).with_max_attempts(5);
/// assert_eq!(policy.delay(4, 0.0), second);
///
/// // What a Go controller starts with: its own backoff, and no more than ten retries a second over all objects.
/// let policy = RetryPolicy::max_of([
///     RetryPolicy::exponential(Duration::from_millis(5), Duration::from_secs(1000)),
///     RetryPolicy::bucket(10.0, 100),
/// ]);
/// assert_eq!((policy.delay(3, 0.0), policy.rates[0].burst), (Duration::from_millis(40), 100));
/// ```
///
/// # Any other
///
/// The fields are open: what the constructors make can be written out, and
/// [`QueueSettings::problems`](super::QueueSettings::problems) tells what makes no sense.
///
/// ```
/// use std::time::Duration;
/// use mainstay::queue::{Delay, QueueSettings, RetryPolicy};
///
/// let (base, max) = (Duration::from_secs(9), Duration::from_secs(3));
/// let delays = vec![Delay::Exponential { base, factor: 1.5, max }];
/// let retry = RetryPolicy { delays, ..RetryPolicy::default() };
/// let problems = QueueSettings { retry, ..QueueSettings::default() }.problems();
/// assert_eq!(
///     problems[0].to_string(),
///     "retry.baseDelay 9s is longer than retry.maxDelay 3s; raise maxDelay or lower baseDelay"
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// How long each failing key waits: the longest of these. Empty for no wait of its own.
    pub delays: Vec<Delay>,
    /// How many retries there may be over all keys: a retry takes a token of each. Empty for no limit.
    ///
    /// Whoever has been ready for the queue's `max_wait` goes without one, because nothing may starve.
    pub rates: Vec<Rate>,
    /// How much of a wait chance may take away, `0..=100` percent.
    pub jitter_percent: u8,
    /// Failures in a row after which the key is parked; 0 means never.
    pub max_attempts: u32,
}

/// How long a key waits that has failed so often in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delay {
    /// `base` after the first failure, `factor` times longer after each further one, never longer than `max`.
    Exponential {
        /// Wait after the first failure.
        base: Duration,
        /// Growth per further failure, at least 1.
        factor: f64,
        /// Longest wait. Never below `base`: the smaller of the two holds.
        max: Duration,
    },
    /// `fast` after each of the first `max_fast` failures, `slow` after every further one.
    FastSlow {
        /// Wait after an early failure.
        fast: Duration,
        /// Wait after a late failure; not shorter.
        slow: Duration,
        /// How many failures count as early.
        max_fast: u32,
    },
    /// The same after every failure.
    Fixed(Duration),
}

// === impl RetryPolicy ===

impl RetryPolicy {
    /// A policy that starts at `base_delay` and doubles up to `max_delay`, with the default jitter.
    #[must_use]
    pub fn exponential(base_delay: Duration, max_delay: Duration) -> Self {
        Self::of(Delay::Exponential { base: base_delay, factor: DEFAULT_FACTOR, max: max_delay })
    }

    /// A policy that waits for `fast` after each of the first `max_fast` failures and for `slow` after every further
    /// one, with the default jitter.
    #[must_use]
    pub fn fast_slow(fast: Duration, slow: Duration, max_fast: u32) -> Self {
        Self::of(Delay::FastSlow { fast, slow, max_fast })
    }

    /// A policy that waits the same time after every failure, without jitter.
    #[must_use]
    pub fn fixed(delay: Duration) -> Self {
        Self { jitter_percent: 0, ..Self::of(Delay::Fixed(delay)) }
    }

    /// A policy without a delay per key: a failing key runs again as soon as there is a token for it. There are
    /// `per_second` of them over all keys of the queue, and `burst` at once after a pause.
    #[must_use]
    pub fn bucket(per_second: f64, burst: u32) -> Self {
        Self {
            delays: Vec::new(),
            rates: vec![Rate { per_second, burst }],
            jitter_percent: 0,
            max_attempts: 0,
        }
    }

    /// A policy that is as strict as all of these together: the longest of their delays, a token of each of their
    /// rates, the most jitter, the fewest attempts.
    #[must_use]
    pub fn max_of(policies: impl IntoIterator<Item = Self>) -> Self {
        let none = Self { delays: Vec::new(), rates: Vec::new(), jitter_percent: 0, max_attempts: 0 };
        policies.into_iter().fold(none, |mut all, policy| {
            all.delays.extend(policy.delays);
            all.rates.extend(policy.rates);
            all.jitter_percent = all.jitter_percent.max(policy.jitter_percent);
            all.max_attempts = match (all.max_attempts, policy.max_attempts) {
                (0, attempts) | (attempts, 0) => attempts,
                (one, other) => one.min(other),
            };
            all
        })
    }

    fn of(delay: Delay) -> Self {
        Self { delays: vec![delay], ..Self::default() }
    }

    /// Lets chance take away up to so many percent of each wait; 0 makes the waits exact.
    #[must_use]
    pub fn with_jitter(self, percent: u8) -> Self {
        Self { jitter_percent: percent, ..self }
    }

    /// Parks a key after so many failures in a row; 0 means never.
    #[must_use]
    pub fn with_max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: attempts, ..self }
    }

    /// Lets no key wait longer than this.
    #[must_use]
    pub fn with_max_delay(mut self, max: Duration) -> Self {
        for delay in &mut self.delays {
            delay.shorten_to(max);
        }
        self
    }

    /// Returns the wait after a failure that had `earlier_failures` right before it (0 = this was the first).
    ///
    /// `random` is uniform in `0.0..1.0`; 0.0 gives the longest wait.
    #[must_use]
    pub fn delay(&self, earlier_failures: u32, random: f64) -> Duration {
        let delays = self.delays.iter().map(|delay| delay.after(earlier_failures));
        let delay = delays.max().unwrap_or(Duration::ZERO);
        let jitter = f64::from(self.jitter_percent.min(100)) / 100.0;
        // Rounding could lengthen a wait by a nanosecond.
        Duration::try_from_secs_f64(delay.as_secs_f64() * (1.0 - jitter * random)).unwrap_or(delay).min(delay)
    }

    /// Returns how long to wait at least after a failure for which a server asked for `wait`: that long, but not longer
    /// than the longest delay of this policy or [`MAX_ASKED_WAIT`], whichever is more.
    ///
    /// Jitter lengthens it, by up to `jitter_percent`: a server names one time to all whom it refuses, and none of them
    /// should come back sooner. `random` is uniform in `0.0..1.0`; 0.0 gives the shortest wait.
    #[must_use]
    pub fn asked(&self, wait: Duration, random: f64) -> Duration {
        let wait = wait.min(self.longest_delay().max(MAX_ASKED_WAIT));
        let jitter = f64::from(self.jitter_percent.min(100)) / 100.0;
        Duration::try_from_secs_f64(wait.as_secs_f64() * (1.0 + jitter * random)).unwrap_or(wait).max(wait)
    }

    /// Returns the wait that is never exceeded, however often a key fails, unless a server asks for it.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        self.delays.iter().map(Delay::longest).max().unwrap_or(Duration::ZERO)
    }

    /// Returns whether a key that has failed this often in a row is to be parked.
    pub(super) fn is_spent(&self, failures: u32) -> bool {
        self.max_attempts != 0 && failures >= self.max_attempts
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            delays: vec![Delay::default()],
            rates: Vec::new(),
            jitter_percent: DEFAULT_JITTER_PERCENT,
            max_attempts: 0,
        }
    }
}

// === impl Delay ===

impl Delay {
    fn after(&self, earlier_failures: u32) -> Duration {
        match *self {
            Self::Exponential { base, factor, max } => {
                let exponent = i32::try_from(earlier_failures).unwrap_or(i32::MAX);
                let grown = base.as_secs_f64() * factor.powi(exponent);
                // A product beyond f64 is infinite, zero times infinity is NaN: both must end at the maximum.
                let delay =
                    if grown < max.as_secs_f64() { Duration::try_from_secs_f64(grown) } else { Ok(max) };
                delay.unwrap_or(max).min(max)
            }
            Self::FastSlow { fast, max_fast, .. } if earlier_failures < max_fast => fast,
            Self::FastSlow { slow: delay, .. } | Self::Fixed(delay) => delay,
        }
    }

    fn longest(&self) -> Duration {
        match *self {
            Self::Exponential { max, .. } => max,
            // Nonsense included: settings in code may not have been checked.
            Self::FastSlow { fast, slow, .. } => fast.max(slow),
            Self::Fixed(delay) => delay,
        }
    }

    fn shorten_to(&mut self, longest: Duration) {
        match self {
            Self::Exponential { base: one, max: other, .. }
            | Self::FastSlow { fast: one, slow: other, .. } => {
                *one = longest.min(*one);
                *other = longest.min(*other);
            }
            Self::Fixed(delay) => *delay = longest.min(*delay),
        }
    }
}

/// The backoff of a policy for which none was configured: 5 ms, doubled to 1000 s.
impl Default for Delay {
    fn default() -> Self {
        Self::Exponential { base: DEFAULT_BASE_DELAY, factor: DEFAULT_FACTOR, max: DEFAULT_MAX_DELAY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn without_jitter() -> RetryPolicy {
        RetryPolicy::default().with_jitter(0)
    }

    /// Returns the delays after the first `N` failures, without what chance takes away.
    fn first<const N: usize>(policy: &RetryPolicy) -> [Duration; N] {
        std::array::from_fn(|earlier| policy.delay(u32::try_from(earlier).unwrap(), 0.0))
    }

    #[test]
    fn delays_double_from_five_milliseconds_to_a_thousand_seconds() {
        let policy = without_jitter();
        for n in 0..18 {
            assert_eq!(policy.delay(n, 0.5), Duration::from_millis(5 << n), "after {n} earlier failures");
        }
        for n in [18, 19, 40, 1000, 1 << 31, u32::MAX] {
            assert_eq!(policy.delay(n, 0.5), secs(1000), "after {n} earlier failures");
        }
    }

    #[test]
    fn after_a_thousand_failures_the_delay_is_exactly_the_maximum_whatever_it_is() {
        for max in [secs(1000), Duration::from_hours(1000), Duration::MAX] {
            let policy = RetryPolicy::exponential(Duration::from_millis(1), max);
            assert_eq!(policy.delay(1000, 0.0), max);
        }
    }

    #[test]
    fn fast_slow_waits_fast_so_many_times_and_slow_from_then_on() {
        let policy = RetryPolicy::fast_slow(Duration::from_millis(5), secs(10), 3);
        let (fast, slow) = (Duration::from_millis(5), secs(10));
        assert_eq!(first(&policy), [fast, fast, fast, slow, slow]);
        assert_eq!(policy.delay(u32::MAX, 0.0), slow);
    }

    #[test]
    fn fixed_waits_the_same_whatever_chance_says() {
        let policy = RetryPolicy::fixed(secs(7));
        assert_eq!([0, 1, u32::MAX].map(|n| policy.delay(n, 0.9)), [secs(7); 3]);
    }

    #[test]
    fn a_bucket_has_no_delay_per_key() {
        assert_eq!(RetryPolicy::bucket(10.0, 100).delay(5, 0.3), Duration::ZERO);
    }

    #[test]
    fn max_of_waits_for_the_longer_at_every_step_and_is_as_strict_as_each() {
        let policy = RetryPolicy::max_of([
            RetryPolicy::fast_slow(Duration::from_millis(5), secs(3), 3).with_max_attempts(9),
            RetryPolicy::exponential(Duration::from_millis(1), secs(1)).with_jitter(30),
            RetryPolicy::bucket(10.0, 100).with_max_attempts(7),
            RetryPolicy::bucket(1.0, 300),
        ]);
        assert_eq!(first(&policy), [5, 5, 5, 3000, 3000].map(Duration::from_millis));
        assert_eq!((policy.jitter_percent, policy.max_attempts), (30, 7));
        assert_eq!(policy.rates.iter().map(|rate| rate.burst).collect::<Vec<_>>(), [100, 300]);
        let exponential_is_longer = RetryPolicy::max_of([
            RetryPolicy::fixed(Duration::from_millis(12)),
            RetryPolicy::exponential(Duration::from_millis(5), secs(1)),
        ]);
        assert_eq!(first(&exponential_is_longer), [12, 12, 20, 40].map(Duration::from_millis));
    }

    #[test]
    fn a_maximum_of_the_delay_cuts_longer_waits_and_leaves_shorter_ones() {
        let capped = RetryPolicy::max_of([
            RetryPolicy::fast_slow(secs(1), secs(1000), 2),
            RetryPolicy::exponential(Duration::from_millis(1), secs(2000)),
            RetryPolicy::fixed(secs(900)),
        ]);
        assert_eq!(first(&capped.clone().with_max_delay(secs(500))), [secs(500); 4]);
        let policy = RetryPolicy::fast_slow(secs(1), secs(1000), 2).with_max_delay(secs(500));
        assert_eq!(first(&policy), [secs(1), secs(1), secs(500), secs(500)]);
    }

    #[test]
    fn one_more_failure_never_waits_less_and_the_longest_delay_is_never_exceeded() {
        let slow_growth = Delay::Exponential { base: Duration::from_millis(3), factor: 1.37, max: secs(60) };
        let fast_slow = Delay::FastSlow { fast: secs(1), slow: secs(2), max_fast: 7 };
        for delays in [vec![slow_growth], vec![fast_slow], vec![slow_growth, fast_slow], vec![]] {
            let policy = RetryPolicy { delays, ..without_jitter() };
            for n in 0..200 {
                assert!(policy.delay(n, 0.0) <= policy.delay(n + 1, 0.0), "{policy:?} after {n}");
                assert!(policy.delay(n, 0.0) <= policy.longest_delay(), "{policy:?} after {n}");
            }
        }
    }

    #[test]
    fn jitter_only_shortens_and_by_its_percentage_at_most() {
        for policy in [RetryPolicy::default(), RetryPolicy::fast_slow(secs(1), secs(100), 3)] {
            assert_eq!(policy.delay(0, 0.0), policy.clone().with_jitter(0).delay(0, 0.7));
            for n in 0..40 {
                let (longest, shortest) = (policy.delay(n, 0.0), policy.delay(n, 0.999_999));
                assert!(shortest >= longest.mul_f64(0.9), "{shortest:?} of {longest:?}");
                assert!(shortest <= longest.mul_f64(0.91), "{shortest:?} of {longest:?}");
            }
        }
    }

    #[test]
    fn a_wait_that_a_server_asks_for_is_never_cut_within_reason_and_jitter_only_lengthens_it() {
        let (minute, max) = (Duration::from_mins(1), Duration::MAX);
        for (policy, asked, least) in [
            (RetryPolicy::default(), secs(0), secs(0)),
            (RetryPolicy::default(), secs(7), secs(7)),
            (RetryPolicy::default(), max, secs(1000)),
            (RetryPolicy::exponential(secs(1), secs(5)), secs(7), secs(7)),
            (RetryPolicy::exponential(secs(1), secs(5)), max, minute),
            (RetryPolicy::bucket(10.0, 100), max, minute),
            (RetryPolicy::exponential(secs(1), max), max, max),
        ] {
            assert_eq!(policy.asked(asked, 0.0), least, "{policy:?} when asked for {asked:?}");
            let most = policy.asked(asked, 0.999_999);
            assert!(
                least <= most && most <= least.saturating_add(least.mul_f64(0.1)),
                "{most:?} of {least:?}"
            );
            let jitter = policy.jitter_percent > 0 && !least.is_zero() && least < max;
            assert_eq!(most > least, jitter, "{policy:?} when asked for {asked:?}");
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
        // Evenly, not in two heaps at the ends: each twentieth of the range gets about its 500.
        let buckets = delays.iter().fold([0_u32; 20], |mut buckets, delay| {
            let lead = Duration::from_millis(5120).saturating_sub(*delay);
            let at = usize::try_from(lead.as_micros() / 25_600).unwrap().min(19);
            buckets[at] += 1;
            buckets
        });
        assert!(buckets.iter().all(|keys| (400..600).contains(keys)), "{buckets:?}");
    }

    #[test]
    fn nonsense_stays_within_the_maximum() {
        let max = secs(3);
        for (base, factor) in
            [(Duration::MAX, f64::MAX), (Duration::ZERO, f64::INFINITY), (secs(9), f64::NAN), (secs(1), -2.0)]
        {
            let delays = vec![Delay::Exponential { base, factor, max }];
            let policy = RetryPolicy { delays, jitter_percent: 255, ..RetryPolicy::default() };
            for (n, random) in [(0, 0.7), (1, f64::NAN), (2, -5.0), (3, f64::INFINITY)] {
                assert!(policy.delay(n, random) <= max, "{policy:?} after {n}");
            }
        }
    }

    #[test]
    fn a_maximum_of_zero_attempts_is_no_maximum() {
        assert!(!without_jitter().is_spent(u32::MAX));
        let three = without_jitter().with_max_attempts(3);
        assert_eq!([2, 3, 4].map(|failures| three.is_spent(failures)), [false, true, true]);
    }
}
