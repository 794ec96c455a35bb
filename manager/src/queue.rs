//! One entry per key, whatever happens: the work queue of a controller.
//!
//! Sources add keys, workers take them with [`WorkQueue::get`], which hands out a guard, and the guard's end says what
//! becomes of the key. A key is **delayed** until a moment (a backoff, or a `RequeueAfter`), **ready** in one of the
//! lanes, **running**, running and **dirty** (added meanwhile), or **parked** (failed for good, waits for a change).
//!
//! Every add is weak or strong. A strong one says that the world has changed, so it ends a backoff and wakes a parked
//! key; a weak one (a resync, an echo of our own write) does neither, so that a failing object does not defeat its own
//! backoff by writing its status.
//!
//! - **Lanes**: live events go before new objects, these before initial lists, all before retries, which have a share of
//!   the workers and a turn now and then. Whoever has been ready for `max_wait` goes before everybody: nothing starves.
//! - **Outcomes**: `done` lets the key go, `requeue_after` brings it back without a failure, `retry` puts it on the
//!   backoff of its [`RetryPolicy`], `terminal` and `park` set it aside until a strong add, `put_back` undoes the
//!   hand-out. A guard that is dropped counts as a failure, unless the queue shuts down or does not lead.
//! - **Depth**: a full queue refuses new background keys, and says when there is room for the source to come again.
//! - **Shutdown**: at once, or drained: ready and dirty keys are still handed out, delayed ones stay listed.
//! - Every setting can change while the queue runs, and every key can be listed with what is known about it.
//!
//! # Alone, with keys of one's own
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
//! 1. A key is never with two workers at once, and any number of adds during a run gives exactly one more run.
//! 2. No add is lost: after an accepted add the key runs, unless the queue is shut down.
//! 3. Ready keys never pass a timer. Delayed keys share one, which a sleeping caller of `get` holds; a queue that
//!    nobody waits on costs no task and no wake-up.
//! 4. No sleeping caller while a key may be handed out: whoever takes one wakes the next caller if there is more.
//!
//! # Locks
//! One lock per queue, never held over an await, a callback or a log line. A key's own `Hash`, `Eq`, `Clone` and `Drop`
//! run under it: they should be short, and must not call the queue. One of the first three that panics leaves the key
//! where it was; a `Drop` must not.
//! A scrape takes the registry's lock, and under it the list of queues and then one queue after the other, each by
//! itself; nothing is taken the other way round.
//!
//! No hold grows with the keys: an operation moves on `SLICE` other keys at most, a snapshot copies `CHUNK`, the index
//! grows by a bucket, and a page of memory that has become empty is freed after the lock is released, because what the
//! allocator makes of that may take milliseconds. Of a million keys the longest hold is some hundred microseconds, the
//! ordinary one some tens of nanoseconds. A key's way through, add, get and done, reads the clock three times and
//! allocates nothing; what lies on it is inlined by hint, which is worth a tenth. `cargo bench -p mainstay --bench queue`
//! prints the figures.
//!
//! Differs from client-go's queue (<https://pkg.go.dev/k8s.io/client-go/util/workqueue>): a delayed and an immediate
//! add of one key are one entry, shutting down at once leaves ready keys where they are, and a drain waits for ready
//! keys too and wakes every waiter.

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

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::task::coop::consume_budget;

use crate::key::Key;

use machine::{Inner, Phase};
use shared::Shared;

pub use add::{Add, Added, Band, Lane, Retried, Strength};
pub use metrics::QueueMetrics;
pub use retry::{
    DEFAULT_BASE_DELAY, DEFAULT_FACTOR, DEFAULT_JITTER_PERCENT, DEFAULT_MAX_DELAY, Delay, MAX_ASKED_WAIT,
    Rate, RetryPolicy,
};
pub use running::Running;
pub use settings::{DEFAULT_MAX_WAIT, DEFAULT_RETRY_SHARE, QueueSettings, SettingsProblem};
pub use snapshot::{Counts, KeySnapshot, Snapshot, State};

/// A queue of keys. Cheap to clone; all clones are one queue.
///
/// ```
/// use mainstay::key::{NamespacedName, Trigger, Cause};
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
pub struct WorkQueue<Q: Key> {
    shared: Arc<Shared<Q>>,
}

// === impl WorkQueue ===

impl<Q: Key> WorkQueue<Q> {
    /// Makes an empty queue that leads: keys are handed out until [`Self::set_leading`] says otherwise. `workers` is
    /// how many callers of `get` there will be; the share of retries is counted by it.
    pub fn new(name: &str, settings: QueueSettings, workers: usize, metrics: &QueueMetrics) -> Self {
        Self::with_random(name, settings, workers, metrics, fastrand::Rng::new())
    }

