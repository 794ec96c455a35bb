//! The way of sources to the queue of their controller, and the count of sources that have not synced.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::watch;
use tracing::{error, trace};

use crate::key::{Cause, Key, panic_text};
use crate::queue::{Add, Added, WorkQueue};

/// Handle of one source, by which it enqueues keys on the queue of its controller. Cheap to clone.
///
/// A controller does not reconcile until all of its sources have called [`Sink::synced`]: a reconcile must
/// never take an object that has not been listed yet for a deleted one.
#[derive(Clone, Debug)]
pub struct Sink<Q: Key> {
    queue: WorkQueue<Q>,
    pending: Arc<Pending>,
}

/// Counts the sources of a controller that have not handled their initial list. Cheap to clone; all clones
/// share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourcesSynced {
    account: watch::Sender<Account>,
}

/// Counters of the panics of sources, one per controller. The cache counts those of handlers, which run in
/// its task.
pub(crate) type SourcePanics = Family<[(&'static str, String); 1], Counter>;

/// How many sources of a controller have not synced yet, and whether one of them ended before it did.
#[derive(Clone, Debug, Default)]
struct Account {
    /// Number of the controller's sources that have not synced.
    pending: usize,
    /// Name of the first source that ended before it had synced; `None` if no source has.
    abandoned: Option<Arc<str>>,
}

/// The mark of one source that has not synced: it counts until the source syncs or its last sink is dropped.
#[derive(Debug)]
struct Pending {
    /// The name of the source that has not synced.
    name: Arc<str>,
    account: watch::Sender<Account>,
    counted_out: AtomicBool,
    panics: SourcePanics,
}

// === impl Sink ===

impl<Q: Key> Sink<Q> {
    /// Makes the sink of one more source of a controller, which waits for the sync of this source from now
    /// on.
    pub(crate) fn join(
        queue: &WorkQueue<Q>,
        synced: &SourcesSynced,
        source: String,
        panics: &SourcePanics,
    ) -> Self {
        synced.account.send_modify(|account| account.pending += 1);
        let (account, counted_out) = (synced.account.clone(), false.into());
        let pending = Pending { name: source.into(), account, counted_out, panics: panics.clone() };
        Self { queue: queue.clone(), pending: Arc::new(pending) }
    }

    /// Returns the name of the source that enqueues through this sink.
    pub(crate) fn source(&self) -> &Arc<str> {
        &self.pending.name
    }

    /// Enqueues a key for a change outside of the cache, by an add that ends a backoff of the key.
    pub fn add(&self, key: Q, cause: Cause) {
        self.offer(key, Add::strong(cause));
    }

    /// Enqueues a key with the strength, band, cause and delay of `add`. Returns whether the queue took it.
    pub fn offer(&self, key: Q, add: Add) -> Added {
        trace!(source = &*self.pending.name, %key, "key offered to the queue");
        self.queue.add(key, add)
    }

    /// Marks the source as synced: every object that existed at the start has been enqueued. Further calls
    /// have no effect.
    pub fn synced(&self) {
        self.pending.count_out(|account| account.pending -= 1);
    }

    /// Counts and logs a panic of the source that uses this sink. The panic loses one round of the source,
    /// and no more.
    pub(super) fn count_panic(&self, panic: &(dyn Any + Send)) {
        let (controller, source) = (self.queue.name(), &*self.pending.name);
        self.pending.panics.get_or_create_owned(&[("controller", controller.to_owned())]).inc();
        error!(controller, source, panic = panic_text(panic), "source panicked; this round is lost");
    }

    pub(super) fn queue(&self) -> &WorkQueue<Q> {
        &self.queue
    }
}

// === impl Pending ===

impl Pending {
    fn count_out(&self, how: impl FnOnce(&mut Account)) {
        // AcqRel: pairs with itself, so that of two clones only one changes the count.
        if !self.counted_out.swap(true, Ordering::AcqRel) {
            self.account.send_modify(how);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.count_out(|account| {
            account.abandoned.get_or_insert_with(|| Arc::clone(&self.name));
        });
    }
}

// === impl SourcesSynced ===

impl SourcesSynced {
    /// Waits until every source of the controller has synced.
    ///
    /// # Errors
    /// The name of a source that ended before it had synced, so that its controller would wait for ever.
    ///
    /// # Cancel safety
    /// Holds no state, so it may be dropped at any time.
    pub(crate) async fn wait(&self) -> Result<(), Arc<str>> {
        let mut account = self.account.subscribe();
        let decided = account.wait_for(|account| account.pending == 0 || account.abandoned.is_some()).await;
        // The sender lives in `self`, so the channel does not close during the wait.
        decided.ok().and_then(|account| account.abandoned.clone()).map_or(Ok(()), Err)
    }

    /// Returns whether every source of the controller has synced.
    pub(crate) fn is_synced(&self) -> bool {
        self.account.borrow().pending == 0
    }
}
