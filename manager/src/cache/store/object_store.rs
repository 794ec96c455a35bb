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
mod packing;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cache::object::Projection;
use crate::cache::object::meta::ResourceVersion;
use crate::cache::object::store_context::StoreContext;
use crate::cache::object::transform::Transform;
use crate::cache::object::view::{ReadError, View};
use crate::cache::store::dispatcher::{Job, Subscriber};
use crate::cache::store::function::IndexFunction;
use crate::cache::store::packer::Dictionaries;
use crate::cache::store::required::{Required, RequiredKinds};
use crate::cache::store::select::{IndexValue, LabelSelector, Scope, Select};
use crate::cache::store::status::{Counts, KindStatus};
use crate::cache::store::table::Table;
use crate::key::{KindId, NamespacedName};

pub(in crate::cache) use self::feed::EventKind;

/// The longest object in bytes; 0 = no limit.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cache) struct Limits {
    /// As the server sends it: a longer object is not stored.
    pub(in crate::cache) frame: usize,
    /// As it is kept: of a longer object only the metadata is stored.
    pub(in crate::cache) object: usize,
}

/// The cached objects of one kind and scope, undecoded, with the state of their list and watch.
pub(in crate::cache) struct ObjectStore {
    /// `None` for the manager's own cluster.
    pub(in crate::cache) cluster: Option<Arc<str>>,
    required: RequiredKinds,
    pub(in crate::cache) kind: KindId,
    pub(in crate::cache) scope: Scope,
    /// Whether whole objects are stored. May change from false to true until the reflector starts.
    full: AtomicBool,
    /// Shared by all versions.
    context: Arc<StoreContext>,
    /// The namespaces to list and watch, each with its own reflector; a single `None` stands for all
    /// namespaces.
    pub(in crate::cache) parts: Vec<Option<Arc<str>>>,
    own_writes: Coverage,
    pub(in crate::cache) limits: Limits,
    pub(super) table: RwLock<Table>,
    /// The functions of the table's indexes, in the same order; replaced as a whole by each change. Written
    /// under the table's lock.
    functions: RwLock<Arc<[Arc<IndexFunction>]>>,
    /// Deliveries taken from the queue and not completed. Written by the dispatcher only.
    pub(super) in_delivery: AtomicUsize,
    /// Wakes the dispatcher.
    pub(super) deliveries_queued: Notify,
    /// Wakes reflectors that wait for room in the queues.
    pub(super) freed: Notify,
    /// Wakes callers that wait for a version.
    progressed: Notify,
    /// Written at most once, before the start.
    transform: OnceLock<Arc<Transform>>,
    /// Wakes the packer.
    packer_wake: Notify,
    pub(in crate::cache) dictionaries: Dictionaries,
    /// Set once by the cache, when the store's task starts.
    started: AtomicBool,
    /// Cancelled when the last user is gone.
    retired: CancellationToken,
    /// Set when the store's task has ended, by [`DeliveryGuard`]: deliveries are then dropped.
    ended: AtomicBool,
    pub(in crate::cache) counts: Counts,
}

/// The own writes that can be matched with the store's scope in this process.
#[derive(Debug)]
enum Coverage {
    All,
    Labels(LabelSelector),
    Nothing,
}

/// Held by the task of a store; sets `ended` when dropped. Own writes may enter the store after that.
pub(in crate::cache) struct DeliveryGuard(pub(in crate::cache) Arc<ObjectStore>);

// === impl ObjectStore ===

impl ObjectStore {
    pub(in crate::cache) fn new(
        kind: KindId,
        scope: Scope,
        projection: Projection,
        parts: Vec<Option<Arc<str>>>,
        limits: Limits,
    ) -> Self {
        let own_writes = match (&scope.fields, &scope.labels) {
            (Some(_), _) => Coverage::Nothing,
            (None, None) => Coverage::All,
            (None, Some(labels)) => Coverage::Labels(labels.clone()),
        };
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
            own_writes,
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
    pub(in crate::cache) fn in_cluster(self, cluster: Option<Arc<str>>, required: RequiredKinds) -> Self {
        Self { cluster, required, ..self }
    }

    pub(in crate::cache) fn required(&self) -> Required {
        self.required.of(&self.kind)
    }

    pub(in crate::cache) fn projection(&self) -> Projection {
        if self.full.load(Ordering::Acquire) { Projection::Full } else { Projection::Metadata }
    }

    /// Returns [`ObjectStore::describe_scope`], followed by the cluster if it is not the manager's own.
    fn describe_with_cluster(&self) -> String {
        match &self.cluster {
            Some(cluster) => format!("{} of cluster {cluster}", self.describe_scope()),
            None => self.describe_scope(),
        }
    }

    pub(in crate::cache) fn describe_scope(&self) -> String {
        match self.parts.iter().flatten().map(AsRef::as_ref).collect::<Vec<&str>>() {
            names if names.is_empty() || self.scope.namespace.is_some() => self.scope.to_string(),
            names => format!("{}, namespaces {}", self.scope, names.join(" ")),
        }
    }
}

/// Reads. `declared` is the store as the reader has declared it; errors name its scope.
impl ObjectStore {
    pub(in crate::cache) fn get(
        &self,
        request: &NamespacedName,
        declared: &Self,
    ) -> Result<Option<View>, ReadError> {
        let table = self.table.read();
        declared.synced(&table)?;
        Ok(table.get(request).cloned())
    }

    pub(in crate::cache) fn list(&self, select: &Select, declared: &Self) -> Result<Vec<View>, ReadError> {
        let (mut walk, estimate) = {
            let table = self.table.read();
            declared.synced(&table)?;
            declared.indexed(&table, select)?;
            (table.walk(), table.estimate(select))
        };
        let mut views = Vec::with_capacity(estimate);
        // Takes the lock anew for each stride.
        while self.table.read().stride(&mut walk, select, &mut views) {}
        Ok(views)
    }

