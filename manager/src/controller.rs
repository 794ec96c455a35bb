//! One reconciler, one queue, N workers.
//!
//! A [`Controller`] is wired once and becomes a [`Registration`], which the manager starts. Its sources fill
//! the queue, also on a standby replica. Its workers take keys from the queue once every source has synced
//! and this replica leads, or at once if it [`runs_without_lease`](Controller::runs_without_lease).
//!
//! # Invariants
//! 1. No reconcile runs before every source of its controller has handled its whole initial list.
//! 2. No reconcile of a controller that needs the Lease runs outside a term ([`term::Term`]).
//! 3. A panic in a reconcile ends this run only.

mod directory;
mod error;
pub(crate) mod metrics;
mod port;
mod run;
mod settings;
mod tasks;
pub(crate) mod term;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use kube::Resource;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::worker::Pause;
use crate::key::{Key, KindId, KindScope, NamespacedName};
use crate::queue::{QueueMetrics, QueueSettings};
use crate::rbac::{Access, Need, Place, Within};
use crate::reconcile::{DynReconciler, Outcome, Part, Reconciler, RunEnvironment, Writes};
use crate::watch::{EnqueueForObject, EnqueueForOwner, EventHandler, Source, StoreSource, Watched};

pub use directory::{ControllerStatus, ControllerView, Directory, KeyText, ReconcileRefused, Wanted};
pub use error::{ControllerError, WiringError};
pub use metrics::ControllerMetrics;
pub(crate) use port::ControllerPort;
pub(crate) use settings::InCode;
pub use settings::{ControllerSettings, DEFAULT_RECONCILE_TIMEOUT, DEFAULT_WORKERS, MAX_WORKERS};
pub(crate) use tasks::{Failure, NamedTasks};
pub use term::Term;
pub(crate) use term::Work;

/// The wiring of a controller: its sources, the kinds that it writes, and its settings.
///
/// # Settings
///
/// The number of workers, the longest run and the queue are set in four places. Each overrides those above
/// it:
///
/// 1. the defaults: [`DEFAULT_WORKERS`], [`DEFAULT_RECONCILE_TIMEOUT`], [`QueueSettings::default`];
/// 2. `controllers: {"*": ...}` in the configuration file, for every controller;
/// 3. [`Controller::workers`], [`Controller::reconcile_timeout`] and [`Controller::queue`], in the order of
///    the calls;
/// 4. `controllers: {NAME: ...}` in the configuration file, for this controller.
///
/// Each place overrides only the values that it sets. `Manager::register` checks the result, and its error
/// lists every value that is out of bounds.
///
/// ```
/// use std::time::Duration;
/// use mainstay::controller::Controller;
/// use mainstay::key::NamespacedName;
/// use mainstay::queue::RetryPolicy;
///
/// let controller: Controller<NamespacedName> = Controller::new("invoices")
///     .workers(8)
///     .reconcile_timeout(Duration::from_secs(30))
///     .queue(|queue| {
///         let (fast, slow) = (Duration::from_secs(1), Duration::from_secs(60));
///         queue.retry = RetryPolicy::fast_slow(fast, slow, 5);
///     })
///     .queue(|queue| queue.max_wait = Duration::from_secs(10));
/// # let _ = controller;
/// ```
///
/// # Wiring
///
/// ```no_run
/// use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
/// use mainstay::cache::Scope;
/// use mainstay::controller::Controller;
/// use mainstay::manager::Manager;
/// # use mainstay::{key::NamespacedName, reconcile::{Action, Context, Outcome, Reconciler}};
/// # struct Restarter;
/// # impl Reconciler for Restarter {
/// #     async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome { Ok(Action::Done) }
/// # }
/// fn wire(manager: &Manager) -> Result<(), mainstay::manager::RegisterError> {
///     let deployments = manager.store::<Deployment>(Scope::all());
///     let replica_sets = manager.store::<ReplicaSet>(Scope::all());
///     let controller = Controller::new("restarter").reconciles(&deployments).owns(&replica_sets);
///     manager.register(controller.reconciler(Restarter))?;
///     Ok(())
/// }
/// ```
#[derive(derive_more::Debug)]
#[debug("Controller {{ name: {:?}, writes: {:?}, .. }}", self.name, self.writes)]
#[must_use = "a controller does nothing until it has a reconciler and is registered"]
pub struct Controller<Q: Key = NamespacedName> {
    pub(crate) name: Arc<str>,
    pub(crate) needs_lease: bool,
    pub(crate) settings: InCode,
    sources: Vec<Box<dyn Source<Q>>>,
    pause: Option<Pause<Q>>,
    /// The kind of the objects that the controller reconciles, set by `reconciles`; `owns` needs it.
    primary: Option<KindId>,
    /// The part of the cluster with the reconciled objects.
    within: Within,
    /// The cluster of the reconciled objects; `None` for the manager's own.
    cluster: Option<Box<str>>,
    writes: Writes,
    /// The declared rights that do not follow from stores and writes.
    needs: Vec<Need>,
    field_manager: Arc<str>,
    pub(crate) problem: Option<WiringError>,
}

