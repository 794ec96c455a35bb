//! The work queue of a controller: one entry per key, however often the key is added.
//!
//! Sources add keys, and workers take them with [`WorkQueue::get`], which returns a guard; the outcome that
//! the worker calls on the guard decides the next state of the key. A key is **delayed** until a moment (a
//! backoff, or a `RequeueAfter`), **ready** in one of the lanes, **running**, running and **dirty** (added
//! during its run), or **parked** (failed for good, waits for a change).
//!
//! Every add is weak or strong. A strong add reports a change, so it ends a backoff and wakes a parked key; a
//! weak add (a resync, an echo of an own write) does neither, so that a failing object does not defeat its
//! own backoff by writing its status.
//!
//! - **Lanes**: live events go before new objects, these before initial lists, and all of them before
//!   retries, which have a share of the workers and a share of the turns. A key that has been ready for
//!   `max_wait` goes before all others, so no key starves.
//! - **Outcomes**: `done` removes the key, `requeue_after` brings it back without a failure, `retry` delays
//!   it by the backoff of its [`RetryPolicy`], `fail` by any [`Retry`], `park` sets it aside until a strong
//!   add, `put_back` undoes the hand-out. A guard that is dropped counts as a failure, unless the queue
//!   shuts down or does not lead.
//! - **Depth**: a full queue refuses new background keys, and [`WorkQueue::wait_for_room`] returns when their
//!   source may add them again.
//! - **Shutdown**: at once, or with a drain: ready and dirty keys are still handed out, delayed ones stay
//!   listed.
//! - Every setting can change while the queue runs, and every key can be listed with its state and history.
//!
//! # Without a manager, with keys of any type
//! ```
//! use std::fmt;
//! use mainstay::key::{Cause, Key, Trigger};
//! use mainstay::metrics::Registry;
//! use mainstay::queue::{Add, QueueMetrics, QueueSettings, WorkQueue};
//!
//! #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
//! struct Disk(&'static str);
//!
//! impl Key for Disk {
//!     fn namespace(&self) -> Option<&str> {
//!         None
//!     }
//!
//!     fn name(&self) -> &str {
//!         self.0
//!     }
//! }
//!
//! impl fmt::Display for Disk {
//!     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
//!         f.write_str(self.0)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let metrics = QueueMetrics::register(&Registry::new());
//! let disks = WorkQueue::new("disks", QueueSettings::default(), 1, &metrics);
//! disks.add(Disk("sda"), Add::strong(Cause::bare(Trigger::Generic)));
//!
//! let running = disks.get().await.unwrap();
//! running.retry("the disk is busy");
//!
//! let again = disks.get().await.unwrap();
//! assert_eq!((again.key(), again.attempt()), (&Disk("sda"), 2));
//! again.done();
//! # });
//! ```
//!
//! # Invariants
//! 1. No two workers have the same key at once, and any number of adds during a run gives exactly one more
//!    run.
//! 2. No add is lost: after an accepted add the key runs, unless the queue is shut down.
//! 3. Ready keys use no timer. Delayed keys share one, which a sleeping caller of `get` holds; a queue
//!    without callers costs no task and no wake-up.
//! 4. No caller sleeps while a key may be handed out: a caller that takes a key wakes the next one if there
//!    are more.
//!
//! # Locks
//! One lock per queue, never held over an await, a callback or a log line. A key's own `Hash`, `Eq`, `Clone`
//! and `Drop` run under it: they should be short, and must not call the queue. If `Hash`, `Eq` or `Clone`
//! panics, the key stays in its state; `Drop` must not panic. A scrape takes the registry's lock, and under
//! it the lock of the list of queues and then the lock of one queue after the other; no code takes them in
//! another order.
//!
//! The length of a hold does not grow with the number of keys: an operation moves at most `SLICE` other
//! keys, a snapshot copies `CHUNK`, the index grows by a bucket, and a page of memory that has become empty
//! is freed after the lock is released, because the allocator may take milliseconds for it. With a million
//! keys the longest hold is some hundred microseconds, the usual one some tens of nanoseconds. One cycle of
//! a key, add, get and done, reads the clock three times and does not allocate; its functions are marked
//! `inline`, which is worth a tenth. `cargo bench -p mainstay --bench queue` prints the figures.
//!
//! Differs from client-go's queue (<https://pkg.go.dev/k8s.io/client-go/util/workqueue>): a delayed and an
//! immediate add of one key are one entry, shutting down at once leaves ready keys where they are, and a
//! drain waits for ready keys too and wakes every waiter.

