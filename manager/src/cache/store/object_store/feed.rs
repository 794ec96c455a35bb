//! The entry of objects into a store: from lists, watches, and responses to own writes.
//!
//! Objects are scanned, transformed and indexed before the lock is taken; the entry itself is one step of
//! the table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout_at};

use super::ObjectStore;
use crate::cache::object::{Meta, PartialIdentity, Raw, ResourceVersion, Scan, ScanError, View};
use crate::cache::store::{Arrival, Removal, STALL_TIMEOUT, Table, Values};
use crate::client::{Extent, Writer};
use crate::key::{Chain, NamespacedName};

/// Number of undelivered changes of a store at which the reflector stops reading from its connection.
const BACKLOG: usize = 1024;

/// How an object was received from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The object was in the list with this number (epoch), or in the initial events of a watch.
    Listed(u64),
    /// The object was in an ADDED or MODIFIED event.
    Changed,
    /// The object was in a DELETED event.
    Deleted,
}

/// A scanned and transformed version of an object, to be stored.
struct Scanned {
    view: View,
    /// The whole object, if less than that is stored: index functions are called with it. `None` if the whole
    /// object is stored.
    whole: Option<View>,
}

// === impl ObjectStore ===

/// Entry of objects from the reflectors into a store.
impl ObjectStore {
    pub(crate) fn begin_list(&self) -> u64 {
        self.table.write().begin_list()
    }

    pub(crate) fn end_list(&self, part: usize, epoch: u64, version: &ResourceVersion) {
        self.counts.count(part, |part| part.lists += 1);
        for older in self.step(|table| table.end_list(part, epoch, version)) {
            let scanned = Scanned { view: older.listed.clone(), whole: None };
            self.arrive(scanned, |table, arrival| table.set_back(&older, arrival));
        }
        let namespace = self.parts.get(part).and_then(Option::as_deref);
        self.counts.left_out.listed(namespace, epoch);
        self.context.pool.sweep();
    }

