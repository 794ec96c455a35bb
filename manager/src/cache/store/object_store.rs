//! The objects of one kind and scope: filled by reflectors and own writes, read through
//! [`crate::cache::UntypedStore`].
//!
//! Not generic: it holds bytes and slim metadata; [`crate::cache::Store`] adds the type. One lock guards the
//! [`Table`] and its delivery queue, and is held only to change or read them: objects are scanned and index
//! functions called before it is taken; objects are decoded and handlers called after it is released. Long
//! lists and resyncs take it anew for every few objects, so that a writer hardly waits. Two operations hold
//! it while they visit every object, some tens of nanoseconds each: the subscription of a handler, which must
//! not miss a change, and the end of a list, which finds the deleted objects.
//!
//! Lock order: the table, then the functions.

mod feed;
mod indexing;
mod read;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cache::object::{Projection, StoreContext, Transform};
use crate::cache::store::{
    Counts, Dictionaries, IndexFunction, Job, RequiredKinds, Scope, Subscriber, Table,
};
use crate::key::KindId;

pub(crate) use self::feed::Received;

/// The longest objects that a store accepts and keeps, in bytes; [`usize::MAX`] without a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Longest object in bytes as the server sends it: a longer object is not stored.
    pub(crate) frame: usize,
    /// Longest object in bytes as it is kept: of a longer object only the metadata is stored.
    pub(crate) object: usize,
}

/// The cached objects of one kind and scope, undecoded, with the state of their list and watch.
pub(crate) struct ObjectStore {
    /// Name of the cluster of the store; `None` for the manager's own cluster.
    pub(crate) cluster: Option<Arc<str>>,
    pub(super) required: RequiredKinds,
    pub(crate) kind: KindId,
    pub(crate) scope: Scope,
    /// Whether the store holds whole objects. May change from false to true until the reflector starts.
    full: AtomicBool,
    /// Data that all versions of the store's objects share.
    context: Arc<StoreContext>,
    /// The namespaces that the store lists and watches, each with its own reflector; a single `None` stands
    /// for all namespaces.
    pub(crate) parts: Vec<Option<Arc<str>>>,
    pub(crate) limits: Limits,
    pub(super) table: RwLock<Table>,
    /// The functions of the store's indexes, in the order of the indexes; replaced as a whole by each change.
    /// Written under the table's lock.
    functions: RwLock<Arc<[Arc<IndexFunction>]>>,
    /// Number of deliveries taken from the queue and not completed. Written by the dispatcher only.
    pub(super) in_delivery: AtomicUsize,
    /// Wakes the dispatcher when deliveries are queued.
    pub(super) deliveries_queued: Notify,
    /// Wakes the store's reflectors that wait for room in the queues of deliveries and of bodies to pack.
    pub(super) freed: Notify,
    /// Wakes callers that wait until reads return a version of an object.
    progressed: Notify,
    /// The transform of the store's kind; empty without one. Written at most once, before the start.
    transform: OnceLock<Arc<Transform>>,
    /// Wakes the packer, which compresses the store's objects.
    pub(super) packer_wake: Notify,
    pub(crate) dictionaries: Dictionaries,
    /// Whether the store's task has started. Set once, by the cache.
    started: AtomicBool,
    /// Cancelled when the last user of the store is gone, so that its task ends.
    pub(crate) retired: CancellationToken,
    /// Whether the store's task has ended; set by [`DeliveryGuard`]. Deliveries are then dropped.
    ended: AtomicBool,
    pub(crate) counts: Counts,
}

/// Guard held by the task of a store; sets `ended` of the store when dropped. Own writes may enter the store
/// after that.
pub(crate) struct DeliveryGuard(pub(crate) Arc<ObjectStore>);

// === impl ObjectStore ===

impl ObjectStore {
    pub(crate) fn new(
        kind: KindId,
        scope: Scope,
        projection: Projection,
        parts: Vec<Option<Arc<str>>>,
        limits: Limits,
    ) -> Self {
        Self {
            cluster: None,
            required: RequiredKinds::default(),
            counts: Counts::new(&parts),
            table: RwLock::new(Table::new(parts.iter().cloned())),
            functions: RwLock::default(),
            full: AtomicBool::new(projection == Projection::Full),
            context: Arc::new(StoreContext::new(kind.clone(), limits.object)),
            kind,
            scope,
            parts,
            limits,
            in_delivery: AtomicUsize::new(0),
            deliveries_queued: Notify::new(),
            freed: Notify::new(),
            progressed: Notify::new(),
            transform: OnceLock::new(),
            packer_wake: Notify::new(),
            dictionaries: Dictionaries::default(),
            started: AtomicBool::new(false),
            retired: CancellationToken::new(),
            ended: AtomicBool::new(false),
        }
    }

    #[must_use]
    pub(crate) fn in_cluster(self, cluster: Option<Arc<str>>, required: RequiredKinds) -> Self {
        Self { cluster, required, ..self }
    }

