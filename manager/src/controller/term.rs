//! Whether leader-only work may run, and who is still at it.
//!
//! The manager begins and ends terms; workers enter before each run. When a term ends in good order, running work is
//! let finish and the manager waits for it before it releases the Lease. When the Lease is lost, running work is
//! dropped at its next await.
//!
//! # Invariants
//! 1. After `end` or `lose` has returned, `enter` admits nobody until the next `begin`. `begin_granted` begins nothing
//!    unless a `grant` has come since: word of a term that arrives after its end is too late.
//! 2. `ended` returns only while no work of the term is running.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The term of this replica, which has not begun yet. Cheap to clone; all clones are one term.
#[derive(Clone, Default)]
pub struct Term {
    shared: Arc<Shared>,
}

/// Proof that the term knows of a piece of running work; dropping it says that the work has ended.
#[must_use]
pub(crate) struct Work {
    shared: Arc<Shared>,
    name: Arc<str>,
    number: u64,
    lost: CancellationToken,
}

#[derive(Default)]
struct Shared {
    /// Changed only under `inner`, so that nobody enters a term that has ended.
    open: watch::Sender<bool>,
    inner: Mutex<Inner>,
    /// Number of running pieces of work; changed only under `inner`.
    active: watch::Sender<usize>,
}

#[derive(Default)]
struct Inner {
    /// Running work by the name of who runs it.
    running: BTreeMap<Arc<str>, usize>,
    /// Whether a term may begin that has not: set by `grant`, taken by whatever begins or ends it.
    granted: bool,
    /// Counts terms from 1; 0 before the first.
    number: u64,
    /// Cancelled when the current term is lost; a new one for each term.
    lost: CancellationToken,
}

// === impl Term ===

impl Term {
    /// A term that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// A term that has begun: for work that needs no Lease.
    pub fn begun() -> Self {
        let term = Self::new();
        term.begin();
        term
    }

    /// Lets work run.
    pub fn begin(&self) {
        self.grant();
        self.begin_granted();
    }

    /// Lets a term begin, by [`Term::begin_granted`], unless it is ended or lost before. For who hears of the Lease first, and
    /// does not decide when work starts.
    pub(crate) fn grant(&self) {
        self.shared.inner.lock().granted = true;
    }

    /// Lets work run if that was granted, once for each grant. Returns whether it was.
    pub(crate) fn begin_granted(&self) -> bool {
        let mut inner = self.shared.inner.lock();
        if !std::mem::take(&mut inner.granted) {
            return false;
        }
        inner.number += 1;
        inner.lost = CancellationToken::new();
        self.shared.open.send_replace(true);
        true
    }

    /// Lets no new work begin. Work that runs may finish: wait for it with [`Term::ended`].
    pub fn end(&self) {
        let mut inner = self.shared.inner.lock();
        inner.granted = false;
        self.shared.open.send_replace(false);
    }

    /// Lets no new work begin and drops what runs at its next await.
    pub fn lose(&self) {
        let mut inner = self.shared.inner.lock();
        inner.granted = false;
        self.shared.open.send_replace(false);
        inner.lost.cancel();
    }

    /// Waits until no work is running.
    ///
    /// # Cancel safety
    /// Holds no state; dropping it loses nothing.
    pub async fn ended(&self) {
        // The sender lives in `self`, so this cannot end with an error while we wait.
        drop(self.shared.active.subscribe().wait_for(|active| *active == 0).await);
    }

    /// Returns who still runs work, by name.
    pub fn late(&self) -> Vec<Arc<str>> {
        self.shared.inner.lock().running.keys().cloned().collect()
    }

    /// Returns whether work may run, and tells of every change.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.shared.open.subscribe()
    }

    /// Enters a piece of work, unless the term has ended or not begun.
    pub(crate) fn enter(&self, name: impl Into<Arc<str>>) -> Option<Work> {
        let (name, mut inner) = (name.into(), self.shared.inner.lock());
        if !*self.shared.open.borrow() {
            return None;
        }
        *inner.running.entry(Arc::clone(&name)).or_default() += 1;
        self.shared.active.send_modify(|active| *active += 1);
        let (number, lost) = (inner.number, inner.lost.clone());
        Some(Work { shared: Arc::clone(&self.shared), name, number, lost })
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("open", &*self.shared.open.borrow()).field("late", &self.late()).finish()
    }
}

// === impl Work ===

impl Work {
    /// Returns the number of the term it belongs to.
    pub(crate) fn term(&self) -> u64 {
        self.number
    }

    /// Waits until the term is lost; never returns if it ends in good order.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut inner = self.shared.inner.lock();
        if let Some(count) = inner.running.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                inner.running.remove(&self.name);
            }
        }
        self.shared.active.send_modify(|active| *active -= 1);
    }
}

#[cfg(test)]
mod tests;
