//! The shared cache: one list and one watch per kind and scope, whoever asks.
//!
//! The way of an object: `informer` lists and watches, and cuts what the server sends into objects; `object` reads the
//! metadata of each and leaves the body as bytes; `store` finds out what changed and tells handlers, in order; [`Store`]
//! decodes for readers. Writes of this process enter the same store at once, so its reads are never older than its
//! writes. Imports point that way only: this face, `informer`, `store`, `object`.
//!
//! Declaring a store opens nothing by itself: [`Cache::run`] owns every task. A store ends with its last user. The store
//! of a kind that is not served or not readable waits and says so in [`KindStatus`]; the others run.

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
mod settings;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod typed_store;
mod writes;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::clusters::Peers;
use self::families::Families;
use self::informer::reflector::Reflector;
use self::object::transform::Transform;
use self::store::dispatcher::Dispatcher;
use self::store::object_store::{DeliveryGuard, ObjectStore};
use self::store::packer::{Packer, Rules, SharedCompressor};
use self::store::required::RequiredKinds;
use self::store::sub_scope::SubScope;
use crate::key::{KindId, panic_text};
use crate::metrics::Registry;
use crate::util::resume_panic;

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
    /// `None` for the manager's own.
    cluster: Option<Arc<str>>,
    /// Itself among them.
    peers: Peers,
    settings: CacheSettings,
    client: kube::Client,
    /// Seeds each reflector's jitter.
    random: Mutex<fastrand::Rng>,
    /// In the order of declaration. Users hold them; the cache does not.
    stores: RwLock<Vec<Weak<UntypedStore>>>,
    /// By kind. Locked before `stores`.
    transforms: RwLock<HashMap<KindId, Arc<Transform>>>,
    required: RequiredKinds,
    /// Tells `run` of a new store.
    declared: Notify,
    /// Own writes that no read shows before their event.
    uncovered: AtomicU64,
    /// Where the bodies of all stores are packed.
    compressor: SharedCompressor,
}

// === impl Cache ===

impl Cache {
    /// Makes a cache without stores. `client` is for lists and watches.
    pub fn new(settings: CacheSettings, client: kube::Client, registry: &Registry) -> Self {
        Self::with_random(settings, client, registry, fastrand::Rng::new())
    }

    /// As [`Cache::new`], with jitter from a source the caller seeds.
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

    /// Says whether a replica is ready without a kind, for its stores of every scope. May be said at any time, before or
    /// after a store is declared; the last word holds.
    ///
    /// # Examples
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use mainstay::cache::{Cache, Required};
    /// # use mainstay::key::KindId;
    /// # fn wire(cache: &Cache) {
    /// // Nothing can be done without them.
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

    /// Declares a store, before or after the start; the same declaration gives the same store. It is listed and
    /// watched until the last holder drops it.
    ///
    /// Whoever needs metadata only is served by a store of whole objects if there is one, and until its reflector
    /// starts a metadata-only store becomes one when whole objects are asked for. A narrower namespace or label
    /// selector is served as a part of a wider store that was declared before the start, or that runs already.
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
        // Whole objects first: a metadata-only store beside one is for those who came before it.
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
        // After the lock: what users gave to a store they have dropped meanwhile goes with it.
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

    /// Declares a metadata-only store: `list` and `entry` give [`Meta`], nothing is decoded.
    pub fn metadata<K>(&self, objects: impl Into<ScopedKind<K>>) -> Store<Meta> {
        let ScopedKind { kind, scope, .. } = objects.into();
        Store::new(self.kind(kind, scope, Projection::Metadata))
    }

    /// Changes every object of a kind on its way into the cache, in stores of every scope: what the function leaves out
    /// is kept nowhere, apart from what is known without decoding: labels, owners and finalizers of [`Meta`] are those
    /// the server has, so that selections, owners and [finalizers](crate::client::finalizer) work as without it.
    ///
    /// It sees the object as the cache keeps it, without managedFields (of a metadata-only store, `metadata`), once per
    /// version, before index functions, handlers and readers. That costs a decoding and a writing of the whole object, so
    /// it pays for what is big and not needed. Own writes pass it too. If it fails, or panics, or changes who the
    /// object is, that version is left out, counted in `mainstay_cache_decode_errors_total` and logged by name.
    ///
    /// What it has changed is no object to edit: a [`Patcher`](crate::client::Patcher) takes for absent what it left
    /// out, and refuses. Use [`ensure_live`](crate::client::Patcher::ensure_live) there, or an
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

    /// Returns how every store is doing, in the order of declaration.
    pub fn kinds(&self) -> Vec<KindStatus> {
        self.0.statuses()
    }