/// A controller with its wiring and reconciler, ready to be registered with a manager.
#[derive(derive_more::Debug)]
#[must_use = "a registration does nothing until it is given to `Manager::register`"]
pub struct Registration<Q: Key = NamespacedName> {
    pub(crate) controller: Controller<Q>,
    #[debug(skip)]
    reconciler: Arc<dyn DynReconciler<Q>>,
}

/// The future that runs a controller, from its start to its end.
pub(crate) type ControllerFuture = BoxFuture<'static, Result<(), ControllerError>>;

/// The parts of the manager that a controller uses.
pub(crate) struct Environment {
    pub(crate) settings: watch::Receiver<ControllerSettings>,
    pub(crate) runs: RunEnvironment,
    /// The term in which the controller's workers run: that of the Lease, if the controller needs it.
    pub(crate) term: Term,
    /// The directory that lists the controller while it runs.
    pub(crate) directory: Directory,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) queue_metrics: QueueMetrics,
    /// Cancelled to end the controller's sources and queue. Its workers end earlier, with the term.
    pub(crate) stop: CancellationToken,
    pub(crate) removal: Removal,
    pub(crate) observer: Option<RunObserver>,
}

/// A function that is called at the end of each reconcile, on its worker, with the name of the controller,
/// the key and the outcome. It must be quick and never block.
pub(crate) type RunObserver = Arc<dyn Fn(&str, &dyn fmt::Display, &Outcome) + Send + Sync>;

/// The signals and the grace period for the removal of a controller from a running manager.
pub(crate) struct Removal {
    /// Cancelled when the removal of the controller begins.
    pub(crate) leave: CancellationToken,
    pub(crate) grace: Grace,
    /// Publishes the progress of the controller. Dropped once all parts of the controller have ended.
    pub(crate) stage: watch::Sender<Stage>,
}

/// A function that returns the grace period for the removal of a controller. Called at the removal, because
/// the configuration may change it.
pub(crate) type Grace = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The progress of a controller: whether it runs, and its parts that were dropped at its removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Whether the controller has started and not ended.
    pub(crate) living: bool,
    /// The names of the controller's keys and sources that still ran after the grace period of its removal
    /// and were dropped.
    pub(crate) late: Vec<String>,
}

// === impl Controller ===

