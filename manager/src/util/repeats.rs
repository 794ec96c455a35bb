//! A filter for repeated log lines. A failure usually repeats, and many failures must not make as many log
//! lines.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum time between two log lines about repeated occurrences.
const INTERVAL: Duration = Duration::from_mins(1);

/// Counts occurrences: the first is logged at once, later ones at most once a minute, with their number.
///
/// For several kinds of occurrences, use a map with one `LogEvery` for each. To log each of many texts once,
/// use a [`BoundedMap`](super::BoundedMap) of the texts.
///
/// ```
/// # use {mainstay::util::LogEvery, std::time::Duration, tokio::time::Instant};
/// let (mut failures, now) = (LogEvery::default(), Instant::now());
/// assert_eq!(failures.add(1, now), Some(1));
/// assert_eq!(failures.add(5, now), None);
/// assert_eq!(failures.add(1, now + Duration::from_mins(1)), Some(6));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LogEvery {
    count: u64,
    logged: u64,
    /// Time of the last log line; `None` before the first.
    logged_at: Option<Instant>,
}

// === impl LogEvery ===

impl LogEvery {
    /// Counts `more` occurrences. If a log line is due, returns the number of occurrences since the last
    /// line, including these.
    pub fn add(&mut self, more: u64, now: Instant) -> Option<u64> {
        self.count += more;
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(self.count - std::mem::replace(&mut self.logged, self.count))
    }

    /// Returns the total number of occurrences counted.
    pub fn count(self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests;