    /// Waits until every store declared so far has been listed once, or was found not to be served or not readable.
    /// Never ends before [`Cache::run`] has begun, nor while the API server cannot be reached.
    ///
    /// # Cancel safety
    /// Holds no state; dropping it loses nothing.
    pub async fn settled(&self) {
        for core in self.0.cores() {
            core.settled().await;
        }
    }

    /// Runs every declared store until told to stop, those declared meanwhile included. Returns when all tasks
    /// have ended. A store runs once: after the stop its contents stay readable and are no longer kept true.
    ///
    /// # Panics
    /// Resumes the panic of a store's task: otherwise the store would be read as current although it is never updated again.
    /// Panics of handlers, index functions and transforms are caught earlier and do not reach it.
    ///
    /// # Cancel safety
    /// Dropping it stops the tasks at their next await.
    pub async fn run(&self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut begun = self.0.begin();
        loop {
            for core in begun {
                let cluster = self.0.cluster.as_deref();
                let span = tracing::info_span!("cache", kind = %core.kind, cluster);
                let kind = core.kind.clone();
                let task = AssertUnwindSafe(self.0.clone().run_store(core, stop.clone())).catch_unwind();
                let logged = async move {
                    if let Err(panic) = task.await {
                        tracing::error!(%kind, panic = panic_text(&*panic), "cache task panicked");
                        resume_unwind(panic);
                    }
                };
                tasks.spawn(logged.instrument(span));
            }
            // The stop first: a declaration or an end can wait for ever then.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.0.declared.notified() => {}
                Some(ended) = tasks.join_next() => resume_panic(ended),
            }
            begun = self.0.begin();
        }
        while let Some(ended) = tasks.join_next().await {
            resume_panic(ended);
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

    /// Settles for what was declared since the last time where it reads, and returns what is to be started for it.
    fn begin(&self) -> Vec<Arc<ObjectStore>> {
        let transforms = self.transforms.read();
        let stores = self.stores();
        for store in stores.iter().filter(|store| !store.reads_through() && !store.core().is_started()) {
            if let Some((wide, sub_scope)) = widest(&stores, store) {
                store.read_through(wide, sub_scope);
            }
        }
        let own = stores.iter().filter(|store| !store.reads_through());
        let started = own.map(|store| store.core()).filter(|core| {
            if let Some(transform) = transforms.get(&core.kind) {
                core.set_transform(transform.clone());
            }
            core.start()
        });
        started.cloned().collect()
    }

    fn uncovered(&self) -> u64 {
        self.uncovered.load(Ordering::Relaxed)
    }

    /// Everything of one store is one task, so an event goes from the socket to the handlers without a hand-over.
    async fn run_store(self: Arc<Self>, store: Arc<ObjectStore>, stop: CancellationToken) {
        let _guard = DeliveryGuard(store.clone());
        let reflectors = (0..store.parts.len()).map(|part| {
            let random = self.random.lock().fork();
            Reflector::new(self.client.clone(), store.clone(), part, random).run()
        });
        let reflectors = join_all(reflectors.collect::<Vec<_>>());
        let dispatcher = Dispatcher::new(store.clone()).run();
        let random = self.random.lock().fork();
        let resync = resync(store.clone(), self.settings.resync, random);
        let pack = self.settings.pack;
        let packer = Packer::new(store.clone(), pack, Rules::default(), self.compressor.clone()).run();
        let work = async { tokio::join!(reflectors, dispatcher, resync, packer) };
        // The stop first: nothing that comes later is delivered.
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = store.retired.cancelled() => store.clear(),
            _ = work => {}
        }
    }
}

/// Finds the store of which another is a part and that is itself part of none, or runs already.
fn widest<'s>(
    stores: &'s [Arc<UntypedStore>],
    narrow: &UntypedStore,
) -> Option<(&'s Arc<UntypedStore>, SubScope)> {
    let part_of_another = |store: &UntypedStore| stores.iter().any(|wide| store.sub_scope_of(wide).is_some());
    stores.iter().find_map(|wide| {
        let sub_scope = narrow.sub_scope_of(wide).filter(|_| !wide.reads_through())?;
        (wide.core().is_started() || !part_of_another(wide)).then_some((wide, sub_scope))
    })
}

/// Queues a look at everything once per period.
async fn resync(store: Arc<ObjectStore>, period: Duration, mut random: fastrand::Rng) {
    if period.is_zero() {
        return;
    }
    loop {
        tokio::time::sleep(period.mul_f64(1.0 - random.f64() / 10.0)).await;
        store.queue_resync();
    }
}