    /// Makes a queue whose jitter is drawn from a given source, so that a test can repeat it.
    pub fn with_random(
        name: &str,
        settings: QueueSettings,
        workers: usize,
        metrics: &QueueMetrics,
        random: fastrand::Rng,
    ) -> Self {
        let shared = Arc::new(Shared::new(name, settings, workers, random));
        let observed: Weak<Shared<Q>> = Arc::downgrade(&shared);
        metrics.observe(observed);
        Self { shared }
    }

    /// Ends its series in `metrics`, which otherwise end with the last clone.
    pub fn leave(&self, metrics: &QueueMetrics) {
        let observed: Weak<Shared<Q>> = Arc::downgrade(&self.shared);
        metrics.forget(&(observed as Weak<dyn metrics::Observed>));
    }

    /// Returns the name given at the start.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Puts other settings in force, for the keys that are there too: a backoff longer than the new policy's ends
    /// with the new one, and a key that is parked because it was out of attempts is tried again if there are more now.
    pub fn reconfigure(&self, settings: QueueSettings, workers: usize) {
        self.shared.with(|inner| inner.reconfigure(settings, workers));
    }

    /// Adds a key, or tells the queue that something happened to a key it has.
    #[inline]
    pub fn add(&self, key: Q, add: Add) -> Added {
        self.shared.with(|inner| inner.add(key, add))
    }

    /// Waits for a key to work on. `None` means that the queue is shut down and nothing is left to do.
    ///
    /// # Cancel safety
    /// Cancelling loses nothing: a key is taken in the same poll in which it is returned.
    pub async fn get(&self) -> Option<Running<Q>> {
        // A worker that always finds a key ready would otherwise never let another task of its thread run.
        consume_budget().await;
        match self.try_get() {
            Some(running) => Some(running),
            None => self.shared.wait().await,
        }
    }

    /// Takes a key if one may be handed out now.
    #[inline]
    pub fn try_get(&self) -> Option<Running<Q>> {
        let job = self.shared.with(Inner::try_take)?;
        Some(Running::new(Arc::clone(&self.shared), job))
    }

    /// Forgets a key's failures: its next failure counts as the first. A waiting key keeps its moment; a parked one
    /// goes.
    pub fn forget(&self, key: &Q) {
        self.shared.with(|inner| inner.forget(key));
    }

    /// Says whether this replica leads. While it does not, keys are taken in and kept warm but not handed out, the
    /// depth gauges read 0, and a run that is dropped is nobody's failure. How long keys have been ready counts from
    /// the moment it begins to lead.
    pub fn set_leading(&self, leading: bool) {
        self.shared.with(|inner| inner.set_leading(leading));
    }

    /// Shuts the queue down at once: every `get` returns `None` and further adds are ignored. Runs under way can
    /// still end. Also ends a drain, as a second SIGTERM should.
    pub fn shut_down(&self) {
        self.shared.with(|inner| inner.shut_down(Phase::Stopped));
    }

    /// Shuts the queue down once its work is done: further adds are ignored, ready and dirty keys are still handed
    /// out, delayed ones are not waited for. Returns when nothing is ready or running any more, or
    /// [`Self::shut_down`] is called; any number of callers may wait.
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

    /// Waits until the queue has room again: at most half of `max_depth` is ready. A source that was
    /// [refused](Added::Refused) then sweeps its store again, which loses nothing and needs no list of what it owes.
    /// Also returns when the queue shuts down.
    ///
    /// # Cancel safety
    /// Cancelling stops waiting and has no other effect.
    pub async fn drained(&self) {
        loop {
            let room = self.shared.room.notified();
            if self.shared.with(Inner::has_drained) {
                return;
            }
            room.await;
        }
    }

    /// Lists everything the queue holds, a few hundred keys per hold of the lock.
    pub fn snapshot(&self) -> Snapshot<Q> {
        let counts = self.counts();
        let mut keys = Vec::new();
        self.visit(|key| keys.push(key));
        Snapshot { name: Arc::clone(&self.shared.name), counts, keys }
    }

    /// Tells `visitor` of each key a snapshot would list, without holding all of them at once and never under the
    /// lock.
    pub fn visit(&self, mut visitor: impl FnMut(KeySnapshot<Q>)) {
        let mut chunk = Vec::new();
        let mut next = Some(0);
        while let Some(start) = next {
            next = self.shared.with(|inner| inner.list_chunk(start, &mut chunk));
            chunk.drain(..).for_each(&mut visitor);
        }
    }

    /// Returns how many keys are in which state.
    pub fn counts(&self) -> Counts {
        self.shared.with(|inner| inner.counts())
    }

    /// Returns what is known about one key; `None` if the queue does not have it.
    pub fn find(&self, key: &Q) -> Option<KeySnapshot<Q>> {
        self.shared.with(|inner| {
            let slot = inner.slots.find(key)?;
            inner.slots.peek(slot).map(|slot| inner.describe(slot))
        })
    }
}

impl<Q: Key> Clone for WorkQueue<Q> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<Q: Key> fmt::Debug for WorkQueue<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
