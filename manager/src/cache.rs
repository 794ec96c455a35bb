//! The shared cache: one list and one watch per kind and scope, for any number of readers.
//!
//! `informer` lists and watches, and cuts the responses into objects; `object` reads the metadata of each
//! object and keeps its body as bytes; `store` determines the changes and delivers them to handlers, in
//! order; [`Store`] decodes for readers. Writes of this process enter the same store at once, so its reads
//! are never older than its writes. Imports go in this direction only: `cache`, `informer`, `store`,
//! `object`.
//!
//! Declaring a store starts no task: [`Cache::run`] starts and owns all tasks. When the last handle of a
//! store is dropped, its list and watch end and its memory is freed. If a kind is not served or may not be
//! read, its store retries and reports the error in [`KindStatus`]; other stores are not affected.

mod clusters;
mod declared;
mod families;
#[cfg(feature = "testing")]
mod fixture;
#[cfg(any(test, fuzzing))]
#[path = "cache/tests/fuzz.rs"]
pub mod fuzz;
mod informer;
mod object;
mod run;
mod settings;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod typed_store;
mod writes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use self::clusters::Peers;
use self::families::Families;
use self::object::Transform;
use self::store::{ObjectStore, RequiredKinds, SharedCompressor};
use crate::key::KindId;
use crate::metrics::Registry;

pub use object::{Damage, Delta, HookFailure, Labels, Meta, Owner, Packing, Projection};
pub use object::{PAUSED_ANNOTATION, RECONCILE_AT_ANNOTATION};
pub use object::{ReadError, ResourceVersion, TransformError, Uid, View};
pub use settings::CacheSettings;
pub use store::{DeltaHandler, HandlerTrouble, IndexError, KindStatus, LabelSelector, Pack, PartStatus};
pub use store::{
    Required, SLOW_HANDLER, Scope, ScopedKind, Select, SelectorError, Subscription, UntypedStore,
};
pub use typed_store::{Entry, Store};

/// The cache of one cluster: all of its stores. Cheap to clone; all clones are one cache.
#[derive(Clone, derive_more::Debug)]
#[debug("Cache {{ stores: {:?}, .. }}", self.0.stores.read().len())]
pub struct Cache(Arc<Inner>);

struct Inner {
    /// The name of the cluster of this cache; `None` for the manager's own.
    cluster: Option<Arc<str>>,
    /// The caches of all clusters of the manager, including this one.
    peers: Peers,
    settings: CacheSettings,
    client: kube::Client,
    /// The source of the random numbers with which the tasks of the stores vary their delays.
    random: Mutex<fastrand::Rng>,
    /// The declared stores, in the order of declaration. Weak, so that a store ends when its last handle or
    /// subscription is dropped.
    stores: RwLock<Vec<Weak<UntypedStore>>>,
    /// The transform of each kind that has one: a function that changes objects before they are stored.
    /// Locked before `stores`.
    transforms: RwLock<HashMap<KindId, Arc<Transform>>>,
    /// The kinds for which [`Cache::required`] was called.
    required: RequiredKinds,
    /// Wakes [`Cache::run`] when a store is declared.
    declared: Notify,
    /// The number of writes of this process that some store could not apply: its reads show them only after
    /// their watch event.
    uncovered: AtomicU64,
    /// The compressor with which all stores compress the bodies of their objects.
    compressor: SharedCompressor,
}

// === impl Cache ===

impl Cache {
    /// Makes a cache without stores. It lists and watches with `client`, and registers its metrics with
    /// `registry`.
    pub fn new(settings: CacheSettings, client: kube::Client, registry: &Registry) -> Self {
        let peers = Peers::default();
        registry.reserve(Families::names());
        registry.register_collector(Box::new(Families { caches: peers.clone() }));
        Self::among(peers, None, settings, client)
    }

    /// Sets how the readiness of a replica depends on a kind, for the stores of all scopes of this kind. May
    /// be called before or after a store is declared; the last call applies.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use mainstay::cache::{Cache, Required};
    /// # use mainstay::key::KindId;
    /// # fn wire(cache: &Cache) {
    /// // No controller can work without them.
    /// cache.required(KindId::of::<ConfigMap>(), Required::Always);
    /// # }
    /// ```
    pub fn required(&self, kind: KindId, required: Required) {
        self.0.required.set(kind, required);
    }

    /// Makes a cache without stores and adds it to `peers`. `cluster` is the name of another cluster than the
    /// manager's own.
    fn among(peers: Peers, cluster: Option<Arc<str>>, settings: CacheSettings, client: kube::Client) -> Self {
        let inner = Arc::new(Inner {
            cluster,
            peers,
            settings,
            client,
            random: Mutex::new(fastrand::Rng::new()),
            stores: RwLock::default(),
            transforms: RwLock::default(),
            required: RequiredKinds::default(),
            declared: Notify::new(),
            uncovered: AtomicU64::new(0),
            compressor: SharedCompressor::default(),
        });
        inner.peers.join(&inner);
        Self(inner)
    }

