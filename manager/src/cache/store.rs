//! The objects of one kind and scope: fed by reflectors and own writes, read through [`super::KindStore`].
//!
//! Not generic: it holds bytes and slim metadata; [`super::Store`] puts a type on top. One lock guards the
//! [`Table`] with its queue of changes. It is held for the step itself: objects are scanned, and index functions asked,
//! before it is taken; objects are decoded and handed to handlers after it is released. A list of many takes it again
//! and again, so that no writer waits for more than a dozen objects or two.
//!
//! Lock order: the table, then the functions.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Projection;
use super::deliver::{Call, Delta, DeltaHandler, Job, Member, SLOW_HANDLER};
use super::frame::Raw;
use super::function::Function;
use super::home::Home;
use super::index::Values;
use super::kind::members;
use super::meta::{self, Meta, ResourceVersion, Scan, ScanError};
use super::pack::{Intake, Packed, Shelf};
use super::select::{Indexed, LabelSelector, Scope, Select};
use super::status::{Counts, KindStatus};
use super::table::{Arrival, Removal, Table};
use super::transform::Transform;
use super::view::{ReadError, View};
use crate::client::{Extent, Writer};
use crate::key::{KindId, Request};

/// Changes not yet delivered at which the reflector stops reading from its connection.
const BACKLOG: usize = 1024;

/// All cached objects of one kind and scope, undecoded: what one list and watch keeps true.
#[derive(Debug)]
pub(super) struct Core {
    kind: KindId,
    scope: Scope,
    /// Full wins over metadata-only until the reflector starts; it never changes afterwards.
    full: AtomicBool,
    /// Shared with every version.
    home: Arc<Home>,
    /// Namespaces it lists and watches, one reflector each; a single `None` is all of them.
    parts: Vec<Option<Arc<str>>>,
    own_writes: Coverage,
    /// Longest object taken, in bytes; 0 = no limit.
    max_object_bytes: usize,
    table: RwLock<Table>,
    /// Those the table has indexes by, in its order; another slice after each change. Written under the table's lock.
    functions: RwLock<Arc<[Arc<Function>]>>,
    /// Changes taken from the table's queue and not yet delivered. Written by the deliverer alone.
    in_delivery: AtomicUsize,
    /// Wakes the deliverer.
    queued: Notify,
    /// Wakes reflectors that wait for room.
    freed: Notify,
    /// Wakes who waits for a version.
    moved: Notify,
    /// Written at most once, before the start.
    transform: OnceLock<Arc<Transform>>,
    /// Wakes the packer.
    unpacked: Notify,
    pub(super) shelf: Shelf,
    /// Set once by the cache, when the store's task starts.
    started: AtomicBool,
    /// Nobody uses it any more.
    retired: CancellationToken,
    pub(super) counts: Counts,
}

/// Which own writes can be judged without the server.
#[derive(Debug)]
enum Coverage {
    All,
    Labels(LabelSelector),
    Nothing,
}

/// What a watch event says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Changed,
    Deleted,
}

// === impl Core ===

impl Core {
    pub(super) fn new(
        kind: KindId,
        scope: Scope,
        projection: Projection,
        parts: Vec<Option<Arc<str>>>,
        max_object_bytes: usize,
    ) -> Self {
        let own_writes = match (&scope.fields, &scope.labels) {
            (Some(_), _) => Coverage::Nothing,
            (None, None) => Coverage::All,
            (None, Some(labels)) => LabelSelector::parse(labels).map_or(Coverage::Nothing, Coverage::Labels),
        };
        Self {
            counts: Counts::new(&parts),
            table: RwLock::new(Table::new(parts.iter().cloned())),
            functions: RwLock::default(),
            full: AtomicBool::new(projection == Projection::Full),
            home: Arc::new(Home::new(kind.clone())),
            kind,
            scope,
            parts,
            own_writes,
            max_object_bytes,
            in_delivery: AtomicUsize::new(0),
            queued: Notify::new(),
            freed: Notify::new(),
            moved: Notify::new(),
            transform: OnceLock::new(),
            unpacked: Notify::new(),
            shelf: Shelf::default(),
            started: AtomicBool::new(false),
            retired: CancellationToken::new(),
        }
    }

