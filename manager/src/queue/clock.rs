//! A point in time, and a length of it, as one number each.
//!
//! A moment is nanoseconds since the queue was made, in 8 bytes instead of the 16 of an `Instant`: every waiting key
//! stores one or two. The range is 584 years; arithmetic saturates at its ends.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since the queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// Nanoseconds from one moment to another. A `Duration` takes a division to make, and another to take apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span(u64);

// === impl Moment ===

impl Moment {
    /// When the queue was made.
    pub(super) const START: Self = Self(0);
    /// Later than any real moment: what an overflowing sum becomes.
    pub(super) const NEVER: Self = Self(u64::MAX);

    /// Returns the moment `since_start` after the queue was made.
    #[inline]
    pub(super) fn new(since_start: Duration) -> Self {
        Self(Span::from(since_start).0)
    }

    /// Returns this moment, `wait` later.
    #[inline]
    pub(super) fn after(self, wait: impl Into<Span>) -> Self {
        Self(self.0.saturating_add(wait.into().0))
    }

    /// Returns how long after `earlier` this is; nothing if it is not after it.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time since the queue was made.
    pub(super) fn since_start(self) -> Duration {
        self.since(Self::START).duration()
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        self.after(wait)
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier).duration()
    }
}

// === impl Span ===

impl Span {
    /// Returns it in the form the world outside the queue knows.
    pub(super) fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(super) fn nanos(self) -> u64 {
        self.0
    }

    pub(super) fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Duration> for Span {
    #[inline]
    fn from(duration: Duration) -> Self {
        // Not `as_nanos`, whose 128 bits cost more than everything else here.
        let nanos = duration.as_secs().saturating_mul(1_000_000_000);
        Self(nanos.saturating_add(u64::from(duration.subsec_nanos())))
    }
}
