//! A moment and a span of time, each as one number of nanoseconds.
//!
//! A moment takes 8 bytes instead of the 16 of an `Instant`, and every waiting key stores one or two of them.
//! The range is 584 years; arithmetic saturates at its ends.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the queue was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// A length of time in nanoseconds. Cheaper than a `Duration`, which takes a division to make and another to
/// take apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span(u64);

// === impl Moment ===

impl Moment {
    /// The moment at which the queue was made, from which all moments count.
    pub(super) const START: Self = Self(0);
    /// A moment later than any real one: the result of a sum that overflows.
    pub(super) const NEVER: Self = Self(u64::MAX);

    /// Returns the moment that is `wait` later than this one; [`Self::NEVER`] if the sum overflows.
    #[inline]
    pub(super) fn after(self, wait: impl Into<Span>) -> Self {
        Self(self.0.saturating_add(wait.into().0))
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
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
    /// Returns the span as a `Duration`, for callers outside the queue.
    pub(super) fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(super) fn nanos(self) -> u64 {
        self.0
    }
}

impl From<Duration> for Span {
    #[inline]
    fn from(duration: Duration) -> Self {
        // `as_nanos` computes in 128 bits, which costs more than everything else here.
        let nanos = duration.as_secs().saturating_mul(1_000_000_000);
        Self(nanos.saturating_add(u64::from(duration.subsec_nanos())))
    }
}
