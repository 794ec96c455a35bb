//! What enters a store, whoever brings it: lists, watches, and the answers to own writes.
//!
//! Everything is scanned, transformed and asked about before the lock is taken, and then is one step of the table.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout_at};

use super::{Coverage, ObjectStore};
use crate::cache::object::meta::{Meta, ResourceVersion};
use crate::cache::object::raw::Raw;
use crate::cache::object::scan::{Glimpse, Scan, ScanError};
use crate::cache::object::view::View;
use crate::cache::store::index::Values;
use crate::cache::store::packer::PATIENCE;
use crate::cache::store::table::{Arrival, Removal, Table};
use crate::client::{Extent, Writer};
use crate::key::{Chain, NamespacedName};

/// Changes not yet delivered at which the reflector stops reading from its connection.
const BACKLOG: usize = 1024;

/// What a watch event says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum EventKind {
    Changed,
    Deleted,
}

/// A version on its way in.
struct Taken {
    view: View,
    /// As index functions see it, where less is kept: what they take out of it is theirs.
    whole: Option<View>,
}

impl From<View> for Taken {
    fn from(view: View) -> Self {
        Self { view, whole: None }
    }
}

// === impl ObjectStore ===

/// What reflectors bring.
impl ObjectStore {
    pub(in crate::cache) fn begin_list(&self) -> u64 {
        self.table.write().begin_list()
    }

    /// Takes one object of a list or of a watch's initial events. One that cannot be read costs itself alone.
    pub(in crate::cache) fn listed<'a>(&self, part: usize, epoch: u64, raw: impl Into<Raw<'a>>) {
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
            Ok(taken) => {
                self.counts.left_out.remove(taken.view.request());
                self.arrive(taken, |table, arrival| table.listed(part, epoch, arrival));
            }
            Err(error) => self.refuse_listed(epoch, raw.bytes, &error),
        }
    }

    pub(in crate::cache) fn end_list(&self, part: usize, epoch: u64, version: &ResourceVersion) {
        self.counts.listed(part);
        for older in self.step(|table| table.end_list(part, epoch, version)) {
            self.arrive(older.listed.clone().into(), |table, arrival| table.set_back(&older, arrival));
        }
        let namespace = self.parts.get(part).and_then(Option::as_deref);
        self.counts.left_out.listed(namespace, epoch);
        self.home.pool.sweep();
    }

    /// Takes one watch event; answers how far the watch has come, `None` for an object without a readable version.
    pub(in crate::cache) fn event<'a>(
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
                    scan.check_kind(&self.kind, self.projection())?;
                    self.step(|table| table.deleted(part, &scan.request, &scan.uid, &version));
                    self.counts.left_out.remove(&scan.request);
                }
                EventKind::Changed if self.knows(part, &scan) => {}
                EventKind::Changed => {
                    let taken = self.close(scan)?;
                    self.counts.left_out.remove(taken.view.request());
                    self.arrive(taken, |table, arrival| table.changed(part, arrival));
                }
            }
            Ok(version)
        });
        opened.map_err(|error| self.refuse_event(part, kind, raw.bytes, &error)).ok()
    }

    pub(in crate::cache) fn bookmark(&self, part: usize, version: &ResourceVersion) {
        self.counts.event();
        self.step(|table| table.advance(part, version));
    }

    /// Counts an object that cannot be taken, and names it once.
    pub(in crate::cache) fn refuse(&self, raw: &[u8], error: &ScanError) {
        self.count_refused(&Glimpse::of(raw), error);
    }

    fn count_refused(&self, glimpse: &Glimpse, error: &ScanError) {
        self.counts.undecodable();
        let name = glimpse.request.as_ref().map_or_else(|| "unknown".to_owned(), NamespacedName::to_string);
        if self.counts.left_out.is_news(&name, std::mem::discriminant(error)) {
            tracing::warn!(kind = %self.kind, object = %name, error = %Chain(error), "object left out of the cache");
        }
    }

    /// The same for one that came with a watch event. That it is gone is believed all the same.
    pub(in crate::cache) fn refuse_event(&self, part: usize, kind: EventKind, raw: &[u8], error: &ScanError) {
        let glimpse = Glimpse::of(raw);
        match (kind, &glimpse) {
            _ if error.is_of_another_kind() => {}
            (
                EventKind::Deleted,
                Glimpse { request: Some(request), uid: Some(uid), version: Some(version) },
            ) => {
                self.step(|table| table.deleted(part, request, uid, version));
                self.counts.left_out.remove(request);
            }
            (EventKind::Changed, Glimpse { request: Some(request), .. }) => {
                self.counts.left_out.add(request.clone(), 0, Chain(error).to_string());
            }
            _ => {}
        }
        self.count_refused(&glimpse, error);
    }

    /// The same for one that was listed. It is there, so what is stored of it stays; not so what is stored of an
    /// earlier object of that name.
    pub(in crate::cache) fn refuse_listed(&self, epoch: u64, raw: &[u8], error: &ScanError) {
        let glimpse = Glimpse::of(raw);
        if let Glimpse { request: Some(request), uid, .. } = &glimpse
            && !error.is_of_another_kind()
        {
            self.table.write().keep(epoch, request, uid.as_ref());
            self.counts.left_out.add(request.clone(), epoch, Chain(error).to_string());
        }
        self.count_refused(&glimpse, error);
    }

    /// Waits until few enough changes are undelivered, and few enough bodies unpacked. The reflector reads on only
    /// then, so a slow handler costs the server a full socket and not this process its memory.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub(in crate::cache) async fn room(&self) {
        // When the packer will have been waited for long enough: handlers that are done wake us as well.
        let mut overdue = None;
        loop {
            // Made before the look: a wake-up in between is not missed.
            let freed = self.freed.notified();
            if self.has_room() {
                return;
            }
            if !self.table.read().intake.is_full() {
                overdue = None;
                freed.await;
                continue;
            }
            let until = *overdue.get_or_insert_with(|| Instant::now() + PATIENCE);
            let waited = Instant::now() >= until || timeout_at(until, freed).await.is_err();
            if waited && self.table.write().intake.give_up() {
                self.counts.unpacked();
                tracing::warn!(
                    kind = %self.kind, waited = ?PATIENCE,
                    "packing is held up, objects are kept as they come meanwhile; look for code that blocks all of the \
                     runtime's blocking threads"
                );
            }
        }
    }

    pub(in crate::cache) fn has_room(&self) -> bool {
        let table = self.table.read();
        let backlog = table.jobs.len() + self.in_delivery.load(Ordering::Relaxed);
        backlog < BACKLOG && !table.intake.is_full()
    }

    fn open<'a>(&self, raw: Raw<'a>) -> Result<Scan<'a>, ScanError> {
        let scan = Scan::open(raw)?;
        let (size, limit) = (scan.size, self.limits.frame);
        if limit != 0 && size > limit {
            return Err(ScanError::TooLarge { size, limit });
        }
        Ok(scan)
    }

    fn close(&self, scan: Scan<'_>) -> Result<Taken, ScanError> {
        let whole = scan.too_large(&self.home, self.projection())?;
        let (mut meta, mut body) = scan.finish(&self.home, self.projection())?;
        // An object that is too large to keep is also too large to decode.
        if let Some(transform) = self.transform.get()
            && !matches!(meta.extent, Extent::TooLarge { .. })
            && let Some(changed) = transform.apply(&body)?
        {
            let seen;
            (seen, body) = Scan::open(&changed[..])?.finish(&self.home, self.projection())?;
            // By labels, owners and finalizers the server and other controllers judge: what is read without decoding
            // stays as the server has it. Of the rest a change counts that is left to be seen.
            let Meta { annotations_hash, content_hash, status_hash, .. } = seen;
            let grown = matches!(seen.extent, Extent::TooLarge { .. });
            let extent = if grown { seen.extent } else { Extent::Changed };
            meta = Meta { extent, annotations_hash, content_hash, status_hash, ..meta };
        }
        let whole = whole.map(|(labels, body)| {
            let meta = Meta { labels, extent: Extent::Whole, ..meta.clone() };
            View::new(self.home.clone(), meta, body)
        });
        Ok(Taken { view: View::new(self.home.clone(), meta, body), whole })
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
    fn arrive<T>(&self, taken: Taken, change: impl FnOnce(&mut Table, Arrival) -> T) -> T {
        let Taken { view, whole } = taken;
        loop {
            let functions = self.functions();
            let seen = whole.as_ref().unwrap_or(&view);
            let values: Values = functions.iter().map(|function| self.ask(function, seen)).collect();
            let table = self.table.write();
            // Another function may have come meanwhile, or one may have gone.
            if Arc::ptr_eq(&functions, &self.functions.read()) {
                return self.step_in(table, |table| change(table, Arrival { view, values }));
            }
        }
    }
}

