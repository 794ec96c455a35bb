//! Where sources put keys: the queue of their controller, and the account of who has synced.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::key::{Cause, Key};
use crate::queue::{Add, Added, Band, Strength, WorkQueue};

/// One source's way to the queue of its controller. Cheap to clone.
///
/// A controller runs nothing until every one of its sources has said [`Sink::synced`]: a reconcile must never take the
/// absence of an object that has merely not been listed yet for the object's deletion.
#[derive(Clone)]
pub struct Sink<Q: Key> {
    queue: WorkQueue<Q>,
    pending: Arc<Pending>,
}

/// Tells when every source of a controller has handled its initial list.
#[derive(Clone, Debug)]
pub struct SourcesSynced {
    /// Number of sources that have not synced yet.
    pending: watch::Receiver<usize>,
}

/// One source's entry in the account; counts itself out once.
struct Pending {
    sources: watch::Sender<usize>,
    counted_out: std::sync::atomic::AtomicBool,
}

// === impl Sink ===

impl<Q: Key> Sink<Q> {
    /// Makes a sink for each of `count` sources, and the account over them.
    pub(crate) fn for_sources(queue: &WorkQueue<Q>, count: usize) -> (Vec<Self>, SourcesSynced) {
        let sources = watch::Sender::new(count);
        let pending = sources.subscribe();
        let sink = |_| Self {
            queue: queue.clone(),
            pending: Arc::new(Pending { sources: sources.clone(), counted_out: false.into() }),
        };
        ((0..count).map(sink).collect(), SourcesSynced { pending })
    }

    /// Puts a key on the queue because something outside the cache happened.
    pub fn add(&self, key: Q, cause: Cause) {
        self.offer(
            key,
            Add { strength: Strength::Strong, band: Band::Live, cause, after: None, new_generation: false },
        );
    }

    /// Puts a key on the queue in every detail. Answers whether the queue took it.
    pub fn offer(&self, key: Q, add: Add) -> Added {
        self.queue.add(key, add)
    }

    /// Says that everything that was there at the start has been put on the queue. Further calls do nothing.
    pub fn synced(&self) {
        use std::sync::atomic::Ordering::AcqRel;
        // AcqRel: pairs with itself, so that of two clones only one counts the source out.
        if !self.pending.counted_out.swap(true, AcqRel) {
            self.pending.sources.send_modify(|sources| *sources -= 1);
        }
    }

    pub(super) fn queue(&self) -> &WorkQueue<Q> {
        &self.queue
    }
}

impl<Q: Key> fmt::Debug for Sink<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

// === impl SourcesSynced ===

impl SourcesSynced {
    /// Waits until every source has synced. Never ends if a source has ended without.
    ///
    /// # Cancel safety
    /// Holds no state; dropping it loses nothing.
    pub async fn wait(&mut self) {
        if self.pending.wait_for(|pending| *pending == 0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether every source has synced.
    pub fn is_synced(&self) -> bool {
        *self.pending.borrow() == 0
    }
}
