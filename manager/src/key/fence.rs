//! Until when this replica may write.
//!
//! Election sets it, the connector of leader-only work reads it at every `poll_write`, and nobody else needs to
//! be trusted: a request that a stalled replica still holds in a buffer cannot leave once the fence is closed.
//!
//! # Invariants
//! 1. A pass taken before a `close` is never valid again, however often the fence reopens.
//! 2. An expired fence is closed by the clock alone; no task has to run for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::util::os::boot_time;

/// A moment on the clock since boot, which on Linux and macOS goes on while the machine is suspended.
///
/// The Lease is counted on it: a replica thawed after a pause must know at once that its time is over, and the
/// monotonic clock would not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(Duration);

/// The right of one replica to write, with an end. Cheap to clone; all clones are one fence.
#[derive(Clone, Debug)]
pub struct Fence {
    inner: Arc<Inner>,
}

/// The right to write during one term: what a connection keeps from the moment it was opened.
#[derive(Clone, Debug)]
pub struct FencePass {
    fence: Fence,
    term: u64,
}

#[derive(Debug)]
struct Inner {
    /// End of the current term in nanoseconds of boot time; 0 = closed, `u64::MAX` = never ends. Written only by
    /// `extend` and `close`; `SeqCst`, so that a writer that saw a term also sees its end.
    until: AtomicU64,
    /// Counts terms; a `close` ends one. Subscribers wake on it.
    term: watch::Sender<u64>,
}

// === impl BootInstant ===

impl BootInstant {
    /// Returns the present moment.
    pub fn now() -> Self {
        Self(boot_time())
    }

    /// Returns a moment this long after boot; for tests and models.
    pub const fn from_boot(since: Duration) -> Self {
        Self(since)
    }

    /// Returns how long after `earlier` this is; zero if it is not after it.
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
    /// A fence that is closed until extended: the start of every candidate.
    pub fn closed() -> Self {
        Self::with_end(0)
    }

    /// A fence that never closes by itself: for a manager without leader election.
    pub fn open() -> Self {
        Self::with_end(u64::MAX)
    }

    fn with_end(until: u64) -> Self {
        Self { inner: Arc::new(Inner { until: AtomicU64::new(until), term: watch::Sender::new(0) }) }
    }

    /// Moves the end of the term to `until`, opening the fence if it was closed.
    pub fn extend(&self, until: BootInstant) {
        self.inner.until.store(until.as_nanos(), Ordering::SeqCst);
    }

    /// Ends the term at once: every pass taken so far is void for good.
    pub fn close(&self) {
        self.inner.until.store(0, Ordering::SeqCst);
        self.inner.term.send_modify(|term| *term += 1);
    }

    /// Returns whether writes may leave now.
    pub fn is_open(&self) -> bool {
        match self.inner.until.load(Ordering::SeqCst) {
            u64::MAX => true,
            until => BootInstant::now().as_nanos() < until,
        }
    }

    /// Returns how long writes may leave from now on without a renewal; zero once they may not, `None` if they always may.
    pub fn left(&self) -> Option<Duration> {
        match self.inner.until.load(Ordering::SeqCst) {
            u64::MAX => None,
            until => Some(Duration::from_nanos(until.saturating_sub(BootInstant::now().as_nanos()))),
        }
    }

    /// Takes a pass for the current term. It may be taken while the fence is closed, and is then good for the
    /// term that begins with the next `extend`.
    pub fn pass(&self) -> FencePass {
        FencePass { fence: self.clone(), term: *self.inner.term.borrow() }
    }
}

// === impl FencePass ===

impl FencePass {
    /// Returns whether a write may leave under this pass now.
    pub fn admits(&self) -> bool {
        *self.fence.inner.term.borrow() == self.term && self.fence.is_open()
    }

    /// Waits until the term of this pass is closed. An end by the clock alone does not wake it: then there is
    /// nothing to hurry for, since no write passes.
    ///
    /// # Cancel safety
    /// Holds no state; dropping it loses nothing.
    pub async fn revoked(self) {
        let mut term = self.fence.inner.term.subscribe();
        // The sender lives in `self.fence`, so this cannot end with an error while we wait.
        drop(term.wait_for(|term| *term != self.term).await);
    }
}

#[cfg(test)]
mod tests;
