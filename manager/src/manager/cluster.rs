//! One API server: connections to it, a cache, a recorder of Events.
//!
//! A manager has a cluster of its own, with the Lease and everything that is declared on the [`Manager`]
//! itself, and may have more. All of them start and stop with the manager and share its fence, registry and
//! checks. Each has its own connections, cache and tasks, so that one that is slow or down does not delay the
//! others.

#[cfg(feature = "testing")]
mod testing;

use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;

use super::{Manager, RegisterError};
#[cfg(doc)]
use crate::cache::Scope;
use crate::cache::{Cache, HookFailure, Meta, Required, ScopedKind, Store, TransformError, UntypedStore};
use crate::client::connect::{ConnectError, Connections, Role};
use crate::client::{APPLY, Applier, EventWriter, Recorder};
use crate::key::{Fence, Key, KindId, KindScope};
use crate::metrics::Registry;
use crate::rbac::{Access, Declarations, Need, Place};
use crate::reconcile::{BoxError, Context, Outcome, Reconciler};

/// An API server with its cache and clients: the manager's own, to which a [`Manager`] derefs, or another
/// one, made by [`Manager::cluster`]. Cheap to clone; all clones are one cluster.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mainstay::manager::Cluster;
/// use mainstay::prelude::*;
/// use mainstay::watch::EnqueueForObject;
///
/// /// Keeps a copy of each ConfigMap of this cluster at the edge.
/// struct Copier {
///     here: Store<ConfigMap>,
///     edge: Cluster,
/// }
///
/// impl Reconciler for Copier {
///     async fn reconcile(&self, name: &NamespacedName, cx: &Context) -> Outcome {
///         let Some(map) = self.here.get(name)? else { return Ok(Action::Done) };
///         let mut copy = ConfigMap { data: map.data.clone(), ..ConfigMap::default() };
///         copy.metadata.name.clone_from(&map.metadata.name);
///         copy.metadata.namespace.clone_from(&map.metadata.namespace);
///         self.edge.context(cx).apply_unowned(&copy).await?;
///         Ok(Action::Done)
///     }
/// }
///
/// fn wire(manager: &Manager, edge: kube::Config) -> Result<(), BoxError> {
///     let edge = manager.cluster("edge", edge)?;
///     let (here, there) = (manager.store(Scope::all()), edge.store::<ConfigMap>(Scope::all()));
///     let copier = Controller::new("copier").reconciles(&here).watches(&there, EnqueueForObject);
///     manager.register(copier.writes::<ConfigMap>().reconciler(Copier { here, edge }))?;
///     Ok(())
/// }
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Cluster {{ name: {:?}, .. }}", self.shared.name)]
pub struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    /// The name of the cluster; empty for the manager's own.
    name: Arc<str>,
    connections: Connections,
    cache: Cache,
    /// The client for writes of leader-only work; the fence of the Lease lets them pass only while this
    /// replica leads.
    leader_client: kube::Client,
    any_client: kube::Client,
    /// Records Events of this cluster in the name of the manager.
    events: Recorder,
    /// The rights that the manager needs in this cluster.
    needs: Declarations,
}

/// A reconciler that works in another cluster: each run gets the context of that cluster.
struct Moved<R> {
    cluster: Cluster,
    reconciler: R,
}

// === impl Manager ===

impl Manager {
    /// Adds another cluster to the manager, before or while it runs. The cluster opens no connection yet, and
    /// stays until the manager stops. Call this inside the runtime that runs the reconciles.
    ///
    /// Its stores are listed and watched like those of the manager's own cluster, over connections of its
    /// own, with the rights of `connection`. The start waits for their first lists too, with one difference:
    /// a cluster that cannot be reached, or is silent for half a minute, delays only the controllers that
    /// watch it. It makes a replica unready only while that replica starts and waits for it, and has no part
    /// in the election. `/readyz/cache-NAME-KIND`, the metrics and `/debug/caches` show its state.
    ///
    /// `cache.namespaces` of the configuration limits the manager's own cluster only.
    ///
    /// # Blocking
    /// Reads the files of `connection` before it returns. A credential plug-in (`exec`) runs at the first
    /// request, on a thread of its own.
    ///
    /// # Errors
    /// The name is no DNS label or is taken, the connection cannot be set up, or the manager has begun to
    /// stop. A refused cluster leaves no task and keeps no name.
    pub fn cluster(
        &self,
        name: impl Into<Arc<str>>,
        connection: kube::Config,
    ) -> Result<Cluster, RegisterError> {
        let name: Arc<str> = name.into();
        RegisterError::check_name("cluster", &name)?;
        self.shared.clusters.add(&name, || {
            let made = self.shared.clusters.own().beside(&name, connection, &self.shared.fence);
            made.map_err(|source| RegisterError::Connect { name: Arc::clone(&name), source })
        })
    }
}

