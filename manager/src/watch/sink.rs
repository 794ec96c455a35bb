//! Where sources put keys: the queue of their controller, and the account of who has synced.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tracing::error;

use super::SourceMetrics;
use crate::key::{Cause, Key, panic_text};
use crate::queue::{Add, Added, WorkQueue};

/// One source's way to the queue of its controller. Cheap to clone.
///
/// A controller runs nothing until every one of its sources has said [`Sink::synced`]: a reconcile must never take the
/// absence of an object that has merely not been listed yet for the object's deletion.
#[derive(Clone, Debug)]
pub struct Sink<Q: Key> {
    queue: WorkQueue<Q>,
    pending: Arc<Pending>,
}

/// Tells when every source of a controller has handled its initial list. Cheap to clone; all clones are one account.
#[derive(Clone, Debug, Default)]
pub struct SourcesSynced {
    account: watch::Sender<Account>,
}

/// A source has ended without ever having synced: its controller would wait for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("source {name} ended before it had synced")]
pub struct NeverSynced {
    /// What the source calls itself.
    pub name: String,
}

/// The sources that have not synced.
#[derive(Clone, Debug, Default)]
struct Account {
    /// Number of those that still can.
    pending: usize,
    /// The first that has ended without.
    abandoned: Option<Arc<str>>,
}

/// One source's entry in the account; counts itself out once, at the latest when its last sink is dropped.
#[derive(Debug)]
struct Pending {
    /// What the source calls itself.
    name: Arc<str>,
    account: watch::Sender<Account>,
    counted_out: AtomicBool,
    metrics: SourceMetrics,
}

// === impl Sink ===

impl<Q: Key> Sink<Q> {
    /// Makes the sink of one more source, which is waited for from now on.
    pub(crate) fn join(
        queue: &WorkQueue<Q>,
        synced: &SourcesSynced,
        source: String,
        metrics: &SourceMetrics,
    ) -> Self {
        synced.account.send_modify(|account| account.pending += 1);
        let (account, counted_out) = (synced.account.clone(), false.into());
        let pending = Pending { name: source.into(), account, counted_out, metrics: metrics.clone() };
        Self { queue: queue.clone(), pending: Arc::new(pending) }
    }

    /// Returns what the source calls itself.
    pub(crate) fn source(&self) -> &Arc<str> {
        &self.pending.name
    }

    /// Puts a key on the queue because something outside the cache happened.
    pub fn add(&self, key: Q, cause: Cause) {
        self.offer(key, Add::strong(cause));
    }

    /// Puts a key on the queue in every detail. Answers whether the queue took it.
    pub fn offer(&self, key: Q, add: Add) -> Added {
        self.queue.add(key, add)
    }

    /// Says that everything that was there at the start has been put on the queue. Further calls do nothing.
    pub fn synced(&self) {
        self.pending.count_out(|account| account.pending -= 1);
    }

    /// Counts and logs a panic that costs the source one look at what it watches, and no more.
    pub(super) fn count_panic(&self, panic: &(dyn Any + Send)) {
        let (controller, source) = (self.queue.name(), &*self.pending.name);
        self.pending.metrics.count_panic(controller);
        error!(controller, source, panic = panic_text(panic), "source panicked; this look is lost to it");
    }

    pub(super) fn queue(&self) -> &WorkQueue<Q> {
        &self.queue
    }
}

// === impl Pending ===

impl Pending {
    fn count_out(&self, how: impl FnOnce(&mut Account)) {
        // AcqRel: pairs with itself, so that of two clones only one counts the source out.
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
    /// Waits until every source has synced.
    ///
    /// # Errors
    /// Fails once a source has ended without.
    ///
    /// # Cancel safety
    /// Holds no state; dropping it loses nothing.
    pub async fn wait(&self) -> Result<(), NeverSynced> {
        let mut account = self.account.subscribe();
        let decided = account.wait_for(|account| account.pending == 0 || account.abandoned.is_some()).await;
        // The sender lives in `self`, so this cannot end with an error while we wait.
        match decided.ok().and_then(|account| account.abandoned.clone()) {
            Some(name) => Err(NeverSynced { name: name.to_string() }),
            None => Ok(()),
        }
    }

    /// Returns whether every source has synced.
    pub fn is_synced(&self) -> bool {
        self.account.borrow().pending == 0
    }
}
