//! The objects of one kind and scope: fed by reflectors and own writes, read through [`crate::cache::KindStore`].
//!
//! Not generic: it holds bytes and slim metadata; [`crate::cache::Store`] puts a type on top. One lock guards the
//! [`Table`] with its queue of changes. It is held for the step itself: objects are scanned, and index functions asked,
//! before it is taken; objects are decoded and handed to handlers after it is released. A list of many takes it again
//! and again, so that no writer waits for more than a dozen objects or two; so does a resync. Two things hold it for as
//! long as it takes to look at each object once, some tens of nanoseconds each: a handler that joins, which must miss
//! nothing, and the end of a list, which finds what is gone.
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
use crate::cache::object::home::Home;
use crate::cache::object::meta::ResourceVersion;
use crate::cache::object::transform::Transform;
use crate::cache::object::view::{ReadError, View};
use crate::cache::store::dispatcher::{Job, Member};
use crate::cache::store::function::Function;
use crate::cache::store::packer::Shelf;
use crate::cache::store::required::{Required, Words};
use crate::cache::store::select::{Indexed, LabelSelector, Scope, Select};
use crate::cache::store::status::{Counts, KindStatus};
use crate::cache::store::table::Table;
use crate::key::{KindId, NamespacedName};

pub(in crate::cache) use self::feed::EventKind;

/// The longest object in bytes; 0 = no limit.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cache) struct Limits {
    /// As the server sends it: a longer one is left out.
    pub(in crate::cache) frame: usize,
    /// As it is kept: of a longer one only metadata is.
    pub(in crate::cache) object: usize,
}

/// All cached objects of one kind and scope, undecoded: what one list and watch keeps true.
pub(in crate::cache) struct ObjectStore {
    /// `None` for the manager's own.
    pub(in crate::cache) cluster: Option<Arc<str>>,
    required: Words,
    pub(in crate::cache) kind: KindId,
    pub(in crate::cache) scope: Scope,
    /// Full wins over metadata-only until the reflector starts; it never changes afterwards.
    full: AtomicBool,
    /// Shared with every version.
    home: Arc<Home>,
    /// Namespaces it lists and watches, one reflector each; a single `None` is all of them.
    pub(in crate::cache) parts: Vec<Option<Arc<str>>>,
    own_writes: Coverage,
    pub(in crate::cache) limits: Limits,
    pub(super) table: RwLock<Table>,
    /// Those the table has indexes by, in its order; another slice after each change. Written under the table's lock.
    functions: RwLock<Arc<[Arc<Function>]>>,
    /// Changes taken from the table's queue and not yet delivered. Written by the dispatcher alone.
    pub(super) in_delivery: AtomicUsize,
    /// Wakes the dispatcher.
    pub(super) queued: Notify,
    /// Wakes reflectors that wait for room.
    pub(super) freed: Notify,
    /// Wakes who waits for a version.
    moved: Notify,
    /// Written at most once, before the start.
    transform: OnceLock<Arc<Transform>>,
    /// Wakes the packer.
    unpacked: Notify,
    pub(in crate::cache) shelf: Shelf,
    /// Set once by the cache, when the store's task starts.
    started: AtomicBool,
    /// Nobody uses it any more.
    retired: CancellationToken,
    /// Nobody delivers any more: its task has ended. Set for good, by [`Ended`].
    ended: AtomicBool,
    pub(in crate::cache) counts: Counts,
}

/// Which own writes can be judged without the server.
#[derive(Debug)]
enum Coverage {
    All,
    Labels(LabelSelector),
    Nothing,
}

