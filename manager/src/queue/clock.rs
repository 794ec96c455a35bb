//! A point in time, as one number.
//!
//! Nanoseconds since the queue was made, in 8 bytes instead of the 16 of an `Instant`: every waiting key stores one
//! or two. The range is 584 years; arithmetic saturates at its ends.

use std::time::Duration;

/// Nanoseconds since the queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

impl Moment {
    /// When the queue was made.
    pub(super) const START: Self = Self(0);
    /// Later than any real moment: what an overflowing sum becomes.
    pub(super) const NEVER: Self = Self(u64::MAX);

    /// Returns the moment `since_start` after the queue was made.
    pub(super) fn new(since_start: Duration) -> Self {
        Self(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns this moment, `wait` later.
    pub(super) fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(Self::new(wait).0))
    }

    /// Returns this moment, `span` earlier; the start at the earliest.
    pub(super) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(Self::new(span).0))
    }

    /// Returns how long after `earlier` this is; zero if it is not after it.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time since the queue was made.
    pub(super) fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}
