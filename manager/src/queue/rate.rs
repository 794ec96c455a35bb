//! How many retries per second, over all keys of a queue.
//!
//! A token bucket in integers, as the generic cell rate algorithm: one number says when the bucket will be full.
//! Nothing is ever reserved, so there is no debt: client-go's bucket lets 10,000 first failures queue up a wait of
//! sixteen minutes that also holds for those who come later. Here a key without a token keeps its place in its lane.

use std::time::Duration;

use super::clock::Moment;

/// A rate that is no number, or not above zero, gives a token this often: as good as never, and far from overflow.
const LONGEST_INTERVAL: Duration = Duration::from_hours(365 * 24);

/// So many per second, and so many at once after a pause. Part of a [`RetryPolicy`](super::RetryPolicy), which says
/// what it limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Tokens that come in per second; above 0.
    pub per_second: f64,
    /// Tokens that a full bucket holds; at least 1.
    pub burst: u32,
}

/// The bucket of one [`Rate`]. Full when made.
#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    /// Time one token takes to come in; at least a nanosecond.
    interval: Duration,
    /// What the bucket holds beyond one token, as time: `(burst - 1) · interval`.
    slack: Duration,
    /// When the bucket is full again, if nobody takes anything. In the past when it is full.
    full_at: Moment,
}

// === impl TokenBucket ===

impl TokenBucket {
    pub(super) fn new(rate: &Rate) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / rate.per_second)
            .unwrap_or(Duration::MAX)
            .clamp(Duration::from_nanos(1), LONGEST_INTERVAL);
        let slack = interval.saturating_mul(rate.burst.saturating_sub(1));
        Self { interval, slack, full_at: Moment::START }
    }

    /// Returns the first moment, from `START` on, at which a token is there.
    pub(super) fn ready_at(&self) -> Moment {
        self.full_at.before(self.slack)
    }

    /// Takes a token. Called only when [`Self::ready_at`] has come.
    pub(super) fn take(&mut self, now: Moment) {
        self.full_at = self.full_at.max(now).after(self.interval);
    }

    /// Puts another rate in force. The next token comes within one of its intervals.
    pub(super) fn change(&mut self, rate: &Rate, now: Moment) {
        let next = Self::new(rate);
        let empty = now.after(next.slack).after(next.interval);
        *self = Self { full_at: self.full_at.min(empty), ..next };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::new(Duration::from_millis(millis))
    }

    #[test]
    fn a_full_bucket_gives_its_burst_at_once_and_then_one_per_interval() {
        let mut bucket = TokenBucket::new(&Rate { per_second: 10.0, burst: 3 });
        for _ in 0..3 {
            assert!(bucket.ready_at() <= at(5000));
            bucket.take(at(5000));
        }
        assert_eq!(bucket.ready_at(), at(5100));
        bucket.take(at(5100));
        assert_eq!(bucket.ready_at(), at(5200));
    }

    #[test]
    fn a_pause_refills_it_to_the_burst_and_no_further() {
        let mut bucket = TokenBucket::new(&Rate { per_second: 10.0, burst: 2 });
        for _ in 0..2 {
            bucket.take(at(0));
        }
        for _ in 0..2 {
            assert!(bucket.ready_at() <= at(60_000));
            bucket.take(at(60_000));
        }
        assert_eq!(bucket.ready_at(), at(60_100));
    }

    #[test]
    fn the_wait_of_an_old_rate_ends_within_an_interval_of_the_new_one() {
        let mut bucket = TokenBucket::new(&Rate { per_second: 0.001, burst: 1 });
        bucket.take(at(0));
        assert_eq!(bucket.ready_at(), at(1_000_000));
        bucket.change(&Rate { per_second: 1.0, burst: 1 }, at(0));
        assert_eq!(bucket.ready_at(), at(1000));
    }

    #[test]
    fn rates_without_sense_let_nothing_through_after_the_first() {
        for per_second in [0.0, -1.0, f64::NAN] {
            let mut bucket = TokenBucket::new(&Rate { per_second, burst: 0 });
            bucket.take(at(1));
            assert!(bucket.ready_at() > at(86_400_000), "{per_second}");
        }
    }
}