mod add;
mod running;
mod settings;
mod snapshot;

mod shared;

mod machine;
mod moves;
mod waking;

mod lanes;
mod retry;

mod clock;
mod delays;
mod lists;
mod metrics;
mod slots;

mod index;
mod pages;

use std::sync::Arc;

use tokio::task::coop::consume_budget;

use crate::key::Key;

use machine::{Inner, Phase};
use shared::Shared;

pub use add::{Add, Added, Band, Lane, Retried, Strength};
pub use metrics::QueueMetrics;
pub use retry::{
    DEFAULT_BASE_DELAY, DEFAULT_FACTOR, DEFAULT_JITTER_PERCENT, DEFAULT_MAX_DELAY, Delay, MAX_ASKED_WAIT,
    Rate, Retry, RetryPolicy,
};
pub use running::Running;
pub use settings::{DEFAULT_MAX_WAIT, DEFAULT_RETRY_SHARE, QueueSettings, SettingsProblem};
pub use snapshot::{Counts, KeySnapshot, State};

/// A queue of keys. Cheap to clone; all clones are one queue.
///
/// ```
/// use mainstay::key::{Cause, NamespacedName, Trigger};
/// use mainstay::metrics::Registry;
/// use mainstay::queue::{Add, QueueMetrics, QueueSettings, WorkQueue};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let metrics = QueueMetrics::register(&Registry::new());
/// let queue = WorkQueue::new("demo", QueueSettings::default(), 2, &metrics);
/// queue.add(NamespacedName::namespaced("shop", "web"), Add::strong(Cause::bare(Trigger::Generic)));
///
/// let running = queue.get().await.unwrap();
/// assert_eq!(running.key().to_string(), "shop/web");
/// running.done();
///
/// queue.shut_down();
/// assert!(queue.get().await.is_none());
/// # });
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("WorkQueue {{ name: {:?}, .. }}", self.shared.name)]
pub struct WorkQueue<Q: Key> {
    shared: Arc<Shared<Q>>,
}

// === impl WorkQueue ===

impl<Q: Key> WorkQueue<Q> {
    /// Makes an empty queue that leads: workers receive keys until [`Self::set_leading`] is called with
    /// `false`. `workers` is the number of callers of `get`, from which the share of retries is computed.
    pub fn new(name: &str, settings: QueueSettings, workers: usize, metrics: &QueueMetrics) -> Self {
        let shared = Arc::new(Shared::new(name, settings, workers));
        metrics.observe(&shared);
        Self { shared }
    }

    /// Removes the metric series of this queue from `metrics` at once. Without this call they end when the
    /// last clone of the queue is dropped.
    pub fn leave(&self, metrics: &QueueMetrics) {
        metrics.forget(&self.shared);
    }

    /// Returns the name of the queue, as given to [`Self::new`].
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Replaces the settings and the number of workers, for waiting keys too: a backoff ends no later than
    /// one of the new policy, and a key that was parked because it was out of attempts is retried if the new
    /// policy allows more.
    pub fn reconfigure(&self, settings: QueueSettings, workers: usize) {
        self.shared.with(|inner| inner.reconfigure(settings, workers));
    }

