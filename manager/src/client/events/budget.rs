//! How often something may happen: so many at once, and one more per interval.
//!
//! A token bucket in one instant (the generic cell rate algorithm), so that thousands of them are small and nothing is
//! rounded. Time is passed in.

use std::time::Duration;

use tokio::time::Instant;

/// What a [`Budget`] allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// At once, after a long pause; at least 1.
    pub(super) burst: u32,
    /// One more comes in per this time.
    pub(super) every: Duration,
}

/// What is left of one [`Limit`].
#[derive(Debug)]
pub(super) struct Budget {
    /// When all of it is back, if nobody takes anything. In the past when it is full.
    full_at: Instant,
}

// === impl Limit ===

impl Limit {
    /// How far ahead `full_at` may lie while one more may still be taken.
    fn slack(self) -> Duration {
        self.every.saturating_mul(self.burst.saturating_sub(1))
    }
}

// === impl Budget ===

impl Budget {
    pub(super) fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self, limit: Limit, now: Instant) -> bool {
        let enough = self.ready_at(limit, now) <= now;
        if enough {
            self.full_at = self.full_at.max(now) + limit.every;
        }
        enough
    }

    /// Returns when one may be taken; `now` if it may be already.
    pub(super) fn ready_at(&self, limit: Limit, now: Instant) -> Instant {
        now + self.full_at.saturating_duration_since(now).saturating_sub(limit.slack())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { burst: 3, every: Duration::from_secs(10) };

    #[tokio::test(start_paused = true)]
    async fn a_full_budget_gives_its_burst_at_once_and_then_one_per_interval() {
        let start = Instant::now();
        let mut budget = Budget::full(start);
        for number in 0..3 {
            assert!(budget.take(LIMIT, start), "{number}");
        }
        let next = start + LIMIT.every;
        assert_eq!(budget.ready_at(LIMIT, start), next);
        assert!(!budget.take(LIMIT, next - Duration::from_nanos(1)));
        assert!(budget.take(LIMIT, next));
        assert!(!budget.take(LIMIT, next));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_refills_it_to_the_burst_and_no_further() {
        let start = Instant::now();
        let mut budget = Budget::full(start);
        let later = start + Duration::from_hours(1);
        let taken = (0..10).filter(|_| budget.take(LIMIT, later)).count();
        assert_eq!(taken, 3);
    }
}
