//! Filters for repeated log lines. A failure usually repeats, and many failures must not make as many log
//! lines.

use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::BoundedMap;

/// Counts occurrences: the first is logged at once, later ones at most once per interval, with their number.
///
/// For several kinds of occurrences, use a [`BoundedMap`] with one `LogEvery` for each.
///
/// ```
/// # use {mainstay::util::LogEvery, std::time::Duration, tokio::time::Instant};
/// let (mut failures, now) = (LogEvery::default(), Instant::now());
/// assert_eq!(failures.add(1, now), Some(1));
/// assert_eq!(failures.add(5, now), None);
/// assert_eq!(failures.add(1, now + Duration::from_mins(1)), Some(6));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LogEvery {
    interval: Duration,
    count: u64,
    logged: u64,
    /// Time of the last line; `None` before the first.
    logged_at: Option<Instant>,
}

/// Remembers logged lines by key, so that each is logged once.
///
/// ```
/// # use {mainstay::util::LogOnce, tokio::time::Instant};
/// let (mut warnings, now) = (LogOnce::new(100), Instant::now());
/// assert!(warnings.is_first("deprecated", now));
/// assert!(!warnings.is_first("deprecated", now));
/// ```
#[derive(Clone, Debug)]
pub struct LogOnce<K>(BoundedMap<K, ()>);

// === impl LogEvery ===

impl LogEvery {
    /// Makes a filter that allows one line per interval.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, count: 0, logged: 0, logged_at: None }
    }

    /// Counts `more` occurrences. If a line is due, returns the number since the last line, including these.
    pub fn add(&mut self, more: u64, now: Instant) -> Option<u64> {
        self.count += more;
        if self.logged_at.is_some_and(|at| now.saturating_duration_since(at) < self.interval) {
            return None;
        }
        self.logged_at = Some(now);
        Some(self.count - std::mem::replace(&mut self.logged, self.count))
    }

    /// Returns the total number of occurrences.
    pub fn count(self) -> u64 {
        self.count
    }
}

impl Default for LogEvery {
    /// Allows one line per minute.
    fn default() -> Self {
        Self::new(Duration::from_mins(1))
    }
}

// === impl LogOnce ===

impl<K: Clone + Eq + Hash> LogOnce<K> {
    /// Remembers the last `capacity` different lines.
    pub fn new(capacity: usize) -> Self {
        Self(BoundedMap::new(capacity))
    }

    /// Allows a line again once it has not occurred for `quiet`.
    #[must_use]
    pub fn again_after(self, quiet: Duration) -> Self {
        Self(self.0.expire_after(quiet))
    }

    /// Records an occurrence of a line and returns whether to log it.
    pub fn is_first(&mut self, key: K, now: Instant) -> bool {
        self.0.insert(key, (), now).is_none()
    }
}

#[cfg(test)]
mod tests;