    /// Adds a key to the queue, or merges the add into the entry of a key that is already in it.
    #[inline]
    pub fn add(&self, key: Q, add: Add) -> Added {
        tracing::trace!(queue = self.name(), %key, "add");
        self.shared.with(|inner| inner.add(key, add))
    }

    /// Waits for the next key to reconcile, and returns the guard of its run. `None` means that the queue is
    /// shut down and hands out no more keys.
    ///
    /// # Cancel safety
    /// Cancelling loses no key: a key is taken in the same poll in which it is returned.
    pub async fn get(&self) -> Option<Running<Q>> {
        // A worker that always finds a key ready would otherwise never let another task of its thread run.
        consume_budget().await;
        match self.try_get() {
            Some(running) => Some(running),
            None => self.shared.wait().await,
        }
    }

    /// Takes the next key without waiting, and returns the guard of its run; `None` if no key may be handed
    /// out now.
    #[inline]
    pub fn try_get(&self) -> Option<Running<Q>> {
        let job = self.shared.with(Inner::try_take)?;
        Some(Running::new(Arc::clone(&self.shared), job))
    }

    /// Sets whether this replica leads. While it does not, keys are accepted and kept but not handed out, the
    /// depth gauges read 0, and a run that is dropped does not count as a failure. How long keys have been
    /// ready counts from the moment at which the replica begins to lead.
    pub fn set_leading(&self, leading: bool) {
        self.shared.with(|inner| inner.set_leading(leading));
    }

    /// Shuts the queue down at once: every `get` returns `None` and further adds are ignored. Runs under way
    /// can still end. Also ends a drain, as a second SIGTERM should.
    pub fn shut_down(&self) {
        self.shared.with(|inner| inner.shut_down(Phase::Stopped));
    }

    /// Shuts the queue down after a drain: further adds are ignored, ready keys and keys added during their
    /// run are still handed out, and delayed ones are not waited for. Returns when no key is ready or running
    /// any more, or [`Self::shut_down`] is called; any number of callers may wait.
    ///
    /// # Cancel safety
    /// Cancelling stops waiting; the queue keeps draining.
    pub async fn shut_down_with_drain(&self) {
        self.shared.with(|inner| inner.shut_down(Phase::Draining));
        loop {
            let ended = self.shared.ended.notified();
            if self.shared.with(|inner| inner.is_drained()) {
                return;
            }
            ended.await;
        }
    }

    /// Waits until the queue has room again: at most half of `max_depth` keys are ready. A source with
    /// [refused](Added::Refused) adds then adds all keys of its store again, which loses no key and needs no
    /// list of the refused ones. Also returns when the queue shuts down.
    ///
    /// # Cancel safety
    /// Cancelling stops waiting and has no other effect.
    pub async fn wait_for_room(&self) {
        loop {
            let room = self.shared.room.notified();
            if self.shared.with(Inner::has_room) {
                return;
            }
            room.await;
        }
    }

    /// Passes every key of the queue to `visitor`, in no order. Reads a few hundred keys per hold of the lock
    /// while the queue goes on, so that a key which leaves and comes back meanwhile may be visited twice or
    /// not at all; `visitor` runs without the lock.
    pub fn visit(&self, mut visitor: impl FnMut(KeySnapshot<Q>)) {
        let mut chunk = Vec::new();
        let mut next = Some(0);
        while let Some(start) = next {
            next = self.shared.with(|inner| inner.list_chunk(start, &mut chunk));
            chunk.drain(..).for_each(&mut visitor);
        }
    }

    /// Returns the number of keys in each state of the queue, with a few other figures of the same moment.
    pub fn counts(&self) -> Counts {
        self.shared.with(|inner| inner.counts())
    }

    /// Returns the present state of one key as a snapshot; `None` if the queue does not have the key.
    pub fn find(&self, key: &Q) -> Option<KeySnapshot<Q>> {
        self.shared.with(|inner| inner.slots.find(key).map(|slot| inner.describe(inner.slots.get(slot))))
    }
}

#[cfg(test)]
mod tests;
