//! How often something went wrong, told at most once a minute: code of users that fails once mostly fails each time.

use std::time::Duration;

use tokio::time::Instant;

/// Between two lines of the log about the same.
const PACE: Duration = Duration::from_mins(1);

/// A count, and what of it has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paced {
    count: u64,
    told: u64,
    /// `None` until it was told once.
    told_at: Option<Instant>,
}

// === impl Paced ===

impl Paced {
    /// Counts one more. Returns how many there were since the last that was told, if it is time to tell.
    pub(super) fn add(&mut self) -> Option<u64> {
        self.count += 1;
        if self.told_at.is_some_and(|at| at.elapsed() < PACE) {
            return None;
        }
        self.told_at = Some(Instant::now());
        Some(self.count - std::mem::replace(&mut self.told, self.count))
    }

    pub(super) fn count(self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_goes_on_is_told_once_a_minute_with_its_number() {
        let mut paced = Paced::default();
        assert_eq!(paced.add(), Some(1), "the first at once");
        for _ in 0..20_000 {
            assert_eq!(paced.add(), None);
        }
        tokio::time::advance(PACE).await;
        assert_eq!(paced.add(), Some(20_001));
        assert_eq!((paced.add(), paced.count()), (None, 20_003));
    }
}
