//! What one declaration reads: a list and watch of its own, or a part of a wider one.
//!
//! A [`KindStore`] is held by its users and by nobody else: reads, sources and subscriptions each keep one. With the
//! last of them its list and watch end and its memory is freed; whoever declares the same later begins anew.
//!
//! # Invariants
//! 1. The cache and its tasks hold a [`ObjectStore`], never a [`KindStore`]: what is watched is what somebody uses.
//! 2. A store reads through a wider one from its start to its end, or never.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::cache::object::Projection;
use crate::cache::object::delta::Delta;
use crate::cache::object::meta::ResourceVersion;
use crate::cache::object::view::{ReadError, View};
use crate::cache::store::dispatcher::{DeltaHandler, Member, Subscription};
use crate::cache::store::function::Function;
use crate::cache::store::lens::Lens;
use crate::cache::store::object_store::ObjectStore;
use crate::cache::store::select::{Scope, Select};
use crate::cache::store::status::KindStatus;
use crate::key::{Key as _, KindId, NamespacedName};

/// The cached objects of one kind and scope, undecoded. Kept true for as long as anybody holds it.
pub struct KindStore {
    /// What was declared. It lists and watches itself unless there is a wider one to read through.
    core: Arc<ObjectStore>,
    /// Written at most once, under the lock of `core`'s table and before `core` could start.
    through: OnceLock<(Arc<KindStore>, Arc<Lens>)>,
}

// === impl KindStore ===

impl KindStore {
    pub(in crate::cache) fn new(core: ObjectStore) -> Self {
        Self { core: Arc::new(core), through: OnceLock::new() }
    }

    /// Returns the kind.
    pub fn kind(&self) -> &KindId {
        &self.core.kind
    }

    /// Returns the name of the cluster it is of; `None` for the manager's own.
    pub fn cluster(&self) -> Option<&str> {
        self.core.cluster.as_deref()
    }

    /// Returns what it holds of the kind.
    pub fn scope(&self) -> &Scope {
        &self.core.scope
    }

    /// Returns whether it holds whole objects or metadata only.
    pub fn projection(&self) -> Projection {
        self.source().projection()
    }

    /// Returns one object. Own writes are included; nothing is waited for.
    ///
    /// # Errors
    /// Fails before the first sync, and for a namespace the store does not hold.
    pub fn get(&self, request: &NamespacedName) -> Result<Option<View>, ReadError> {
        self.core.in_scope(request.namespace())?;
        let found = self.source().get(request, &self.core)?;
        Ok(found.filter(|view| self.lens().is_none_or(|lens| lens.admits(view.meta()))))
    }

    /// Returns the objects a selection picks, in no particular order. Nothing is decoded.
    ///
    /// Writers come in between: each object is as it was at some time during the call, and none is missing that was
    /// there all the while. Everything written before the call is in it.
    ///
    /// # Errors
    /// Fails before the first sync, for a namespace the store does not hold, and for an index it does not have.
    pub fn list(&self, select: &Select) -> Result<Vec<View>, ReadError> {
        if let Some(namespace) = &select.namespace {
            self.core.in_scope(Some(namespace))?;
        }
        let Some(lens) = self.lens() else { return self.core.list(select, &self.core) };
        self.source().list(&lens.narrow(select.clone()), &self.core)
    }

    /// Indexes a label, so that selections that name it cost their result. A second call changes nothing.
    ///
    /// May be called at any time; what is there already is indexed before it returns.
    pub fn index_label(&self, key: &str) {
        // Kept there too, for the case that a wider store is found at the start.
        self.core.index_label(key);
        if let Some((wide, _)) = self.through.get() {
            wide.index_label(key);
        }
    }

    /// Returns whether the first list of every part is complete.
    pub fn is_synced(&self) -> bool {
        self.source().is_synced()
    }

    /// Tells a handler everything present, as initial deltas, and then every change, in order.
    pub fn subscribe(self: &Arc<Self>, handler: Box<dyn DeltaHandler>) -> Subscription {
        let (subscription, member) = Subscription::new(self.clone(), handler);
        // A store that is about to read through another one gives its members to that.
        if let Err(member) = self.core.join_unless(member, || self.through.get().is_some()) {
            self.join_through(member);
        }
        subscription
    }

    /// Waits until the first list is complete, or the server has said that the kind is not there or not readable.
    ///
    /// # Cancel safety
    /// Nothing is lost; call it again.
    pub async fn settled(&self) {
        // Its own wait ends when a wider store is found to read through.
        self.core.settled().await;
        self.source().settled().await;
    }

