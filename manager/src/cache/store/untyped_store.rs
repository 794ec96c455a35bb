//! The data of one declared store: either its own list and watch, or a part of a wider store.
//!
//! Only users hold an [`UntypedStore`]: store handles, sources and subscriptions. When the last of them is
//! dropped, the list and watch end and the memory is freed; a later declaration of the same scope starts a
//! new store.
//!
//! # Invariants
//! 1. The cache and its tasks hold [`ObjectStore`]s, never an [`UntypedStore`], so that only stores in use
//!    are watched.
//! 2. A store reads through a wider store either for its whole life or never.

use std::sync::{Arc, OnceLock};

use crate::cache::object::{Delta, Projection, ReadError, ResourceVersion, View};
use crate::cache::store::{
    DeltaHandler, IndexFunction, KindStatus, ObjectStore, Scope, Select, SubScope, Subscriber, Subscription,
};
use crate::key::{Key as _, KindId, NamespacedName};
use crate::rbac::Within;

/// The cached objects of one kind and scope, undecoded. Kept up to date while at least one reference exists.
#[derive(derive_more::Debug)]
#[debug("UntypedStore {{ kind: {:?}, scope: {:?}, .. }}", self.kind(), self.scope())]
pub struct UntypedStore {
    /// The store as declared. It lists and watches unless there is a wider store to read through.
    core: Arc<ObjectStore>,
    /// The wider store that this one reads through, with the part of it that this one holds; empty if there
    /// is none. Written at most once, under the lock of the table in `core` and before `core` can start.
    through: OnceLock<(Arc<UntypedStore>, Arc<SubScope>)>,
}

// === impl UntypedStore ===

impl UntypedStore {
    pub(in crate::cache) fn new(core: ObjectStore) -> Self {
        Self { core: Arc::new(core), through: OnceLock::new() }
    }

    /// Returns the kind of the objects in the store.
    pub fn kind(&self) -> &KindId {
        &self.core.kind
    }

    /// Returns the name of the store's cluster; `None` for the manager's own.
    pub fn cluster(&self) -> Option<&str> {
        self.core.cluster.as_deref()
    }

    /// Returns the scope with which the store was declared.
    pub fn scope(&self) -> &Scope {
        &self.core.scope
    }

    /// Returns the part of the cluster from which the store reads.
    pub(crate) fn within(&self) -> Within {
        match &self.core.scope.namespace {
            _ if !self.kind().is_namespaced() => Within::Cluster,
            Some(namespace) => Within::Namespace(Arc::clone(namespace)),
            None => Within::Served,
        }
    }

    /// Returns whether the store holds whole objects or only metadata.
    pub fn projection(&self) -> Projection {
        self.source().projection()
    }

    /// Returns one object of the store, own writes included, without waiting; `None` if there is no such
    /// object.
    ///
    /// # Errors
    /// Fails before the first sync, and for a namespace outside the scope.
    pub fn get(&self, request: &NamespacedName) -> Result<Option<View>, ReadError> {
        self.core.in_scope(request.namespace())?;
        let found = self.source().get(request, &self.core)?;
        Ok(found.filter(|view| self.sub_scope().is_none_or(|sub_scope| sub_scope.admits(view.meta()))))
    }

    /// Returns the selected objects of the store in no particular order, undecoded.
    ///
    /// Writers are let in between: each object is returned in a state that it had during the call, and an
    /// object that was stored all the time is included. All changes made before the call are included.
    ///
    /// # Errors
    /// Fails before the first sync, for a namespace outside the scope, and for an undeclared index.
    pub fn list(&self, select: &Select) -> Result<Vec<View>, ReadError> {
        if let Some(namespace) = &select.namespace {
            self.core.in_scope(Some(namespace))?;
        }
        let Some(sub_scope) = self.sub_scope() else { return self.core.list(select, &self.core) };
        self.source().list(&sub_scope.narrow(select.clone()), &self.core)
    }

    /// Adds an index by the label `key`, so that the cost of a selection by this label depends on its result.
    /// A second call has no effect.
    ///
    /// May be called at any time; the objects already stored are indexed before the call returns.
    pub fn index_label(&self, key: &str) {
        // Also in `core`: at the start the store may turn out to be a part of a wider one, which then gets
        // this index.
        self.core.index_label(key);
        if let Some((wide, _)) = self.through.get() {
            wide.index_label(key);
        }
    }

    /// Returns whether the first list of the store is complete, in every namespace that it lists.
    pub fn is_synced(&self) -> bool {
        self.source().is_synced()
    }

    /// Subscribes a handler to the store: it receives the stored objects as initial deltas and then every
    /// change, in order.
    pub fn subscribe(self: &Arc<Self>, handler: Box<dyn DeltaHandler>) -> Subscription {
        let (subscription, subscriber) = Subscription::new(self.clone(), handler);
        // If the store already reads through a wider one, the subscriber joins that one.
        if let Err(subscriber) = self.core.join(subscriber, || self.through.get().is_some()) {
            self.join_through(subscriber);
        }
        subscription
    }

    /// Waits until the first list of the store is complete, or the API server has answered that the kind does
    /// not exist or may not be read.
    ///
    /// # Cancel safety
    /// No event is lost; call it again.
    pub async fn settled(&self) {
        // This wait also ends when `core` starts to read through a wider store.
        self.core.settled().await;
        self.source().settled().await;
    }