    pub(super) fn kind(&self) -> &KindId {
        &self.kind
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn projection(&self) -> Projection {
        if self.full.load(Ordering::Acquire) { Projection::Full } else { Projection::Metadata }
    }

    pub(super) fn describe_scope(&self) -> String {
        match self.parts.iter().flatten().map(AsRef::as_ref).collect::<Vec<&str>>() {
            names if names.is_empty() || self.scope.namespace.is_some() => self.scope.to_string(),
            names => format!("{}, namespaces {}", self.scope, names.join(" ")),
        }
    }
}

/// Reading. `declared` is what the reader asked for, and what errors name.
impl Core {
    pub(super) fn get(&self, request: &Request, declared: &Self) -> Result<Option<View>, ReadError> {
        let table = self.table.read();
        declared.synced(&table)?;
        Ok(table.get(request).cloned())
    }

    pub(super) fn list(&self, select: &Select, declared: &Self) -> Result<Vec<View>, ReadError> {
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

    pub(super) fn is_synced(&self) -> bool {
        self.table.read().is_synced()
    }

    /// As [`super::KindStore::settled`]; ends also if nobody uses it any more.
    pub(super) async fn settled(&self) {
        // Whoever is polled first: both say that there is nothing to wait for.
        tokio::select! {
            () = self.counts.settled() => {}
            () = self.retired.cancelled() => {}
        }
    }

    /// Waits until reads of an object are no older than a version of it.
    pub(super) async fn caught_up(&self, request: &Request, version: &ResourceVersion) {
        loop {
            // Made before the look: a step in between is not missed.
            let moved = self.moved.notified();
            if self.table.read().has_come_to(request, version) {
                return;
            }
            moved.await;
        }
    }

    pub(super) fn status(&self) -> KindStatus {
        self.counts.status(self, &self.table.read())
    }

    /// Fails for a namespace that is outside; of a namespaced kind `None` is outside too.
    pub(super) fn in_scope(&self, namespace: Option<&str>) -> Result<(), ReadError> {
        let inside = |part: &Option<Arc<str>>| match part {
            None => true,
            Some(part) => namespace == Some(part.as_ref()),
        };
        if !self.kind.is_namespaced() || self.parts.iter().any(inside) {
            return Ok(());
        }
        let asked = namespace.map_or_else(|| "no namespace".to_owned(), |name| format!("namespace {name}"));
        Err(ReadError::OutOfScope { kind: self.kind.clone(), asked, scope: self.describe_scope() })
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
        Err(ReadError::NotSynced { kind: self.kind.clone(), scope: self.describe_scope() })
    }
}

/// Indexes that come when objects may be there already.
impl Core {
    pub(super) fn index_label(&self, key: &str) {
        let mut walk = {
            let mut table = self.table.write();
            if !table.indexes_mut().add_label(key) {
                return;
            }
            table.walk()
        };
        while self.table.write().fill_label(&mut walk, key) {}
        self.table.write().indexes_mut().complete_label(key);
    }

    /// Returns once the index is complete, also if somebody else is about to fill it.
    pub(super) fn index(&self, function: &Arc<Function>) {
        let mut walk = {
            let mut table = self.table.write();
            if table.indexes_mut().add_function(function) {
                // Every version that comes from now on is asked about on its way in.
                let mut functions = self.functions.write();
                *functions = functions.iter().chain([function]).cloned().collect();
            }
            table.walk()
        };
        loop {
            let next = self.table.read().unanswered(&mut walk);
            if next.is_empty() {
                break;
            }
            for (number, view) in next {
                let values = self.ask(function, &view);
                self.table.write().fill_function(function, number, &view, values);
            }
        }
        self.table.write().indexes_mut().complete_function(function);
    }

