//! How often something went wrong, told at most once a minute: what fails once mostly fails each time, and a flood of
//! failures must not become a flood of log lines.

use std::time::Duration;

use tokio::time::Instant;

/// Between two lines of the log about the same.
const PACE: Duration = Duration::from_mins(1);

/// A count, and what of it has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paced {
    count: u64,
    told: u64,
    /// `None` until it was told once.
    told_at: Option<Instant>,
}

// === impl Paced ===

impl Paced {
    /// Counts so many more. Returns how many there were since the last that was told, if it is time to tell.
    pub(crate) fn add(&mut self, more: u64, now: Instant) -> Option<u64> {
        self.count += more;
        if self.told_at.is_some_and(|at| now.saturating_duration_since(at) < PACE) {
            return None;
        }
        self.told_at = Some(now);
        Some(self.count - std::mem::replace(&mut self.told, self.count))
    }

    pub(crate) fn count(self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_goes_on_is_told_at_once_and_then_once_a_minute_with_its_number() {
        let mut paced = Paced::default();
        let start = Instant::now();
        assert_eq!(paced.add(1, start), Some(1), "the first at once");
        for _ in 0..20_000 {
            assert_eq!(paced.add(2, start + PACE - Duration::from_nanos(1)), None);
        }
        assert_eq!(paced.add(1, start + PACE), Some(40_001));
        assert_eq!((paced.add(1, start + PACE), paced.count()), (None, 40_003));
    }
}