    /// Waits until reads of an object are no older than a version of it, as a write has returned it.
    ///
    /// Most own writes need no waiting: reads show them at once. What they do not cover is counted in
    /// `mainstay_cache_uncovered_writes_total`, and can be waited for here. It ends with the object's own event, or with
    /// any later event or bookmark, which a quiet server sends about once a minute. Never ends if the cache stops
    /// before: race it with the stop.
    ///
    /// # Errors
    /// Fails for a namespace the store does not hold.
    ///
    /// # Cancel safety
    /// Nothing is lost; call it again.
    pub async fn caught_up(
        &self,
        request: &NamespacedName,
        version: &ResourceVersion,
    ) -> Result<(), ReadError> {
        self.core.in_scope(request.namespace())?;
        self.source().caught_up(request, version).await;
        Ok(())
    }

    /// Returns how it is doing; for a part of a wider store, how that is doing.
    pub fn status(&self) -> KindStatus {
        self.source().status()
    }

    /// Calls a handler with a delta of this store, as [`KindStore::subscribe`] does.
    pub(crate) fn call(&self, handler: &dyn DeltaHandler, delta: &Delta<'_>) {
        self.source().call(handler.name(), handler, delta);
    }
}

/// Indexes by function, for the handles that declare them.
impl KindStore {
    /// Returns once what is there already has been asked about.
    pub(in crate::cache) fn index(&self, function: &Arc<Function>) {
        // Kept there too, for the case that a wider store is found at the start.
        self.core.index(function);
        if let Some((wide, lens)) = self.through.get() {
            function.limit(lens);
            wide.core.index(function);
        }
    }

    pub(in crate::cache) fn unindex(&self, function: &Arc<Function>) {
        self.core.unindex(function);
        if let Some((wide, _)) = self.through.get() {
            wide.core.unindex(function);
        }
    }
}

/// Where it reads, driven by the cache.
impl KindStore {
    /// Returns what was declared.
    pub(in crate::cache) fn core(&self) -> &Arc<ObjectStore> {
        &self.core
    }

    /// Returns what is read.
    pub(in crate::cache) fn source(&self) -> &Arc<ObjectStore> {
        self.through.get().map_or(&self.core, |(wide, _)| wide.core())
    }

    pub(in crate::cache) fn reads_through(&self) -> bool {
        self.through.get().is_some()
    }

    fn lens(&self) -> Option<&Lens> {
        self.through.get().map(|(_, lens)| lens.as_ref())
    }

    /// Returns how all of this store is seen in `wide`; `None` if it is no part of it.
    pub(in crate::cache) fn lens_on(&self, wide: &Self) -> Option<Lens> {
        let (ours, theirs) = (&self.core, &wide.core);
        let fits = ours.kind == theirs.kind
            && ours.scope != theirs.scope
            && self.fits_in(wide)
            // The configuration allows nothing of it: its own status says so.
            && !ours.parts.is_empty();
        fits.then(|| Lens::on(&theirs.scope, &ours.scope)).flatten()
    }

    /// Returns whether `wide` holds of each object what this one needs.
    fn fits_in(&self, wide: &Self) -> bool {
        self.core.projection() == Projection::Metadata || wide.core.projection() == Projection::Full
    }

    /// Reads through a wider store from now on, unless it has been started. What was asked of it before moves over.
    pub(in crate::cache) fn read_through(&self, wide: &Arc<Self>, lens: Lens) {
        let lens = Arc::new(lens);
        // Asked again under the lock: it may have been widened since it was found to fit.
        let commit = || self.fits_in(wide) && self.through.set((wide.clone(), lens.clone())).is_ok();
        let Some(members) = self.core.give_up(commit) else { return };
        for key in lens.label_keys().chain(self.core.label_indexes().iter().map(String::as_str)) {
            wide.index_label(key);
        }
        for function in self.core.functions().iter() {
            function.limit(&lens);
            wide.core.index(function);
            // Its handle may have gone meanwhile, and found nothing to take away there.
            if !self.core.functions().iter().any(|one| Arc::ptr_eq(one, function)) {
                wide.core.unindex(function);
            }
        }
        for member in members {
            self.join_through(member);
        }
    }

    fn join_through(&self, member: Member) {
        let Some((wide, lens)) = self.through.get() else { return };
        wide.core.join(member.through(lens.clone()));
    }
}

impl fmt::Debug for KindStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KindStore")
            .field("kind", self.kind())
            .field("scope", self.scope())
            .finish_non_exhaustive()
    }
}

impl Drop for KindStore {
    fn drop(&mut self) {
        // The last user has gone. The task of the core ends at its next await and frees what it holds.
        self.core.retire();
    }
}

#[cfg(test)]
mod tests;