    /// Takes an index away, and with it what was counted of it.
    pub(super) fn unindex(&self, function: &Arc<Function>) {
        let mut table = self.table.write();
        let index = table.indexes_mut().remove_function(function);
        let mut functions = self.functions.write();
        let rest = functions.iter().filter(|one| !Arc::ptr_eq(one, function)).cloned().collect();
        let before = std::mem::replace(&mut *functions, rest);
        let last = !functions.iter().any(|one| one.name() == function.name());
        drop((functions, table));
        if last {
            self.counts.forget_index(function.name());
        }
        // Answers may be many and functions are of users: neither is dropped under a lock.
        drop((index, before));
    }

    pub(super) fn functions(&self) -> Arc<[Arc<Function>]> {
        self.functions.read().clone()
    }

    pub(super) fn label_indexes(&self) -> Vec<String> {
        self.table.read().indexes().label_keys().map(ToOwned::to_owned).collect()
    }
}

/// Start, widening and end, driven by the cache.
impl Core {
    /// Has a handler told everything present, and then every change.
    pub(super) fn join(&self, member: Member) {
        self.join_in(self.table.write(), member);
    }

    /// As [`Self::join`], unless the handlers have been given up; then the handler is given back.
    pub(super) fn join_unless(&self, member: Member, given_up: impl FnOnce() -> bool) -> Result<(), Member> {
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
        drop(table);
        self.wake();
    }

    /// Gives up its handlers for another store to tell, if it has not been started and `commit` agrees.
    pub(super) fn give_up(&self, commit: impl FnOnce() -> bool) -> Option<Vec<Member>> {
        let mut table = self.table.write();
        if self.started.load(Ordering::Acquire) || !commit() {
            return None;
        }
        let jobs = std::mem::take(&mut table.jobs);
        // Nothing will ever feed it. Under the lock: `widen` comes before `commit` or sees this.
        self.retired.cancel();
        drop(table);
        Some(members(jobs))
    }

    /// Has every object changed on its way in. Without effect once there is a transform.
    pub(super) fn set_transform(&self, transform: Arc<Transform>) {
        self.transform.get_or_init(|| transform);
    }

    /// Notes that nobody uses it any more.
    pub(super) fn retire(&self) {
        self.retired.cancel();
    }

    pub(super) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Frees what it holds, once nobody uses it and nothing feeds it.
    pub(super) fn clear(&self) {
        let freed = std::mem::take(&mut *self.table.write());
        // Objects may be many and handlers are of users: neither is dropped under the lock.
        drop((freed, std::mem::take(&mut *self.functions.write())));
    }

    pub(super) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    pub(super) fn parts(&self) -> &[Option<Arc<str>>] {
        &self.parts
    }

    /// Returns the longest object taken; 0 = no limit.
    pub(super) fn object_limit(&self) -> usize {
        self.max_object_bytes
    }

    /// Returns the longest watch line worth keeping; 0 = no limit.
    pub(super) fn line_limit(&self) -> usize {
        // The event around the object is a few dozen bytes.
        if self.max_object_bytes == 0 { 0 } else { self.max_object_bytes.saturating_add(64) }
    }

    /// Makes a metadata-only store hold whole objects; refused once its reflector has started, or never will.
    pub(super) fn widen(&self) -> bool {
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
    pub(super) fn start(&self) -> bool {
        let _table = self.table.write();
        !self.started.swap(true, Ordering::AcqRel)
    }
}

/// What reflectors bring.
impl Core {
    pub(super) fn begin_list(&self) -> u64 {
        self.table.write().begin_list()
    }

