//! The time until which this replica may write to the cluster.
//!
//! The elector moves the end, and the connector of leader-only work checks it in every `poll_write`. So a
//! request in a buffer of a stalled replica is not sent once the fence is closed, whichever code made the
//! request.
//!
//! # Invariants
//! 1. A pass taken before a `close` is never valid again, however often the fence reopens.
//! 2. The clock alone closes an expired fence; no task has to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::util::os::boot_time;

/// A time on the boot clock, which on Linux and macOS advances while the machine is suspended.
///
/// Leases are timed on it, so that a replica resumed after a suspend finds its fence expired at once. The
/// monotonic clock stands still during a suspend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(Duration);

/// The right of one replica to write to the cluster, which ends at a set time unless it is extended. Clones
/// share one fence.
#[derive(Clone, Debug)]
pub struct Fence {
    inner: Arc<Inner>,
}

/// The right to write during one term of a fence; a connection takes a pass when it is opened.
#[derive(Clone, Debug)]
pub struct FencePass {
    fence: Fence,
    term: u64,
}

#[derive(Debug)]
struct Inner {
    /// End of the fence's current term in nanoseconds of boot time; 0 = closed, `u64::MAX` = never ends. Only
    /// `extend` and `close` write it; `SeqCst`, so that a thread that sees a new term also sees its end.
    until: AtomicU64,
    /// Number of the fence's term; `close` increments it and wakes [`FencePass::revoked`].
    term: watch::Sender<u64>,
}

// === impl BootInstant ===

impl BootInstant {
    /// Returns the present time on the boot clock.
    pub fn now() -> Self {
        Self(boot_time())
    }

    /// Returns the time on the boot clock this long after boot; for tests and models.
    pub const fn from_boot(since: Duration) -> Self {
        Self(since)
    }

    /// Returns the time that has passed since `earlier`; zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX - 1)
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

// === impl Fence ===

impl Fence {
    /// Makes a fence that allows no writes until [`Fence::extend`], for a candidate.
    pub fn closed() -> Self {
        Self::with_end(0)
    }

    /// Makes a fence that always allows writes, for a manager without leader election.
    pub fn open() -> Self {
        Self::with_end(u64::MAX)
    }

    fn with_end(until: u64) -> Self {
        Self { inner: Arc::new(Inner { until: AtomicU64::new(until), term: watch::Sender::new(0) }) }
    }

    /// Moves the end of the fence's term to `until`: writes may be sent until then. Opens the fence if it was
    /// closed.
    pub fn extend(&self, until: BootInstant) {
        self.inner.until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// Closes the fence: ends its term at once; no pass taken before becomes valid again.
    pub fn close(&self) {
        self.inner.until.store(0, Ordering::SeqCst);
        self.inner.term.send_modify(|term| *term += 1);
    }

    /// Returns whether the fence allows writes now.
    pub fn is_open(&self) -> bool {
        self.left().is_none_or(|left| !left.is_zero())
    }

    /// Returns for how long the fence still allows writes without a renewal; zero if it is closed, `None` if
    /// it never ends.
    pub fn left(&self) -> Option<Duration> {
        match self.inner.until.load(Ordering::SeqCst) {
            u64::MAX => None,
            until => Some(Duration::from_nanos(until.saturating_sub(BootInstant::now().as_nanos()))),
        }
    }

    /// Returns a pass for the fence's current term; taken while the fence is closed, it is valid from the
    /// next `extend`.
    pub fn pass(&self) -> FencePass {
        FencePass { fence: self.clone(), term: *self.inner.term.borrow() }
    }
}

// === impl FencePass ===

impl FencePass {
    /// Returns whether a write may be sent with this pass now.
    pub fn admits(&self) -> bool {
        *self.fence.inner.term.borrow() == self.term && self.fence.is_open()
    }

    /// Waits for the [`Fence::close`] that ends the term of this pass. It does not wake when the fence only
    /// expires; [`FencePass::admits`] returns false from then on.
    ///
    /// # Cancel safety
    /// The future holds no state and can be dropped at any time.
    pub async fn revoked(self) {
        let mut term = self.fence.inner.term.subscribe();
        // `self.fence` owns the sender, so the channel cannot close during the wait.
        drop(term.wait_for(|term| *term != self.term).await);
    }
}

#[cfg(test)]
mod tests;