/// Held by the task of a store. Own writes are read for as long as the store is, also after its end.
pub(in crate::cache) struct Ended(pub(in crate::cache) Arc<ObjectStore>);

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
            required: Words::default(),
            counts: Counts::new(&parts),
            table: RwLock::new(Table::new(parts.iter().cloned())),
            functions: RwLock::default(),
            full: AtomicBool::new(projection == Projection::Full),
            home: Arc::new(Home::new(kind.clone(), limits.object)),
            kind,
            scope,
            parts,
            own_writes,
            limits,
            in_delivery: AtomicUsize::new(0),
            queued: Notify::new(),
            freed: Notify::new(),
            moved: Notify::new(),
            transform: OnceLock::new(),
            unpacked: Notify::new(),
            shelf: Shelf::default(),
            started: AtomicBool::new(false),
            retired: CancellationToken::new(),
            ended: AtomicBool::new(false),
        }
    }

    #[must_use]
    pub(in crate::cache) fn of(self, cluster: Option<Arc<str>>, required: Words) -> Self {
        Self { cluster, required, ..self }
    }

    pub(in crate::cache) fn required(&self) -> Required {
        self.required.about(&self.kind)
    }

    pub(in crate::cache) fn projection(&self) -> Projection {
        if self.full.load(Ordering::Acquire) { Projection::Full } else { Projection::Metadata }
    }

    /// As [`ObjectStore::describe_scope`], with the cluster if it is another than the manager's own.
    fn describe_place(&self) -> String {
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

/// Reading. `declared` is what the reader asked for, and what errors name.
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
        // The lock anew for each stride.
        while self.table.read().stride(&mut walk, select, &mut views) {}
        Ok(views)
    }

    pub(in crate::cache) fn is_synced(&self) -> bool {
        self.table.read().is_synced()
    }

    /// As [`crate::cache::KindStore::settled`]; ends also if nobody uses it any more.
    pub(in crate::cache) async fn settled(&self) {
        // Whoever is polled first: both say that there is nothing to wait for.
        tokio::select! {
            () = self.counts.settled() => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Waits until it has settled, has failed to, or was asked for in vain for so long; ends also if nobody uses it any
    /// more.
    pub(in crate::cache) async fn tried(&self, patience: Duration) {
        // As above.
        tokio::select! {
            () = self.counts.tried(patience) => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Waits until reads of an object are no older than a version of it.
    pub(in crate::cache) async fn caught_up(&self, request: &NamespacedName, version: &ResourceVersion) {
        loop {
            // Made before the look: a step in between is not missed.
            let moved = self.moved.notified();
            if self.table.read().has_come_to(request, version) {
                return;
            }
            moved.await;
        }
    }

    pub(in crate::cache) fn status(&self) -> KindStatus {
        self.counts.status(self, &self.table.read())
    }

    /// Fails for a namespace that is outside; of a namespaced kind `None` is outside too.
    pub(in crate::cache) fn in_scope(&self, namespace: Option<&str>) -> Result<(), ReadError> {
        let inside = |part: &Option<Arc<str>>| match part {
            None => true,
            Some(part) => namespace == Some(part.as_ref()),
        };
        if !self.kind.is_namespaced() || self.parts.iter().any(inside) {
            return Ok(());
        }
        let asked = namespace.map_or_else(|| "no namespace".to_owned(), |name| format!("namespace {name}"));
        Err(ReadError::OutOfScope { kind: self.kind.clone(), asked, scope: self.describe_place() })
    }

    fn indexed(&self, table: &Table, select: &Select) -> Result<(), ReadError> {
        let answers = |wanted: &Indexed| {
            wanted.function.as_ref().is_some_and(|function| table.indexes().answers(function))
        };
        match select.functions.iter().find(|wanted| !answers(wanted)) {
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
        Err(ReadError::NotSynced { kind: self.kind.clone(), scope: self.describe_place() })
    }
}

/// Start, widening and end, driven by the cache.
impl ObjectStore {
    /// Has a handler told everything present, and then every change.
    pub(in crate::cache) fn join(&self, member: Member) {
        self.join_in(self.table.write(), member);
    }

    /// As [`Self::join`], unless the handlers have been given up; then the handler is given back.
    pub(in crate::cache) fn join_unless(
        &self,
        member: Member,
        given_up: impl FnOnce() -> bool,
    ) -> Result<(), Member> {
        let table = self.table.write();
        if given_up() {
            return Err(member);
        }
        self.join_in(table, member);
        Ok(())
    }

    fn join_in(&self, mut table: RwLockWriteGuard<'_, Table>, member: Member) {
        let (present, synced) = (table.all(), table.is_synced());
        table.jobs.push_back(Job::Join { member, present, synced });
        self.release(table);
    }

    /// Gives up its handlers for another store to tell, if it has not been started and `commit` agrees.
    pub(in crate::cache) fn give_up(&self, commit: impl FnOnce() -> bool) -> Option<Vec<Member>> {
        let mut table = self.table.write();
        if self.started.load(Ordering::Acquire) || !commit() {
            return None;
        }
        let jobs = std::mem::take(&mut table.jobs);
        // Nothing will ever feed it. Under the lock: `widen` comes before `commit` or sees this.
        self.retired.cancel();
        drop(table);
        let member = |job| if let Job::Join { member, .. } = job { Some(member) } else { None };
        Some(jobs.into_iter().filter_map(member).collect())
    }

    /// Has every object changed on its way in. Without effect once there is a transform.
    pub(in crate::cache) fn set_transform(&self, transform: Arc<Transform>) {
        self.transform.get_or_init(|| transform);
    }

    /// Notes that nobody uses it any more.
    pub(in crate::cache) fn retire(&self) {
        self.retired.cancel();
    }

    pub(in crate::cache) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Frees what it holds, once nobody uses it and nothing feeds it.
    pub(in crate::cache) fn clear(&self) {
        let freed = std::mem::take(&mut *self.table.write());
        // Objects may be many and handlers are of users: neither is dropped under the lock.
        let functions = std::mem::take(&mut *self.functions.write());
        drop((freed, functions));
    }

    pub(in crate::cache) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Returns the longest watch line worth keeping; 0 = no limit.
    pub(in crate::cache) fn line_limit(&self) -> usize {
        // The event around the object is a few dozen bytes.
        if self.limits.frame == 0 { 0 } else { self.limits.frame.saturating_add(64) }
    }

    /// Makes a metadata-only store hold whole objects; refused once its reflector has started, or never will.
    pub(in crate::cache) fn widen(&self) -> bool {
        if self.projection() == Projection::Full {
            return true;
        }
        // Under the table's lock so that `start` falls before or after as a whole.
        let _table = self.table.write();
        let free = !self.started.load(Ordering::Acquire) && !self.retired.is_cancelled();
        if free {
            self.full.store(true, Ordering::Release);
        }
        free
    }

    /// Returns whether this call started it.
    pub(in crate::cache) fn start(&self) -> bool {
        let first = {
            let _table = self.table.write();
            !self.started.swap(true, Ordering::AcqRel)
        };
        if first {
            self.counts.begin();
        }
        first
    }
}

/// Writing.
impl ObjectStore {
    /// Makes one step under the lock and wakes the lane, or the packer, if it has something for them.
    pub(super) fn step<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        self.step_in(self.table.write(), change)
    }

    fn step_in<T>(&self, mut table: RwLockWriteGuard<'_, Table>, change: impl FnOnce(&mut Table) -> T) -> T {
        let outcome = change(&mut table);
        let called = table.intake.calls();
        self.release(table);
        self.moved.notify_waiters();
        if called {
            self.unpacked.notify_one();
        }
        outcome
    }

    /// Gives up the lock and has what is queued delivered; dropped, if nobody delivers any more.
    fn release(&self, mut table: RwLockWriteGuard<'_, Table>) {
        if self.ended.load(Ordering::Acquire) {
            let undelivered = std::mem::take(&mut table.jobs);
            // Handlers among them are of users, and not dropped under the lock.
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

// === impl Ended ===

impl Drop for Ended {
    fn drop(&mut self) {
        // Under the lock that queues: what is queued later sees it, and what was queued before goes with this step.
        self.0.step(|_| self.0.ended.store(true, Ordering::Release));
    }
}

#[cfg(test)]
mod tests;