    /// Takes one object of a list or of a watch's initial events. One that cannot be read costs itself alone.
    pub(super) fn listed<'a>(&self, part: usize, epoch: u64, raw: impl Into<Raw<'a>>) {
        let raw = raw.into();
        let scan = match self.open(raw) {
            Ok(scan) => scan,
            Err(error) => return self.refuse_listed(epoch, raw.bytes, &error),
        };
        let Scan { request, uid, resource_version, .. } = &scan;
        if self.table.write().touch(epoch, request, uid, resource_version) {
            return;
        }
        match self.close(scan) {
            Ok(view) => self.arrive(view, |table, arrival| table.listed(part, epoch, arrival)),
            Err(error) => self.refuse_listed(epoch, raw.bytes, &error),
        }
    }

    pub(super) fn end_list(&self, part: usize, epoch: u64, version: &ResourceVersion) {
        self.counts.listed();
        self.step(|table| table.end_list(part, epoch, version));
        self.home.pool.sweep();
    }

    /// Takes one watch event; answers how far the watch has come, `None` for an object without a readable version.
    pub(super) fn event<'a>(
        &self,
        part: usize,
        kind: EventKind,
        raw: impl Into<Raw<'a>>,
    ) -> Option<ResourceVersion> {
        let raw = raw.into();
        self.counts.event();
        let opened = self.open(raw).and_then(|scan| {
            let version = scan.resource_version.clone();
            match kind {
                EventKind::Deleted => {
                    scan.check_kind(self.kind(), self.projection())?;
                    self.step(|table| table.deleted(part, &scan.request, &scan.uid, &version));
                }
                EventKind::Changed if self.knows(part, &scan) => {}
                EventKind::Changed => {
                    let view = self.close(scan)?;
                    self.arrive(view, |table, arrival| table.changed(part, arrival));
                }
            }
            Ok(version)
        });
        opened.map_err(|error| self.refuse_event(part, kind, raw.bytes, &error)).ok()
    }

    pub(super) fn bookmark(&self, part: usize, version: &ResourceVersion) {
        self.counts.event();
        self.step(|table| table.advance(part, version));
    }

    /// Counts an object that cannot be taken, and names it once.
    pub(super) fn refuse(&self, raw: &[u8], error: &ScanError) {
        self.counts.undecodable();
        let name = meta::name_of(raw).map_or_else(|| "unknown".to_owned(), |request| request.to_string());
        if self.counts.is_first_refusal(&name, std::mem::discriminant(error)) {
            tracing::warn!(kind = %self.kind, object = %name, error = %Chain(error), "object left out of the cache");
        }
    }

    /// The same for one that came with a watch event. That it is gone is believed all the same.
    pub(super) fn refuse_event(&self, part: usize, kind: EventKind, raw: &[u8], error: &ScanError) {
        let other = matches!(error, ScanError::Kind { .. });
        if kind == EventKind::Deleted
            && !other
            && let Some((request, uid, version)) = meta::identity_of(raw)
        {
            self.step(|table| table.deleted(part, &request, &uid, &version));
        }
        self.refuse(raw, error);
    }

    /// The same for one that was listed. It is there, so what is stored of it stays; not so what is stored of an
    /// earlier object of that name.
    pub(super) fn refuse_listed(&self, epoch: u64, raw: &[u8], error: &ScanError) {
        // What is of another kind says nothing about ours of that name.
        let other = matches!(error, ScanError::Kind { .. });
        if let Some(request) = meta::name_of(raw).filter(|_| !other) {
            self.table.write().keep(epoch, &request, meta::uid_of(raw).as_ref());
        }
        self.refuse(raw, error);
    }

    /// Waits until few enough changes are undelivered, and few enough bodies unpacked. The reflector reads on only
    /// then, so a slow handler costs the server a full socket and not this process its memory.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub(super) async fn room(&self) {
        loop {
            // Made before the look: a wake-up in between is not missed.
            let freed = self.freed.notified();
            if self.has_room() {
                return;
            }
            freed.await;
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let table = self.table.read();
        let backlog = table.jobs.len() + self.in_delivery.load(Ordering::Relaxed);
        backlog < BACKLOG && !table.intake.is_full()
    }