    pub(in crate::cache) fn is_synced(&self) -> bool {
        self.table.read().is_synced()
    }

    /// As [`crate::cache::UntypedStore::settled`]; also ends when the last user is gone.
    pub(in crate::cache) async fn settled(&self) {
        // The order of polling does not matter: both branches only end the wait.
        tokio::select! {
            () = self.counts.settled() => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Waits until the store has settled, an attempt to list has failed, or `patience` has passed since the
    /// first request; also ends when the last user is gone.
    pub(in crate::cache) async fn tried(&self, patience: Duration) {
        // The order of polling does not matter.
        tokio::select! {
            () = self.counts.tried(patience) => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Waits until reads of an object return the given version or a newer one.
    pub(in crate::cache) async fn caught_up(&self, request: &NamespacedName, version: &ResourceVersion) {
        loop {
            // Created before the check, so that a change in between is not missed.
            let moved = self.progressed.notified();
            if self.table.read().has_reached(request, version) {
                return;
            }
            moved.await;
        }
    }

    pub(in crate::cache) fn status(&self) -> KindStatus {
        self.counts.status(self, &self.table.read())
    }

    /// Fails for a namespace outside the scope. `None` is outside too if the kind is namespaced and the store
    /// does not hold all namespaces.
    pub(in crate::cache) fn in_scope(&self, namespace: Option<&str>) -> Result<(), ReadError> {
        let inside = |part: &Option<Arc<str>>| match part {
            None => true,
            Some(part) => namespace == Some(part.as_ref()),
        };
        if !self.kind.is_namespaced() || self.parts.iter().any(inside) {
            return Ok(());
        }
        let asked = namespace.map_or_else(|| "no namespace".to_owned(), |name| format!("namespace {name}"));
        Err(ReadError::OutOfScope { kind: self.kind.clone(), asked, scope: self.describe_with_cluster() })
    }

    fn indexed(&self, table: &Table, select: &Select) -> Result<(), ReadError> {
        let complete = |wanted: &IndexValue| {
            wanted.function.as_ref().is_some_and(|function| table.indexes().is_complete(function))
        };
        match select.functions.iter().find(|wanted| !complete(wanted)) {
            None => Ok(()),
            Some(wanted) => {
                Err(ReadError::UnknownIndex { kind: self.kind.clone(), index: wanted.name.to_string() })
            }
        }
    }

    fn synced(&self, table: &Table) -> Result<(), ReadError> {
        if table.is_synced() {
            return Ok(());
        }
        Err(ReadError::NotSynced { kind: self.kind.clone(), scope: self.describe_with_cluster() })
    }
}

/// Start, widening and end, controlled by the cache.
impl ObjectStore {
    /// Enqueues a subscriber: it receives the stored objects and then every change.
    pub(in crate::cache) fn join(&self, subscriber: Subscriber) {
        self.join_in(self.table.write(), subscriber);
    }

    /// As [`Self::join`], unless the subscribers have moved to another store; then returns the subscriber.
    pub(in crate::cache) fn join_unless(
        &self,
        subscriber: Subscriber,
        given_up: impl FnOnce() -> bool,
    ) -> Result<(), Subscriber> {
        let table = self.table.write();
        if given_up() {
            return Err(subscriber);
        }
        self.join_in(table, subscriber);
        Ok(())
    }

    fn join_in(&self, mut table: RwLockWriteGuard<'_, Table>, subscriber: Subscriber) {
        let (present, synced) = (table.all(), table.is_synced());
        table.jobs.push_back(Job::Join { subscriber, present, synced });
        self.release(table);
    }

    /// Returns the subscribers, to be moved to another store, if this store has not started and `commit`
    /// returns true.
    pub(in crate::cache) fn give_up(&self, commit: impl FnOnce() -> bool) -> Option<Vec<Subscriber>> {
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

    /// Sets the transform of all objects that are stored from now on. No effect if there is one.
    pub(in crate::cache) fn set_transform(&self, transform: Arc<Transform>) {
        self.transform.get_or_init(|| transform);
    }

    /// Marks the store as unused.
    pub(in crate::cache) fn retire(&self) {
        self.retired.cancel();
    }

    pub(in crate::cache) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Frees the objects of a store that is neither used nor filled any more.
    pub(in crate::cache) fn clear(&self) {
        let freed = std::mem::take(&mut *self.table.write());
        // There may be many objects, and handlers are user code: both are dropped outside the lock.
        let functions = std::mem::take(&mut *self.functions.write());
        drop((freed, functions));
    }

    pub(in crate::cache) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Returns the longest watch line that can contain an acceptable object; 0 = no limit.
    pub(in crate::cache) fn line_limit(&self) -> usize {
        // The event around the object has a few dozen bytes.
        if self.limits.frame == 0 { 0 } else { self.limits.frame.saturating_add(64) }
    }

    /// Makes a metadata-only store hold whole objects; returns false if its reflector has started or will
    /// never start.
    pub(in crate::cache) fn widen(&self) -> bool {
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

    /// Marks the store as started; returns whether this call did so.
    pub(in crate::cache) fn start(&self) -> bool {
        let first = {
            let _table = self.table.write();
            !self.started.swap(true, Ordering::AcqRel)
        };
        if first {
            self.counts.start();
        }
        first
    }
}

/// Writes.
impl ObjectStore {
    /// Changes the table under its lock, then wakes the dispatcher and the packer as needed.
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

    /// Releases the lock and wakes the dispatcher if deliveries are queued; drops them if the store's task
    /// has ended.
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
            self.wake();
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