    /// Waits until reads of an object return the given version or a newer one. The response to a write
    /// contains the version to wait for.
    ///
    /// Most own writes need no wait: reads include them at once. The others are counted in
    /// `mainstay_cache_uncovered_writes_total`. The wait ends with the object's own watch event, or with any
    /// later event or bookmark; a quiet server sends a bookmark about once a minute. It never ends if the
    /// cache stops before that: race it with the shutdown.
    ///
    /// # Errors
    /// Fails for a namespace outside the scope.
    ///
    /// # Cancel safety
    /// No event is lost; call it again.
    pub async fn caught_up(
        &self,
        request: &NamespacedName,
        version: &ResourceVersion,
    ) -> Result<(), ReadError> {
        self.core.in_scope(request.namespace())?;
        self.source().caught_up(request, version).await;
        Ok(())
    }

    /// Returns the status of the store; of a part of a wider store, the status of the wider one.
    pub fn status(&self) -> KindStatus {
        self.source().status()
    }

    /// Calls a handler with one delta, with the same panic and duration checks as for a subscribed handler.
    pub(crate) fn call(&self, handler: &dyn DeltaHandler, delta: &Delta<'_>) {
        self.source().call(handler.name(), handler, delta);
    }
}

/// Indexes by function of a store, used by the typed store handles.
impl UntypedStore {
    /// Adds an index by function to the store; returns after the stored objects have been evaluated.
    pub(in crate::cache) fn index(&self, function: &Arc<IndexFunction>) {
        // Also in `core`: at the start the store may turn out to be a part of a wider one, which then gets
        // this index.
        self.core.index(function);
        if let Some((wide, sub_scope)) = self.through.get() {
            function.limit(sub_scope);
            wide.core.index(function);
        }
    }

    pub(in crate::cache) fn unindex(&self, function: &Arc<IndexFunction>) {
        self.core.unindex(function);
        if let Some((wide, _)) = self.through.get() {
            wide.core.unindex(function);
        }
    }
}

/// The choice of a store between its own list and watch and those of a wider store, made by the cache.
impl UntypedStore {
    /// Returns the object store as declared, even if a wider one serves the reads.
    pub(in crate::cache) fn core(&self) -> &Arc<ObjectStore> {
        &self.core
    }

    /// Returns the object store that serves the reads: the declared one, or a wider one.
    pub(in crate::cache) fn source(&self) -> &Arc<ObjectStore> {
        self.through.get().map_or(&self.core, |(wide, _)| wide.core())
    }

    pub(in crate::cache) fn reads_through(&self) -> bool {
        self.through.get().is_some()
    }

    fn sub_scope(&self) -> Option<&SubScope> {
        self.through.get().map(|(_, sub_scope)| sub_scope.as_ref())
    }

    /// Returns the scope of this store as a part of `wide`; `None` if it is not a part of it.
    pub(in crate::cache) fn sub_scope_of(&self, wide: &Self) -> Option<SubScope> {
        let (narrow, wider) = (&self.core, &wide.core);
        let fits = narrow.kind == wider.kind
            && narrow.scope != wider.scope
            && self.fits_in(wide)
            // The configuration allows none of its namespaces: its own status reports that.
            && !narrow.parts.is_empty();
        fits.then(|| SubScope::of(&wider.scope, &narrow.scope)).flatten()
    }

    /// Returns whether `wide` holds as much of each object as this store needs.
    fn fits_in(&self, wide: &Self) -> bool {
        self.core.projection() == Projection::Metadata || wide.core.projection() == Projection::Full
    }

    /// Makes this store read through a wider one, unless it has started. Moves its indexes and subscribers
    /// there.
    pub(in crate::cache) fn read_through(&self, wide: &Arc<Self>, sub_scope: SubScope) {
        let sub_scope = Arc::new(sub_scope);
        // Checked again under the lock: the projection of this store may have been widened meanwhile.
        let commit = || self.fits_in(wide) && self.through.set((wide.clone(), sub_scope.clone())).is_ok();
        let Some(subscribers) = self.core.give_up(commit) else { return };
        for key in sub_scope.label_keys().chain(self.core.label_indexes().iter().map(String::as_str)) {
            wide.index_label(key);
        }
        for function in self.core.functions().iter() {
            function.limit(&sub_scope);
            wide.core.index(function);
            // The store handle may have been dropped meanwhile, before there was an index in `wide` to
            // remove.
            if !self.core.functions().iter().any(|one| Arc::ptr_eq(one, function)) {
                wide.core.unindex(function);
            }
        }
        for subscriber in subscribers {
            self.join_through(subscriber);
        }
    }

    fn join_through(&self, subscriber: Subscriber) {
        let Some((wide, sub_scope)) = self.through.get() else { return };
        wide.core.join(subscriber.within(sub_scope.clone()), || false).ok();
    }
}

impl Drop for UntypedStore {
    fn drop(&mut self) {
        // The last user is gone. The task of `core` ends at its next await and frees the objects.
        self.core.retired.cancel();
    }
}

#[cfg(test)]
mod tests;