    fn open<'a>(&self, raw: Raw<'a>) -> Result<Scan<'a>, ScanError> {
        let (size, limit) = (raw.bytes.len(), self.max_object_bytes);
        if limit != 0 && size > limit {
            return Err(ScanError::TooLarge { size, limit });
        }
        Scan::open(raw)
    }

    fn close(&self, scan: Scan<'_>) -> Result<View, ScanError> {
        let (mut meta, mut body) = scan.finish(&self.home, self.projection())?;
        if let Some(transform) = self.transform.get()
            && let Some(changed) = transform.apply(&body)?
        {
            let seen;
            (seen, body) = Scan::open(&changed[..])?.finish(&self.home, self.projection())?;
            // By labels, owners and finalizers the server and other controllers judge: what is read without decoding
            // stays as the server has it. Of the rest a change counts that is left to be seen.
            let Meta { annotations_hash, content_hash, status_hash, .. } = seen;
            let extent = Extent::Changed;
            meta = Meta { extent, annotations_hash, content_hash, status_hash, ..meta };
        }
        Ok(View::new(self.home.clone(), meta, body))
    }

    /// Takes an event whose very version is stored: it costs nothing more, and its hooks have seen it.
    fn knows(&self, part: usize, scan: &Scan<'_>) -> bool {
        let Scan { request, uid, resource_version, .. } = scan;
        let known = self.table.read().has(request, uid, resource_version);
        if known {
            self.step(|table| table.advance(part, resource_version));
        }
        known
    }

    /// Asks the index functions about a version and makes the step that takes it.
    fn arrive<T>(&self, view: View, change: impl FnOnce(&mut Table, Arrival) -> T) -> T {
        loop {
            let functions = self.functions();
            let values: Values = functions.iter().map(|function| self.ask(function, &view)).collect();
            let table = self.table.write();
            // Another function may have come meanwhile, or one may have gone.
            if Arc::ptr_eq(&functions, &self.functions.read()) {
                return self.step_in(table, |table| change(table, Arrival { view, values }));
            }
        }
    }

    /// Asks an index function about a version. Never called under a lock.
    fn ask(&self, function: &Function, view: &View) -> Box<[Arc<str>]> {
        function.ask(view).unwrap_or_else(|failure| {
            self.counts.unindexed(function.name());
            tracing::warn!(
                kind = %self.kind, object = %view.request(), index = function.name(), error = %failure,
                "object left out of an index"
            );
            Box::default()
        })
    }

    /// Makes one step under the lock and wakes the lane, or the packer, if it has something for them.
    fn step<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        self.step_in(self.table.write(), change)
    }

    fn step_in<T>(&self, mut table: RwLockWriteGuard<'_, Table>, change: impl FnOnce(&mut Table) -> T) -> T {
        let outcome = change(&mut table);
        let (queued, called) = (!table.jobs.is_empty(), table.intake.calls());
        drop(table);
        if queued {
            self.wake();
        }
        self.moved.notify_waiters();
        if called {
            self.unpacked.notify_one();
        }
        outcome
    }
}

/// What own writes bring. Each returns whether the store can vouch for what it now shows.
impl Core {
    /// Takes the object that a write was answered with.
    pub(super) fn written(&self, raw: &[u8], writer: Writer) -> bool {
        let (true, Coverage::All | Coverage::Labels(_)) =
            (self.started.load(Ordering::Acquire), &self.own_writes)
        else {
            return false;
        };
        let Ok(view) = self.open(raw.into()).and_then(|scan| self.close(scan)) else { return false };
        if let Coverage::Labels(selector) = &self.own_writes
            && !selector.matches(&view.meta().labels)
        {
            // It has left the selection or was never in it; the watch says which.
            return false;
        }
        self.arrive(view, |table, arrival| table.written(arrival, writer))
    }

