//! The term: whether leader-only work may run, and which work still runs.
//!
//! The manager begins and ends terms; workers enter before each run. When a term ends in order, running work
//! finishes and the manager waits for it before it releases the Lease. When the Lease is lost, running work
//! is dropped at its next await.
//!
//! # Invariants
//! 1. After `end` or `lose` has returned, `enter` returns `None` until the next `begin`. `begin_granted`
//!    begins a term only after a new `grant`, so the news of a term that arrives after its end is ignored.
//! 2. `ended` returns only while no work of the term is running.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The term of leadership of this replica, in which leader-only work may run. Cheap to clone; all clones are
/// one term.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Term {{ open: {:?}, late: {:?} }}", *self.shared.open.borrow(), self.late())]
pub struct Term {
    shared: Arc<Shared>,
}

/// A guard that counts a piece of work as running in the term of leadership until the guard is dropped.
#[must_use]
pub(crate) struct Work {
    shared: Arc<Shared>,
    name: Arc<str>,
    number: u64,
    lost: CancellationToken,
}

#[derive(Default)]
struct Shared {
    /// Whether the term is open, so that work may begin. Changed only under `inner`, so that no work enters a
    /// term that has ended.
    open: watch::Sender<bool>,
    inner: Mutex<Inner>,
    /// The number of pieces of work running in the term, by the name of their controller or runnable.
    running: watch::Sender<BTreeMap<Arc<str>, usize>>,
}

#[derive(Default)]
struct Inner {
    /// Whether `begin_granted` may begin a term of leadership: set by `grant`, reset by every begin and end.
    granted: bool,
    /// Number of the latest term of leadership, counted from 1; 0 before the first.
    number: u64,
    /// Cancelled when the current term of leadership is lost; a new one for each term.
    lost: CancellationToken,
}

// === impl Term ===

impl Term {
    /// Makes a term of leadership that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a term that has begun and stays open: for work that needs no Lease.
    pub fn begun() -> Self {
        let term = Self::new();
        term.begin();
        term
    }

    /// Begins a term of leadership: work may run.
    pub fn begin(&self) {
        self.grant();
        self.begin_granted();
    }

    /// Allows one [`Term::begin_granted`] to begin a term of leadership, until the next `end` or `lose`. The
    /// elector calls it; the manager decides when work starts.
    pub(crate) fn grant(&self) {
        self.shared.inner.lock().granted = true;
    }

    /// Begins a term of leadership if it was granted, once for each grant. Returns whether it began.
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

    /// Ends the term of leadership in order: no work begins, and running work may finish. Wait for it with
    /// [`Term::ended`].
    pub fn end(&self) {
        let mut inner = self.shared.inner.lock();
        inner.granted = false;
        self.shared.open.send_replace(false);
    }

    /// Ends the term of leadership at once: no work begins, and running work is dropped at its next await.
    pub fn lose(&self) {
        let mut inner = self.shared.inner.lock();
        inner.granted = false;
        self.shared.open.send_replace(false);
        inner.lost.cancel();
    }

    /// Waits until no work of the term is running.
    ///
    /// # Cancel safety
    /// Holds no state, so it may be dropped at any time.
    pub async fn ended(&self) {
        // The sender lives in `self`, so the channel does not close during the wait.
        drop(self.shared.running.subscribe().wait_for(BTreeMap::is_empty).await);
    }

    /// Returns the names of the controllers and runnables that have work running in the term.
    pub fn late(&self) -> Vec<Arc<str>> {
        self.shared.running.borrow().keys().cloned().collect()
    }

    /// Returns a channel that publishes whether the term is open, so that work may run.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.shared.open.subscribe()
    }

    /// Counts a piece of work of this name as running until the returned guard is dropped; `None` if no term
    /// is open.
    pub(crate) fn enter(&self, name: impl Into<Arc<str>>) -> Option<Work> {
        let (name, inner) = (name.into(), self.shared.inner.lock());
        if !*self.shared.open.borrow() {
            return None;
        }
        // Under the lock, so that `ended` finds all work of a term that has ended.
        self.shared.running.send_modify(|running| *running.entry(Arc::clone(&name)).or_default() += 1);
        let (number, lost) = (inner.number, inner.lost.clone());
        Some(Work { shared: Arc::clone(&self.shared), name, number, lost })
    }
}

// === impl Work ===

impl Work {
    /// Returns the number of the term in which the work runs.
    pub(crate) fn term(&self) -> u64 {
        self.number
    }

    /// Waits until the term of the work is lost; never returns if it ends in order.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.shared.running.send_modify(|running| {
            if let Some(count) = running.get_mut(&self.name) {
                *count -= 1;
                if *count == 0 {
                    running.remove(&self.name);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