impl Controller<NamespacedName> {
    /// Starts wiring a controller with keys of namespace and name.
    ///
    /// The name appears in metrics, logs, Events and the configuration file. It is a DNS label: 1 to 63
    /// lower-case letters, digits and hyphens. It is unique in its manager while the controller is
    /// registered.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self::keyed(name)
    }

    /// Makes the controller reconcile the objects of this store: each change of an object enqueues it. An
    /// object is left alone while its annotation [`PAUSED_ANNOTATION`](crate::cache::PAUSED_ANNOTATION) is
    /// `true`, unless it is being deleted.
    ///
    /// [`Store::when`](crate::cache::Store::when) leaves out changes.
    pub fn reconciles(mut self, store: impl Into<Watched>) -> Self {
        let watched = store.into();
        let objects = Arc::clone(watched.store());
        let kind = objects.kind().clone();
        if let Some(first) = self.primary.replace(kind.clone()) {
            self.problem.get_or_insert(WiringError::TwoPrimaries { first, second: kind.clone() });
        }
        self.cluster = objects.cluster().map(Box::from);
        self.within = objects.within();
        // A deleted or unreadable object is left to the reconciler.
        self.pause = Some(Arc::new(move |request| {
            let view = objects.get(request).ok().flatten();
            view.is_some_and(|view| view.meta().paused && !view.meta().deleting)
        }));
        self.writes.compare_with(watched.store());
        self.source(StoreSource::new(watched, EnqueueForObject).primary())
    }

    /// Watches objects with a controller owner of the reconciled kind: each change of such an object enqueues
    /// its owner. Declares that the reconciler writes them, with
    /// [`Context::apply`](crate::reconcile::Context::apply).
    #[track_caller]
    pub fn owns(self, children: impl Into<Watched>) -> Self {
        self.children(children.into(), EnqueueForOwner::controller)
    }

    /// Watches owned objects as [`Controller::owns`] does, but each change of one enqueues all of its owners
    /// of the reconciled kind, also those that are not its controller.
    #[track_caller]
    pub fn co_owns(self, children: impl Into<Watched>) -> Self {
        self.children(children.into(), EnqueueForOwner::any)
    }

    #[track_caller]
    fn children(mut self, watched: Watched, owner_of: impl FnOnce(KindId) -> EnqueueForOwner) -> Self {
        let children = watched.store();
        let Some(owner) = self.primary.clone() else {
            let child = children.kind().clone();
            self.problem.get_or_insert(WiringError::OwnsBeforeReconciles { child });
            return self;
        };
        if children.cluster() != self.cluster.as_deref() {
            let (owner, child) = (owner.clone(), children.kind().clone());
            self.problem.get_or_insert(WiringError::OwnsElsewhere { owner, child });
        }
        let place = Place::caller();
        self.writes.declare(children.kind(), Part::Object, children.within(), place);
        let block = Access::of(&owner, "finalizers", ["update"]).within(self.within.clone()).seldom();
        let block = block.because("owner references, where OwnerReferencesPermissionEnforcement is on");
        self.needs.push(Need { access: block, place });
        self.watches(watched, owner_of(owner))
    }
}

impl<Q: Key> Controller<Q> {
    /// Starts wiring a controller with a key type of its own. For the name see [`Controller::new`].
    pub fn keyed(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self {
            field_manager: Arc::clone(&name),
            name,
            needs_lease: true,
            settings: InCode::default(),
            sources: Vec::new(),
            pause: None,
            primary: None,
            within: Within::Served,
            cluster: None,
            writes: Writes::default(),
            needs: Vec::new(),
            problem: None,
        }
    }

    /// Watches the objects of a store; `handler` returns the keys to enqueue for each change.
    pub fn watches(mut self, store: impl Into<Watched>, handler: impl EventHandler<Q>) -> Self {
        let watched = store.into();
        self.writes.compare_with(watched.store());
        self.source(StoreSource::new(watched, handler))
    }