    /// Returns the uid that reads show under a name.
    pub(super) fn shown(&self, request: &Request) -> Option<String> {
        self.table.read().get(request).map(|view| view.meta().uid.to_string())
    }

    /// Takes what a write removed.
    pub(super) fn removed(&self, removal: &Removal<'_>, writer: Writer) -> bool {
        self.started.load(Ordering::Acquire) && self.step(|table| table.hide(removal, writer))
    }
}

/// What the deliverer needs.
impl Core {
    pub(super) fn wake(&self) {
        self.queued.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.queued.notified().await;
    }

    pub(super) fn take_jobs(&self) -> VecDeque<Job> {
        let mut table = self.table.write();
        let jobs = std::mem::take(&mut table.jobs);
        // Set under the lock: `room` must not see them in neither place.
        self.in_delivery.store(jobs.len(), Ordering::Relaxed);
        drop(table);
        jobs
    }

    pub(super) fn job_done(&self) {
        // At the end of a batch only: what came in meanwhile is taken next, and ends in another wake-up.
        if self.in_delivery.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.freed.notify_waiters();
        }
    }

    pub(super) fn tell(&self, member: &Member, delta: &Delta<'_>) {
        if let Some(handler) = member.present()
            && let Some(delta) = member.sees(delta)
        {
            self.call(handler, &delta);
        }
    }

    /// Calls a handler with a delta of this store. A panic costs the one delta and is counted and named, as is a call
    /// that takes too long.
    pub(super) fn call(&self, handler: &dyn DeltaHandler, delta: &Delta<'_>) {
        let Call { took, panic } = Call::of(handler, delta);
        if let Some(panic) = panic {
            self.counts.panicked(handler.name());
            let object = delta.latest().map(|view| view.request().to_string());
            tracing::error!(kind = %self.kind, handler = handler.name(), object, panic, "handler panicked; this delta is lost to it");
        }
        if took > SLOW_HANDLER {
            self.counts.slow(handler.name());
            tracing::warn!(kind = %self.kind, handler = handler.name(), ?took, "handler holds up the watch");
        }
    }

    /// Counts no longer what this handler did: it has left.
    pub(super) fn forget_handler(&self, handler: &str) {
        self.counts.forget(handler);
    }

    pub(super) fn queue_resync(&self) {
        self.step(|table| {
            if table.is_synced() {
                table.resync();
            }
        });
    }
}

/// What the packer needs.
impl Core {
    /// Waits for the intake's next call; one that came before is not missed.
    pub(super) async fn called(&self) {
        self.unpacked.notified().await;
    }

    /// Does something with the intake; told the bytes of everything stored, as they are kept.
    pub(super) fn intake<T>(&self, act: impl FnOnce(&mut Intake, usize) -> T) -> T {
        let mut table = self.table.write();
        let bytes = table.bytes();
        let outcome = act(&mut table.intake, bytes);
        drop(table);
        self.freed.notify_waiters();
        outcome
    }

    /// Gives versions that are still stored their packed form, and `taken` bytes back to the intake.
    pub(super) fn packed(&self, turn: Vec<(View, Packed)>, taken: usize) {
        let mut table = self.table.write();
        let replaced = table.pack(turn);
        table.intake.done(taken);
        drop(table);
        self.freed.notify_waiters();
        // Bodies are given back to the allocator without the lock.
        drop(replaced);
    }

    /// Returns what is stored, whether it has synced or not.
    pub(super) fn everything(&self) -> Vec<View> {
        let (mut walk, everything) = (self.table.read().walk(), Select::all());
        let mut views = Vec::new();
        while self.table.read().stride(&mut walk, &everything, &mut views) {}
        views
    }

    pub(super) fn count(&self) -> usize {
        self.table.read().count()
    }
}

/// Writes an error with its causes on one line.
pub(super) struct Chain<'a>(pub(super) &'a (dyn std::error::Error + 'static));

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