    /// Declares a store of the objects of a kind, before or after [`Cache::run`] has begun. Equal
    /// declarations return the same store. It is listed and watched until the last reference to it is
    /// dropped.
    ///
    /// Declarations share a list and watch where they can:
    /// - A metadata-only declaration returns the store of whole objects of the same scope, if there is one.
    /// - If whole objects are declared and a metadata-only store of the same scope has not started yet, that
    ///   store is changed to hold whole objects, and returned.
    /// - A store of one namespace or with a label selector has no list and watch of its own if another store
    ///   of the kind holds all of its objects. That store must be declared before this one starts; this one
    ///   then reads from it.
    pub fn kind(&self, kind: KindId, scope: Scope, projection: Projection) -> Arc<UntypedStore> {
        let mut stores = self.0.stores.write();
        let scope = if kind.is_namespaced() { scope } else { Scope { namespace: None, ..scope } };
        let known: Vec<Arc<UntypedStore>> = stores.iter().filter_map(Weak::upgrade).collect();
        let fits = |store: &&Arc<UntypedStore>| {
            let core = store.core();
            core.kind == kind
                && core.scope == scope
                && (store.projection() == projection || projection == Projection::Metadata || core.widen())
        };
        // Whole objects first: a metadata-only store beside such a one is older, and only for its users.
        let full = known.iter().filter(|store| store.projection() == Projection::Full).find(fits);
        let found = full.or_else(|| known.iter().find(fits)).cloned();
        let store = found.clone().unwrap_or_else(|| {
            let parts = self.0.settings.parts(&kind, &scope);
            let limits = self.0.settings.limits();
            let core = ObjectStore::new(kind, scope, projection, parts, limits);
            let core = core.in_cluster(self.0.cluster.clone(), self.0.required.clone());
            let store = Arc::new(UntypedStore::new(core));
            stores.retain(|store| store.strong_count() > 0);
            stores.push(Arc::downgrade(&store));
            store
        });
        drop(stores);
        // Outside the lock: a store whose users have dropped it meanwhile drops their handlers here.
        drop(known);
        if found.is_none() {
            self.0.declared.notify_one();
        }
        store
    }

    /// Declares a store of whole objects and returns a typed handle of it. See [`Cache::kind`].
    pub fn store<K>(&self, objects: impl Into<ScopedKind<K>>) -> Store<K> {
        let ScopedKind { kind, scope, .. } = objects.into();
        Store::new(self.kind(kind, scope, Projection::Full))
    }

    /// Declares a store that requests and keeps only the metadata of each object. The entries of its `list`
    /// and `entry` have [`Meta`], which is read without decoding.
    pub fn metadata<K>(&self, objects: impl Into<ScopedKind<K>>) -> Store<Meta> {
        let ScopedKind { kind, scope, .. } = objects.into();
        Store::new(self.kind(kind, scope, Projection::Metadata))
    }

    /// Changes every object of a kind before it is stored, in stores of every scope. A field that the
    /// function removes is not kept. Labels, owners and finalizers of [`Meta`] stay as the server has them,
    /// so that selections, owners and [finalizers](crate::client::finalizer) work as without a transform.
    ///
    /// The function receives the object as the cache would keep it, without managedFields (in a
    /// metadata-only store, only `metadata`), once per version, before index functions, handlers and readers.
    /// Each call costs decoding and encoding the whole object, so it pays for large fields that are not
    /// needed. Own writes are transformed too. If the function fails, panics, or changes the object's
    /// identity, this version is left out, counted in `mainstay_cache_decode_errors_total` and logged by
    /// name.
    ///
    /// A changed object cannot be edited: a [`Patcher`](crate::client::Patcher) would treat removed fields as
    /// absent, so it refuses. Use [`ensure_live`](crate::client::Patcher::ensure_live) there, or an
    /// [`Applier`](crate::client::Applier).
    ///
    /// # Errors
    /// Fails if the kind has a transform, or is being watched already.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use mainstay::cache::{Cache, TransformError};
    /// # use mainstay::key::KindId;
    /// # fn wire(cache: &Cache) -> Result<(), TransformError> {
    /// cache.transform(KindId::of::<ConfigMap>(), |object| {
    ///     if let Some(map) = object.as_object_mut() {
    ///         map.remove("binaryData");
    ///     }
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn transform(
        &self,
        kind: KindId,
        change: impl Fn(&mut serde_json::Value) -> Result<(), HookFailure> + Send + Sync + 'static,
    ) -> Result<(), TransformError> {
        let mut transforms = self.0.transforms.write();
        if transforms.contains_key(&kind) {
            return Err(TransformError::Taken { kind });
        }
        if self.0.cores().iter().any(|core| core.kind == kind && core.is_started()) {
            return Err(TransformError::TooLate { kind });
        }
        transforms.insert(kind, Arc::new(Transform(Box::new(change))));
        Ok(())
    }

    /// Returns the status of every store of this cache, in the order of declaration.
    pub fn kinds(&self) -> Vec<KindStatus> {
        self.0.statuses()
    }

    /// Returns every declared store of this cache, in the order of declaration.
    #[cfg(feature = "dev")]
    pub(crate) fn stores(&self) -> Vec<Arc<UntypedStore>> {
        self.0.stores()
    }

    /// Waits until every store declared so far has been listed once, or was found not to be served or not
    /// readable. Does not end before [`Cache::run`] has begun, or while the API server cannot be reached.
    ///
    /// # Cancel safety
    /// Holds no state: dropping it has no effect.
    pub async fn settled(&self) {
        for core in self.0.cores() {
            core.settled().await;
        }
    }
}

// === impl Inner ===

impl Inner {
    fn stores(&self) -> Vec<Arc<UntypedStore>> {
        self.stores.read().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the object stores that have a list and watch of their own; narrower stores read through these.
    fn cores(&self) -> Vec<Arc<ObjectStore>> {
        let stores = self.stores();
        stores.iter().filter(|store| !store.reads_through()).map(|store| store.core().clone()).collect()
    }

    fn statuses(&self) -> Vec<KindStatus> {
        self.cores().iter().map(|core| core.status()).collect()
    }

    fn uncovered(&self) -> u64 {
        self.uncovered.load(Ordering::Relaxed)
    }
}