// === impl Cluster ===

impl Cluster {
    /// Makes the manager's own cluster, and the writer of the Events recorded in it.
    pub(super) fn own(
        options: &super::ManagerOptions,
        configuration: &crate::config::ManagerConfiguration,
        connection: kube::Config,
        fence: &Fence,
        registry: &Registry,
    ) -> Result<(Self, EventWriter), ConnectError> {
        let connections = Connections::new(connection, registry)?;
        let watches = connections.client(Role::Watches)?;
        let cache = Cache::new(configuration.cache.settings(), watches.clone(), registry);
        // Not fenced: Events decide nothing, and may be written after the Lease is released.
        let events = Recorder::new(options.name, &options.identity, watches, registry);
        Self::of("", connections, cache, fence, events)
    }

    /// Makes another cluster of the same manager, and the writer of the Events recorded in it.
    fn beside(
        &self,
        name: &str,
        connection: kube::Config,
        fence: &Fence,
    ) -> Result<(Self, EventWriter), ConnectError> {
        let connections = self.shared.connections.beside(connection)?;
        let watches = connections.client(Role::Watches)?;
        let cache = self.shared.cache.for_cluster(name, watches.clone());
        Self::of(name, connections, cache, fence, self.shared.events.beside(watches))
    }

    fn of(
        name: &str,
        connections: Connections,
        cache: Cache,
        fence: &Fence,
        (events, writer): (Recorder, EventWriter),
    ) -> Result<(Self, EventWriter), ConnectError> {
        connections.observe(Arc::new(cache.clone()));
        let shared = Shared {
            name: name.into(),
            leader_client: connections.client(Role::Writes(fence.clone()))?,
            any_client: connections.client(Role::Writes(Fence::open()))?,
            connections,
            cache,
            events,
            needs: Declarations::default(),
        };
        Ok((Self { shared: Arc::new(shared) }, writer))
    }

    /// Returns the name of the cluster; empty for the manager's own.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Declares a kind to be cached and returns a handle to read it. Handles of one kind and scope share one
    /// watch.
    ///
    /// The kind is that of the type, or with [`Scope::of`] one known only at run time. The latter is read as
    /// [`DynamicObject`](kube::core::DynamicObject), or through [`Store::view`] as a struct with the needed
    /// fields, and is shared with typed readers of the same kind. Its writers are
    /// [`Applier::new`](crate::client::Applier::new) and [`Patcher::new`](crate::client::Patcher::new).
    ///
    /// ```no_run
    /// use kube::Client;
    /// use kube::core::{DynamicObject, GroupVersionKind};
    /// use kube::discovery::{self, Scope as Found};
    /// use mainstay::cache::{Scope, Store};
    /// use mainstay::client::Applier;
    /// use mainstay::controller::Controller;
    /// use mainstay::key::{Key as _, KindId, NamespacedName};
    /// use mainstay::manager::Manager;
    /// use mainstay::reconcile::{Action, BoxError, Context, Outcome, Reconciler};
    /// use serde_json::json;
    ///
    /// /// Labels each object, of any kind, with the colour in its spec.
    /// struct Painter {
    ///     objects: Store,
    ///     applier: Applier<DynamicObject>,
    /// }
    ///
    /// impl Reconciler for Painter {
    ///     async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
    ///         let Some(object) = self.objects.get(request)? else { return Ok(Action::Done) };
    ///         let labels = json!({"colour": object.data["spec"]["colour"]});
    ///         let (name, namespace) = (request.name(), request.namespace());
    ///         let labelled = json!({"metadata": {"name": name, "namespace": namespace, "labels": labels}});
    ///         let current = self.objects.entry(request)?;
    ///         self.applier.ensure(cx, current.as_ref(), &labelled).await?;
    ///         Ok(Action::Done)
    ///     }
    /// }
    ///
    /// async fn wire(manager: &Manager, kind: &GroupVersionKind, client: &Client) -> Result<(), BoxError> {
    ///     let (resource, found) = discovery::pinned_kind(client, kind).await?;
    ///     let kind = KindId::of_resource(&resource, found.scope == Found::Namespaced);
    ///     let objects = manager.store(Scope::all().of(kind.clone()));
    ///     let controller = Controller::new("painter").reconciles(&objects);
    ///     let applier = Applier::new(kind, "painter");
    ///     manager.register(controller.reconciler(Painter { objects, applier }))?;
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn store<K>(&self, objects: impl Into<ScopedKind<K>>) -> Store<K> {
        let store = self.shared.cache.store(objects);
        self.needs(reads(store.untyped()));
        store
    }