    pub(crate) fn projection(&self) -> Projection {
        if self.full.load(Ordering::Acquire) { Projection::Full } else { Projection::Metadata }
    }

    /// Returns the scope of the store as a phrase, followed by the cluster if it is not the manager's own.
    fn describe_with_cluster(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("{} of cluster {cluster}", self.describe_scope()),
            None => self.describe_scope(),
        }
    }

    pub(crate) fn describe_scope(&self) -> String {
        match self.parts.iter().flatten().map(AsRef::as_ref).collect::<Vec<&str>>() {
            names if names.is_empty() || self.scope.namespace.is_some() => self.scope.to_string(),
            names => format!("{}, namespaces {}", self.scope, names.join(" ")),
        }
    }
}

/// Start, widening and end of a store, controlled by the cache.
impl ObjectStore {
    /// Enqueues a subscriber of the store: it receives the stored objects and then every change. Returns the
    /// subscriber instead if the subscribers have moved to another store, as `given_up` reports.
    pub(crate) fn join(
        &self,
        subscriber: Subscriber,
        given_up: impl FnOnce() -> bool,
    ) -> Result<(), Subscriber> {
        let mut table = self.table.write();
        if given_up() {
            return Err(subscriber);
        }
        let (present, synced) = (table.all(), table.synced);
        table.jobs.push_back(Job::Join { subscriber, present, synced });
        self.release(table);
        Ok(())
    }

    /// Returns the subscribers of the store, to be moved to another store, if this store has not started and
    /// `commit` returns true.
    pub(crate) fn give_up(&self, commit: impl FnOnce() -> bool) -> Option<Vec<Subscriber>> {
        let mut table = self.table.write();
        if self.started.load(Ordering::Acquire) || !commit() {
            return None;
        }
        let jobs = std::mem::take(&mut table.jobs);
        // This store will never be filled. Under the lock: a concurrent `widen` either precedes `commit` or
        // is refused.
        self.retired.cancel();
        drop(table);
        let subscriber = |job| if let Job::Join { subscriber, .. } = job { Some(subscriber) } else { None };
        Some(jobs.into_iter().filter_map(subscriber).collect())
    }

    /// Frees the objects of a store that is neither used nor filled any more.
    pub(crate) fn clear(&self) {
        let freed = std::mem::take(&mut *self.table.write());
        // There may be many objects, and handlers are user code: both are dropped outside the lock.
        let functions = std::mem::take(&mut *self.functions.write());
        drop((freed, functions));
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Makes a metadata-only store hold whole objects. Returns whether the store holds them; false if its
    /// reflector has started or will never start.
    pub(crate) fn widen(&self) -> bool {
        if self.projection() == Projection::Full {
            return true;
        }
        // Under the table's lock, so that it does not overlap with `start`.
        let _table = self.table.write();
        let free = !self.started.load(Ordering::Acquire) && !self.retired.is_cancelled();
        if free {
            self.full.store(true, Ordering::Release);
        }
        free
    }

    /// Marks the store as started, with the transform of all objects that are stored from now on; returns
    /// whether this call did so. A later call sets the transform only if none is set.
    pub(crate) fn start(&self, transform: Option<&Arc<Transform>>) -> bool {
        let first = {
            let _table = self.table.write();
            if let Some(transform) = transform {
                self.transform.get_or_init(|| transform.clone());
            }
            !self.started.swap(true, Ordering::AcqRel)
        };
        if first {
            self.counts.start();
        }
        first
    }
}

/// Changes of the table of a store.
impl ObjectStore {
    /// Changes the store's table under its lock, then wakes the dispatcher and the packer as needed.
    pub(super) fn step<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        self.step_in(self.table.write(), change)
    }

    fn step_in<T>(&self, mut table: RwLockWriteGuard<'_, Table>, change: impl FnOnce(&mut Table) -> T) -> T {
        let outcome = change(&mut table);
        let wake = table.pack_queue.take_wake();
        self.release(table);
        self.progressed.notify_waiters();
        if wake {
            self.packer_wake.notify_one();
        }
        outcome
    }

    /// Releases the lock of the table and wakes the dispatcher if deliveries are queued; drops the deliveries
    /// if the store's task has ended.
    fn release(&self, mut table: RwLockWriteGuard<'_, Table>) {
        if self.ended.load(Ordering::Acquire) {
            let undelivered = std::mem::take(&mut table.jobs);
            // They may contain handlers, which are user code and not dropped under the lock.
            drop(table);
            drop(undelivered);
            return;
        }
        let queued = !table.jobs.is_empty();
        drop(table);
        if queued {
            tracing::trace!(kind = %self.kind, "dispatcher woken");
            self.deliveries_queued.notify_one();
        }
    }
}

// === impl DeliveryGuard ===

impl Drop for DeliveryGuard {
    fn drop(&mut self) {
        // Under the lock: deliveries queued before are dropped in this step, and later ones by `release`.
        self.0.step(|_| self.0.ended.store(true, Ordering::Release));
    }
}

#[cfg(test)]
mod tests;