/// What own writes bring. Each returns whether the store can vouch for what it now shows. It can where it shows nothing:
/// its list has yet to begin, or the object is outside.
impl ObjectStore {
    /// Takes the object that a write was answered with.
    pub(in crate::cache) fn written(&self, raw: &[u8], writer: Writer) -> bool {
        if !self.started.load(Ordering::Acquire) {
            return true;
        }
        if matches!(self.own_writes, Coverage::Nothing) {
            return false;
        }
        let Ok(scan) = self.open(raw.into()) else { return false };
        let left = match &self.own_writes {
            // Of an object that is too large not all labels are kept.
            Coverage::Labels(selector) => scan.labels().is_ok_and(|labels| !selector.matches(&labels)),
            _ => false,
        };
        let Ok(taken) = self.close(scan) else { return false };
        if left {
            self.step(|table| table.left(taken.view.meta(), writer));
            return true;
        }
        self.arrive(taken, |table, arrival| table.written(arrival, writer));
        true
    }

    /// Returns the uid that reads show under a name.
    pub(in crate::cache) fn shown(&self, request: &NamespacedName) -> Option<String> {
        self.table.read().get(request).map(|view| view.meta().uid.to_string())
    }

    /// Takes what a write removed.
    pub(in crate::cache) fn removed(&self, removal: &Removal<'_>, writer: Writer) -> bool {
        !self.started.load(Ordering::Acquire) || self.step(|table| table.hide(removal, writer))
    }
}