    /// Declares that the reconciler writes objects of this kind, with [`Context::apply`] or a writer of its
    /// own. Not needed for a kind that the controller [owns](Controller::owns). Before `Context::apply`
    /// writes an object, it is read from a store that the controller watches, or from the API server if none
    /// of them can hold it.
    ///
    /// [`Context::apply`]: crate::reconcile::Context::apply
    #[track_caller]
    pub fn writes<K>(self) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        self.declares::<K>(Part::Object, None, Place::caller())
    }

    /// Declares that the reconciler writes objects of this kind as [`Controller::writes`] does, in one
    /// namespace only.
    #[track_caller]
    pub fn writes_in<K>(self, namespace: impl Into<Arc<str>>) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        self.declares::<K>(Part::Object, Some(namespace.into()), Place::caller())
    }

    /// Declares that the reconciler writes the status of objects of this kind, with
    /// [`Context::apply_status`](crate::reconcile::Context::apply_status) or a writer of its own.
    #[track_caller]
    pub fn writes_status<K>(self) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        self.declares::<K>(Part::Status, None, Place::caller())
    }

    fn declares<K>(mut self, part: Part, namespace: Option<Arc<str>>, place: Place) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        let kind = KindId::of::<K>();
        let everywhere = if kind.is_namespaced() { Within::Served } else { Within::Cluster };
        self.writes.declare(&kind, part, namespace.map_or(everywhere, Within::Namespace), place);
        self
    }

    /// Declares that the reconciler needs a right which does not follow from its stores and writes: for
    /// requests through [`Context::client`](crate::reconcile::Context::client), such as a delete. Takes an
    /// [`Access`] or a `PolicyRule`.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mainstay::prelude::*;
    /// use mainstay::rbac::Access;
    ///
    /// let delete = Access::to::<ConfigMap>(["delete"]).because("removes old copies");
    /// let controller: Controller = Controller::new("copier").needs(delete);
    /// # let _ = controller;
    /// ```
    #[track_caller]
    pub fn needs(mut self, access: impl Into<Access>) -> Self {
        self.needs.push(Need { access: access.into(), place: Place::caller() });
        self
    }

    /// Sets the field manager of [`Context::apply`](crate::reconcile::Context::apply), instead of the name of
    /// the controller. Keep it when the controller is renamed, or fields that it no longer applies stay on
    /// the objects.
    pub fn field_manager(mut self, name: impl Into<Arc<str>>) -> Self {
        self.field_manager = name.into();
        self
    }

    /// Adds a source of keys to the controller that is no store, such as a channel.
    pub fn source(mut self, source: impl Source<Q>) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Sets the number of the controller's workers: keys that are reconciled at the same time, 1 to
    /// [`MAX_WORKERS`]. See the [order of settings](Controller#settings).
    pub fn workers(self, workers: usize) -> Self {
        self.set(move |settings| settings.workers = workers)
    }

    /// Sets the longest time of one reconcile. A longer one is dropped and counted as failed; zero for no
    /// limit. See the [order of settings](Controller#settings).
    pub fn reconcile_timeout(self, limit: Duration) -> Self {
        self.set(move |settings| settings.reconcile_timeout = limit)
    }

    /// Changes the retries, lanes and limits of the controller's queue. The closure gets the settings for
    /// every controller with all earlier changes, and may be called more than once. See the [order of
    /// settings](Controller#settings).
    pub fn queue(self, change: impl Fn(&mut QueueSettings) + Send + Sync + 'static) -> Self {
        self.set(move |settings| change(&mut settings.queue))
    }

    fn set(mut self, change: impl Fn(&mut ControllerSettings) + Send + Sync + 'static) -> Self {
        self.settings.push(change);
        self
    }

    /// Makes the controller reconcile on every replica, also on those that do not lead.
    pub fn runs_without_lease(mut self) -> Self {
        self.needs_lease = false;
        self
    }

    /// Sets the reconciler of the controller, which completes the wiring. `Manager::register` returns
    /// mistakes in the wiring.
    pub fn reconciler(mut self, reconciler: impl Reconciler<Q>) -> Registration<Q> {
        if self.sources.is_empty() {
            self.problem.get_or_insert(WiringError::NoSource);
        }
        if let Err(source) = reconciler.check(self.primary.as_ref()) {
            self.problem.get_or_insert(WiringError::Reconciler { source });
        }
        self.writes = self.writes.of(&self.name, &self.field_manager);
        self.needs.extend(reconciler.needs());
        self.needs.extend(self.writes.needs());
        Registration { controller: self, reconciler: Arc::new(reconciler) }
    }
}

impl<Q: Key> Controller<Q> {
    /// Returns the rights that the controller needs beside those of its stores.
    pub(crate) fn declared_needs(&self) -> &[Need] {
        &self.needs
    }

    /// Returns the name of the cluster of the reconciled objects; `None` for the manager's own.
    pub(crate) fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// Returns the part of the cluster in which the controller records Events: in the namespaces of the
    /// reconciled objects; `default` for cluster-scoped objects.
    pub(crate) fn events_within(&self) -> Within {
        match &self.within {
            Within::Cluster => Within::Namespace("default".into()),
            within => within.clone(),
        }
    }
}

// === impl Removal ===

impl Removal {
    /// Waits for the removal of the controller to begin and its grace period to pass.
    async fn overdue(&self) {
        self.leave.cancelled().await;
        tokio::time::sleep((self.grace)()).await;
    }
}

// === impl Registration ===

impl<Q: Key> Registration<Q> {
    /// Returns the first mistake in the wiring of the controller, if any, for which `Manager::register`
    /// refuses the controller.
    pub fn problem(&self) -> Option<&WiringError> {
        self.controller.problem.as_ref()
    }
}

#[cfg(test)]
mod tests;
