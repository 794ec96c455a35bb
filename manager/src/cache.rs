//! The shared cache: one list and one watch per kind and scope, for any number of readers.
//!
//! `informer` lists and watches, and cuts the responses into objects; `object` reads the metadata of each
//! object and keeps its body as bytes; `store` determines the changes and delivers them to handlers, in
//! order; [`Store`] decodes for readers. Writes of this process enter the same store at once, so its reads
//! are never older than its writes. Imports go in this direction only: `cache`, `informer`, `store`,
//! `object`.
//!
//! To declare a store starts no task: [`Cache::run`] owns every task. A store ends with its last user. The
//! store of a kind that is not served or not readable retries and reports it in [`KindStatus`]; the others
//! run.

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
use self::object::transform::Transform;
use self::store::object_store::ObjectStore;
use self::store::packer::SharedCompressor;
use self::store::required::RequiredKinds;
use crate::key::KindId;
use crate::metrics::Registry;

pub use object::changes::{Aspect, Changes};
pub use object::delta::Delta;
pub use object::dictionary::Damage;
pub use object::meta::{Labels, Meta, Owner, ResourceVersion, Uid};
pub use object::packing::Packing;
pub use object::transform::{HookFailure, TransformError};
pub use object::view::{ReadError, View};
pub use object::{PAUSED_ANNOTATION, Projection, RECONCILE_AT_ANNOTATION};
pub use settings::CacheSettings;
pub use store::dispatcher::{DeltaHandler, SLOW_HANDLER, Subscription};
pub use store::function::IndexError;
pub use store::packer::Pack;
pub use store::required::Required;
pub use store::select::{LabelSelector, Scope, ScopedKind, Select, SelectorError};
pub use store::status::{HandlerTrouble, KindStatus, PartStatus};
pub use store::untyped_store::UntypedStore;
pub use typed_store::{Entry, Store};

/// All stores of one cluster. Cheap to clone; all clones are one cache.
#[derive(Clone, derive_more::Debug)]
#[debug("Cache {{ stores: {:?}, .. }}", self.0.stores.read().len())]
pub struct Cache(Arc<Inner>);

struct Inner {
    /// The name of the cluster; `None` for the manager's own.
    cluster: Option<Arc<str>>,
    /// The caches of all clusters, including this one.
    peers: Peers,
    settings: CacheSettings,
    client: kube::Client,
    /// Seeds each reflector's jitter.
    random: Mutex<fastrand::Rng>,
    /// In the order of declaration. Only users keep them alive.
    stores: RwLock<Vec<Weak<UntypedStore>>>,
    /// By kind. Locked before `stores`.
    transforms: RwLock<HashMap<KindId, Arc<Transform>>>,
    required: RequiredKinds,
    /// Wakes `run` when a store is declared.
    declared: Notify,
    /// The number of own writes that reads show only after their watch event.
    uncovered: AtomicU64,
    /// Packs the bodies of all stores.
    compressor: SharedCompressor,
}

// === impl Cache ===

impl Cache {
    /// Makes a cache without stores. It lists and watches with `client`.
    pub fn new(settings: CacheSettings, client: kube::Client, registry: &Registry) -> Self {
        Self::with_random(settings, client, registry, fastrand::Rng::new())
    }

    /// As [`Cache::new`], with `random` as the source of jitter.
    pub fn with_random(
        settings: CacheSettings,
        client: kube::Client,
        registry: &Registry,
        random: fastrand::Rng,
    ) -> Self {
        let peers = Peers::default();
        registry.reserve(Families::names());
        registry.register_collector(Box::new(Families { caches: peers.clone() }));
        Self::among(peers, None, settings, client, random)
    }

    /// Sets how the readiness of a replica depends on a kind, for its stores of every scope. May be called at
    /// any time, before or after a store is declared; the last call applies.
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

    fn among(
        peers: Peers,
        cluster: Option<Arc<str>>,
        settings: CacheSettings,
        client: kube::Client,
        random: fastrand::Rng,
    ) -> Self {
        let inner = Arc::new(Inner {
            cluster,
            peers,
            settings,
            client,
            random: Mutex::new(random),
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

    /// Declares a store, before or after the start; equal declarations return the same store. It is listed
    /// and watched until its last reference is dropped.
    ///
    /// A metadata-only declaration returns the store of whole objects if there is one. Until its reflector
    /// starts, a metadata-only store becomes a store of whole objects when one is declared. A store of a
    /// narrower namespace or label selector reads through a wider store that was declared before the start,
    /// or that runs already.
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

    /// Declares a store of whole objects.
    pub fn store<K>(&self, objects: impl Into<ScopedKind<K>>) -> Store<K> {
        let ScopedKind { kind, scope, .. } = objects.into();
        Store::new(self.kind(kind, scope, Projection::Full))
    }

    /// Declares a metadata-only store: `list` and `entry` return [`Meta`] without decoding.
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
        transforms.insert(kind, Arc::new(Transform::new(change)));
        Ok(())
    }

    /// Returns the status of every store, in the order of declaration.
    pub fn kinds(&self) -> Vec<KindStatus> {
        self.0.statuses()
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