    /// Declares a kind to be cached for readers of metadata only, and returns a handle as [`Cluster::store`]
    /// does. `list` and `entry` return metadata without decoding, and the kind is cached without bodies,
    /// unless there is also a reader of whole objects.
    #[track_caller]
    pub fn metadata<K>(&self, objects: impl Into<ScopedKind<K>>) -> Store<Meta> {
        let store = self.shared.cache.metadata(objects);
        self.needs(reads(store.untyped()));
        store
    }

    /// Declares that the program needs a right in this cluster which does not follow from a store or from
    /// what a controller writes, such as one for requests through [`Context::client`]. See
    /// [`Controller::needs`](crate::controller::Controller::needs) for the needs of one controller.
    #[track_caller]
    pub fn needs(&self, access: impl Into<Access>) {
        self.shared.needs.declare(access, Place::caller());
    }

    /// Makes an applier for objects of the kind `K`, which writes them by server-side apply as this field
    /// manager, and declares the rights to create and patch them.
    #[track_caller]
    pub fn applier<K>(&self, field_manager: impl Into<Arc<str>>) -> Applier<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: KindScope,
    {
        self.needs(Access::to::<K>(APPLY).because("an applier writes it"));
        Applier::new(KindId::of::<K>(), field_manager)
    }

    /// Sets whether a replica counts as ready while a kind is not listed or its watch is broken; see
    /// [`Required`]. May be called at any time; the last call counts.
    pub fn required(&self, kind: KindId, required: Required) {
        self.shared.cache.required(kind, required);
    }

    /// Sets a function that changes every object of a kind before the cache stores it; see
    /// [`Cache::transform`].
    ///
    /// # Errors
    /// Fails if the kind has a transform, or is being watched already.
    pub fn transform(
        &self,
        kind: KindId,
        change: impl Fn(&mut serde_json::Value) -> Result<(), HookFailure> + Send + Sync + 'static,
    ) -> Result<(), TransformError> {
        self.shared.cache.transform(kind, change)
    }

    /// Returns the context of the run `cx` moved to this cluster, with a client, a recorder of Events and
    /// typed writes of this cluster. Writes are stopped with the Lease as those of `cx`, and enter the stores
    /// of this cluster at once.
    ///
    /// Make an [`Applier`](crate::client::Applier) for each cluster: one that is used for several compares
    /// the objects of one cluster with the answers of another.
    pub fn context(&self, cx: &Context) -> Context {
        cx.elsewhere(&self.shared.name, |here| {
            let events = self.shared.events.for_controller(here.events.controller());
            (self.client(here.fenced).clone(), events)
        })
    }

    /// Moves a reconciler to this cluster: each run gets the [`Cluster::context`] of its context. With stores
    /// of this cluster, a reconciler that was written for a single cluster works in this one, with its
    /// finalizers.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use mainstay::cache::Scope;
    /// # use mainstay::controller::Controller;
    /// # use mainstay::manager::{Cluster, Manager, RegisterError};
    /// # use mainstay::reconcile::Reconciler;
    /// # fn wire(manager: &Manager, edge: &Cluster, greeter: impl Reconciler) -> Result<(), RegisterError> {
    /// let maps = edge.store::<ConfigMap>(Scope::all());
    /// let controller = Controller::new("edge-greeter").reconciles(&maps);
    /// manager.register(controller.reconciler(edge.reconciler(greeter)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reconciler<Q: Key>(&self, reconciler: impl Reconciler<Q>) -> impl Reconciler<Q> {
        Moved { cluster: self.clone(), reconciler }
    }

    /// Returns this cluster's client for writes: one stopped by the fence of the Lease if `fenced`, else one
    /// that always writes.
    pub(super) fn client(&self, fenced: bool) -> &kube::Client {
        if fenced { &self.shared.leader_client } else { &self.shared.any_client }
    }

    pub(super) fn events(&self) -> &Recorder {
        &self.shared.events
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.shared.connections
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    pub(super) fn declarations(&self) -> &Declarations {
        &self.shared.needs
    }
}

/// Returns the access of the list and watch of a store.
fn reads(store: &UntypedStore) -> Access {
    Access::of(store.kind(), "", ["list", "watch"])
        .within(store.within())
        .because("the cache lists and watches it")
}

impl<Q: Key, R: Reconciler<Q>> Reconciler<Q> for Moved<R> {
    async fn reconcile(&self, key: &Q, cx: &Context) -> Outcome {
        self.reconciler.reconcile(key, &self.cluster.context(cx)).await
    }

    fn check(&self, primary: Option<&KindId>) -> Result<(), BoxError> {
        self.reconciler.check(primary)
    }

    fn needs(&self) -> Vec<Need> {
        self.reconciler.needs()
    }
}
