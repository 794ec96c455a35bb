//! How many probes may start per second: a token bucket.
//!
//! Kept as one instant, the moment at which the bucket would be full again (the generic cell rate algorithm), so
//! that nothing needs to be refilled by a timer.

use std::time::Duration;

use tokio::time::Instant;

/// Tokens come at a fixed rate; a tenth of a second's worth can be saved up, so that in no second more than 1.1 times
/// the rate starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Time in which one token comes.
    interval: Duration,
    /// How far `full_at` may lie ahead while a token is still to be had.
    tolerance: Duration,
    /// When the bucket is full again; `None` = it is.
    full_at: Option<Instant>,
}

// === impl Bucket ===

impl Bucket {
    /// Makes a full bucket. A rate of 0 counts as 1: the configuration refuses it, and standing still would look
    /// like a hang.
    pub(super) fn new(per_second: u32) -> Self {
        let mut bucket = Self { interval: Duration::ZERO, tolerance: Duration::ZERO, full_at: None };
        bucket.set_rate(per_second);
        bucket
    }

    /// Has tokens come at another rate from now on. What was spent stays spent.
    pub(super) fn set_rate(&mut self, per_second: u32) {
        let per_second = per_second.max(1);
        self.interval = Duration::from_secs(1) / per_second;
        self.tolerance = self.interval * (per_second / 10).saturating_sub(1);
    }

    /// Takes a token, or says when there will be one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let ready_at = self.ready_at(now);
        if ready_at > now {
            return Err(ready_at);
        }
        self.spend(now);
        Ok(())
    }

    /// Takes a token, also one that is still to come: whoever comes next waits for that much longer.
    pub(super) fn spend(&mut self, now: Instant) {
        self.full_at = Some(self.full_at.map_or(now, |full_at| full_at.max(now)) + self.interval);
    }

    /// Returns when there is a token: now, or later.
    pub(super) fn ready_at(&self, now: Instant) -> Instant {
        self.full_at.and_then(|full_at| full_at.checked_sub(self.tolerance)).map_or(now, |at| at.max(now))
    }

    /// Returns the time in which one token comes.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns whether it is as good as new.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full_at| full_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_sees_more_than_the_rate_and_a_tenth() {
        for rate in [1, 9, 10, 200, 5000] {
            let start = Instant::now();
            let mut bucket = Bucket::new(rate);
            let mut now = start;
            let mut taken = 0;
            while now < start + Duration::from_secs(1) {
                match bucket.take(now) {
                    Ok(()) => taken += 1,
                    Err(at) => {
                        assert!(at > now, "rate {rate}: a wait that does not wait");
                        now = at;
                    }
                }
            }
            // One more for an interval that does not divide the second.
            assert!((rate..=rate + rate / 10 + 1).contains(&taken), "rate {rate}: {taken}");
        }
    }

    #[test]
    fn another_rate_gives_nothing_back() {
        let start = Instant::now();
        let mut bucket = Bucket::new(100);
        let mut taken = 0;
        for _ in 0..50 {
            bucket.set_rate(100);
            taken += (0..100).take_while(|_| bucket.take(start).is_ok()).count();
        }
        assert_eq!(taken, 10);
    }

    #[test]
    fn idle_time_saves_up_no_more_than_the_bucket_holds() {
        let start = Instant::now();
        let mut bucket = Bucket::new(100);
        bucket.take(start).unwrap();
        let later = start + Duration::from_hours(1);
        let burst = (0..100).take_while(|_| bucket.take(later).is_ok()).count();
        assert_eq!(burst, 10);
    }
}
