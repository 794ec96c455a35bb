//! A rate limit: a token bucket whose state is one time, as in the generic cell rate algorithm.

use std::ops::{Add, Sub};
use std::time::Duration;

use tokio::time::Instant;

/// Interval between two tokens for a rate that is not a number above zero: a year, practically never, and far
/// from overflow.
const LONGEST_INTERVAL: Duration = Duration::from_hours(365 * 24);

/// Rate and size of a [`TokenBucket`]: the interval between tokens, and the largest burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Time after which one token is added to the bucket.
    pub interval: Duration,
    /// Number of tokens in a full bucket; 0 counts as 1.
    pub burst: u32,
}

/// A token bucket: up to `burst` tokens at once, then one per interval.
///
/// `T` is the type of a time: an [`Instant`], or a [`Duration`] since some start. The limit may change at any
/// time.
///
/// ```
/// # use {mainstay::util::{Limit, TokenBucket}, std::time::Duration};
/// let second = Duration::from_secs;
/// let mut bucket = TokenBucket::new(Limit::per_second(1.0, 2));
/// assert_eq!([0, 0, 0].map(|at| bucket.take(second(at))), [Ok(()), Ok(()), Err(second(1))]);
/// assert_eq!(bucket.take(second(1)), Ok(()));
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket<T = Instant> {
    limit: Limit,
    /// Time at which the bucket will be full if no token is taken before; `None`, or a time in the past, if
    /// it is full.
    full_at: Option<T>,
}

// === impl Limit ===

impl Limit {
    /// Makes a limit of `rate` tokens per second. A rate that is not a number above zero allows one token a
    /// year.
    pub fn per_second(rate: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(LONGEST_INTERVAL);
        Self { interval: interval.clamp(Duration::from_nanos(1), LONGEST_INTERVAL), burst }
    }

    /// Returns the longest time that a bucket may need to become full while it still holds a token.
    fn slack(self) -> Duration {
        self.interval.saturating_mul(self.burst.saturating_sub(1))
    }
}

// === impl TokenBucket ===

impl<T> TokenBucket<T>
where
    T: Copy + Ord + Add<Duration, Output = T> + Sub<Output = Duration>,
{
    /// Makes a full token bucket with this limit.
    pub const fn new(limit: Limit) -> Self {
        Self { limit, full_at: None }
    }

    /// Sets another limit of the token bucket. Spent tokens stay spent, but the next one is added within one
    /// new interval.
    pub fn set_limit(&mut self, limit: Limit, now: T) {
        if limit != self.limit {
            self.limit = limit;
            self.full_at = self.full_at.map(|at| at.min(now + limit.slack() + limit.interval));
        }
    }

    /// Takes a token from the bucket, or returns the time at which the next one is added.
    pub fn take(&mut self, now: T) -> Result<(), T> {
        let ready_at = self.ready_at(now);
        if ready_at > now {
            return Err(ready_at);
        }
        self.spend(now);
        Ok(())
    }

    /// Takes a token even from an empty bucket, which delays all later tokens by one interval.
    pub fn spend(&mut self, now: T) {
        self.full_at = Some(self.full_at.map_or(now, |at| at.max(now)) + self.limit.interval);
    }

    /// Returns the first time, `now` or later, at which the bucket holds a token.
    pub fn ready_at(&self, now: T) -> T {
        let missing = self.full_at.filter(|at| *at > now).map_or(Duration::ZERO, |at| at - now);
        now + missing.saturating_sub(self.limit.slack())
    }

    /// Returns whether the token bucket is full, as a new one is.
    pub fn is_full(&self, now: T) -> bool {
        self.full_at.is_none_or(|at| at <= now)
    }
}

#[cfg(test)]
mod tests;