    /// Stores or removes one object of a list or a watch event; returns its resourceVersion, `None` if the
    /// object was refused. A refused object does not affect other ones.
    pub(crate) fn receive<'a>(
        &self,
        part: usize,
        received: Received,
        raw: impl Into<Raw<'a>>,
    ) -> Option<ResourceVersion> {
        let raw = raw.into();
        let accepted = self.accept(part, received, raw);
        accepted.map_err(|error| self.refuse_object(part, received, raw.bytes, &error)).ok()
    }

    /// Stores or removes one object of a list or a watch event, as [`Self::receive`] does; returns the reason
    /// if the object is not accepted.
    pub(crate) fn accept(
        &self,
        part: usize,
        received: Received,
        raw: Raw<'_>,
    ) -> Result<ResourceVersion, ScanError> {
        tracing::trace!(kind = %self.kind, ?received, "object received");
        if !matches!(received, Received::Listed(_)) {
            self.counts.count_event();
        }
        let scan = self.open(raw)?;
        let version = scan.resource_version.clone();
        if received == Received::Deleted {
            scan.check_kind(&self.kind, self.projection())?;
            self.step(|table| table.deleted(part, &scan.request, &scan.uid, &version));
            self.counts.left_out.remove(&scan.request);
        } else if !self.knows(part, received, &scan) {
            let scanned = self.close(scan)?;
            self.counts.left_out.remove(scanned.view.request());
            self.arrive(scanned, |table, arrival| match received {
                Received::Listed(epoch) => table.listed(part, epoch, arrival),
                _ => table.changed(part, arrival),
            });
        }
        Ok(version)
    }

    pub(crate) fn bookmark(&self, part: usize, version: &ResourceVersion) {
        self.counts.count_event();
        self.step(|table| table.advance(part, version));
    }

    /// Counts an object or event of the server that was not accepted, and logs it once.
    pub(crate) fn refuse(&self, raw: &[u8], error: &ScanError) {
        self.count_refused(&PartialIdentity::of(raw), error);
    }

    fn count_refused(&self, identity: &PartialIdentity, error: &ScanError) {
        self.counts.count_decode_error();
        let name = identity.request.as_ref().map_or_else(|| "unknown".to_owned(), NamespacedName::to_string);
        if self.counts.left_out.is_news(&name, std::mem::discriminant(error)) {
            let error = Chain(error);
            tracing::warn!(kind = %self.kind, object = %name, %error, "object left out of the cache");
        }
    }

    /// Counts and logs an object that was not accepted, as [`Self::refuse`] does, if an older version of it
    /// may be stored. A listed object exists, so its stored version stays, unless that has another uid. A
    /// deletion takes effect if the object's identity is readable.
    pub(crate) fn refuse_object(&self, part: usize, received: Received, raw: &[u8], error: &ScanError) {
        let identity = PartialIdentity::of(raw);
        if let PartialIdentity { request: Some(request), uid, version } = &identity
            // An object of another kind is not the stored object of its name.
            && !matches!(error, ScanError::Kind { .. })
        {
            let left_out = |epoch| self.counts.left_out.add(request.clone(), epoch, Chain(error).to_string());
            match (received, uid, version) {
                (Received::Listed(epoch), ..) => {
                    self.table.write().keep(epoch, request, uid.as_ref());
                    left_out(epoch);
                }
                (Received::Changed, ..) => left_out(0),
                (Received::Deleted, Some(uid), Some(version)) => {
                    self.step(|table| table.deleted(part, request, uid, version));
                    self.counts.left_out.remove(request);
                }
                (Received::Deleted, ..) => {}
            }
        }
        self.count_refused(&identity, error);
    }

    /// Waits until few enough changes of the store are undelivered and few enough bodies unpacked. The
    /// reflector reads on only then, so that a slow handler fills the server's socket and not the memory of
    /// this process.
    ///
    /// # Cancel safety
    /// No state is changed.
    pub(crate) async fn room(&self) {
        // The end of the wait for the packer: completed deliveries also notify `freed`.
        let mut deadline = None;
        loop {
            // Created before the check, so that a wake-up in between is not missed.
            let freed = self.freed.notified();
            if self.has_room() {
                return;
            }
            if !self.table.read().pack_queue.is_full() {
                deadline = None;
                freed.await;
                continue;
            }
            let until = *deadline.get_or_insert_with(|| Instant::now() + STALL_TIMEOUT);
            let waited = Instant::now() >= until || timeout_at(until, freed).await.is_err();
            if waited && self.table.write().pack_queue.give_up() {
                self.counts.count_pack_stall();
                tracing::warn!(
                    kind = %self.kind, waited = ?STALL_TIMEOUT,
                    "packing does not progress; new objects stay uncompressed meanwhile; look for code that \
                     blocks all of the runtime's blocking threads"
                );
            }
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        let table = self.table.read();
        let backlog = table.jobs.len() + self.in_delivery.load(Ordering::Relaxed);
        backlog < BACKLOG && !table.pack_queue.is_full()
    }

    fn open<'a>(&self, raw: Raw<'a>) -> Result<Scan<'a>, ScanError> {
        let scan = Scan::open(raw)?;
        let (size, limit) = (scan.size, self.limits.frame);
        if size > limit {
            return Err(ScanError::TooLarge { size, limit });
        }
        Ok(scan)
    }

    fn close(&self, scan: Scan<'_>) -> Result<Scanned, ScanError> {
        let whole = scan.too_large(&self.context, self.projection())?;
        let (mut meta, mut body) = scan.finish(&self.context, self.projection())?;
        // An object that is too large to be kept is also too large to be decoded for the transform.
        if let Some(transform) = self.transform.get()
            && !matches!(meta.extent, Extent::TooLarge { .. })
            && let Some(changed) = transform.apply(&body)?
        {
            let seen;
            (seen, body) = Scan::open(&changed[..])?.finish(&self.context, self.projection())?;
            // Labels, owners and finalizers are those of the server, because the server and other controllers
            // act on them. Changes are detected in the fields that the transform has kept.
            let Meta { annotations_hash, content_hash, status_hash, .. } = seen;
            let grown = matches!(seen.extent, Extent::TooLarge { .. });
            let extent = if grown { seen.extent } else { Extent::Changed };
            meta = Meta { extent, annotations_hash, content_hash, status_hash, ..meta };
        }
        let whole = whole.map(|(labels, body)| {
            let meta = Meta { labels, extent: Extent::Whole, ..meta.clone() };
            View::new(self.context.clone(), meta, body)
        });
        Ok(Scanned { view: View::new(self.context.clone(), meta, body), whole })
    }

    /// Returns whether this version of an object is stored already, as after an own write: then only the
    /// progress of the list or watch is recorded.
    fn knows(&self, part: usize, received: Received, scan: &Scan<'_>) -> bool {
        let Scan { request, uid, resource_version, .. } = scan;
        if let Received::Listed(epoch) = received {
            let mut table = self.table.write();
            let known = table.find(request, uid, resource_version);
            if let Some(number) = known {
                table.mark_seen(epoch, number);
            }
            return known.is_some();
        }
        let known = self.table.read().find(request, uid, resource_version).is_some();
        if known {
            self.step(|table| table.advance(part, resource_version));
        }
        known
    }

    /// Calls the index functions with a version of an object and then stores the version by `change`.
    fn arrive<T>(&self, scanned: Scanned, change: impl FnOnce(&mut Table, Arrival) -> T) -> T {
        let Scanned { view, whole } = scanned;
        loop {
            let functions = self.functions();
            let seen = whole.as_ref().unwrap_or(&view);
            let values: Values = functions.iter().map(|function| self.index_values(function, seen)).collect();
            let table = self.table.write();
            // Meanwhile a function may have been added or removed.
            if Arc::ptr_eq(&functions, &self.functions.read()) {
                return self.step_in(table, |table| change(table, Arrival { view, values }));
            }
        }
    }
}

/// Entry of own writes into a store. Methods that apply a write return whether reads now include it. This is
/// also true if the write does not affect the store: the object is outside its scope, or the store has not
/// started.
impl ObjectStore {
    /// Stores the object in the response to an own write. Returns whether reads now include the write.
    pub(crate) fn written(&self, raw: &[u8], writer: Writer) -> bool {
        if !self.started.load(Ordering::Acquire) {
            return true;
        }
        // Fields cannot be evaluated in this process.
        if self.scope.fields.is_some() {
            return false;
        }
        let Ok(scan) = self.open(raw.into()) else { return false };
        // All labels, because not all of them are stored if the object is too large.
        let left = match &self.scope.labels {
            Some(selector) => scan.labels().is_ok_and(|labels| !selector.matches(&labels)),
            None => false,
        };
        let Ok(scanned) = self.close(scan) else { return false };
        if left {
            self.step(|table| table.left_selection(scanned.view.meta(), writer));
            return true;
        }
        self.arrive(scanned, |table, arrival| table.written(arrival, writer));
        true
    }

    /// Returns the uid of the stored object of this name; `None` if there is no such object.
    pub(crate) fn shown(&self, request: &NamespacedName) -> Option<String> {
        self.table.read().get(request).map(|view| view.meta().uid.to_string())
    }

    /// Hides an object that an own write has deleted. Returns whether reads now include the deletion.
    pub(crate) fn removed(&self, removal: &Removal<'_>, writer: Writer) -> bool {
        !self.started.load(Ordering::Acquire) || self.step(|table| table.hide(removal, writer))
    }
}
