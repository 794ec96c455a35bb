//! One reconciler, one queue, N workers.
//!
//! A [`Controller`] is wired once and becomes a [`Registration`], which the manager starts. From then on it has one
//! life: its sources fill the queue, also on a standby replica; once every source has synced and, unless it
//! [`runs_without_lease`](Controller::runs_without_lease), this replica leads, its workers take keys from the queue.
//!
//! # Invariants
//! 1. No reconcile runs before every source of its controller has handled its whole initial list.
//! 2. No reconcile of a controller that needs the Lease runs outside a term ([`term::Term`]).
//! 3. A panic in a reconcile ends that run and nothing else.

mod directory;
pub(crate) mod metrics;
mod post;
mod run;
pub(crate) mod term;
mod worker;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::worker::Pause;
use crate::cache::Store;
use crate::key::{Key, KindId, Request};
use crate::queue::{QueueMetrics, QueueSettings};
use crate::reconcile::{DynReconciler, Reconciler, Surroundings};
use crate::watch::{
    EnqueueForObject, EnqueueForOwner, EventHandler, NeverSynced, Predicate, Source, SourceError, StoreSource,
};

pub use directory::{ControllerStatus, ControllerView, Directory, KeyText, Wanted};
pub use metrics::ControllerMetrics;
pub(crate) use post::Post;
pub use term::Term;

/// Workers of a controller unless configured.
pub const DEFAULT_WORKERS: usize = 2;
/// Longest run of a reconcile unless configured.
pub const DEFAULT_RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// What can be set per controller. All of it applies while running.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSettings {
    /// How many keys are reconciled at the same time; at least 1.
    pub workers: usize,
    /// How long one run may take before it is dropped and counted as failed; zero = as long as it likes.
    pub reconcile_timeout: Duration,
    /// Limits and retries of the queue.
    pub queue: QueueSettings,
}

/// A controller being wired: which objects it looks at and what it watches.
///
/// ```no_run
/// use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
/// use mainstay::cache::Scope;
/// use mainstay::controller::Controller;
/// use mainstay::manager::Manager;
/// # use mainstay::{key::Request, reconcile::{Action, Context, Outcome, Reconciler}};
/// # struct Restarter;
/// # impl Reconciler for Restarter {
/// #     async fn reconcile(&self, _: &Request, _: &Context) -> Outcome { Ok(Action::Done) }
/// # }
/// fn wire(manager: &Manager) -> Result<(), mainstay::manager::RegisterError> {
///     let deployments = manager.store::<Deployment>(Scope::all());
///     let replica_sets = manager.store::<ReplicaSet>(Scope::all());
///     let controller = Controller::new("restarter").reconciles(&deployments).owns(&replica_sets);
///     manager.register(controller.reconciler(Restarter))?;
///     Ok(())
/// }
/// ```
#[must_use = "a controller does nothing until it has a reconciler and is registered"]
pub struct Controller<Q: Key = Request> {
    name: &'static str,
    needs_lease: bool,
    sources: Vec<Box<dyn Source<Q>>>,
    /// Apart from `sources`, since `filtered` concerns these alone.
    store_sources: Vec<StoreSource<Q>>,
    filters: Vec<Arc<dyn Predicate>>,
    pause: Option<Pause<Q>>,
    /// The kind whose objects the queue is keyed by, if `reconciles` was called; `owns` needs it.
    primary: Option<KindId>,
    problem: Option<WiringError>,
}

/// A wired controller, ready to be registered with a manager.
#[must_use = "a registration does nothing until it is given to `Manager::register`"]
pub struct Registration<Q: Key = Request> {
    pub(crate) name: &'static str,
    pub(crate) needs_lease: bool,
    pub(crate) wired: Result<Wired<Q>, WiringError>,
}

/// What a controller is made of.
pub(crate) struct Wired<Q: Key> {
    sources: Vec<Box<dyn Source<Q>>>,
    pause: Option<Pause<Q>>,
    reconciler: Arc<dyn DynReconciler<Q>>,
}

/// The one future that is the life of a controller.
pub(crate) type Life = BoxFuture<'static, Result<(), ControllerError>>;

/// What a manager gives a controller to live in.
pub(crate) struct Environment {
    pub(crate) settings: watch::Receiver<ControllerSettings>,
    pub(crate) surroundings: Surroundings,
    /// Whether `term` is that of the Lease.
    pub(crate) needs_lease: bool,
    pub(crate) term: Term,
    /// Lists the controller while it lives.
    pub(crate) directory: Directory,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) queue_metrics: QueueMetrics,
    /// Ends sources and the queue. Workers end with the term, before this.
    pub(crate) stop: CancellationToken,
    pub(crate) departure: Departure,
}

/// How a controller leaves a manager that goes on.
pub(crate) struct Departure {
    /// Cancelled by who takes it out.
    pub(crate) leave: CancellationToken,
    /// How long its runs and sources may then take.
    pub(crate) grace: Duration,
    /// Tells who waits for the end. Gone once everything of the controller is.
    pub(crate) stage: watch::Sender<Stage>,
}

/// How far the life of a controller has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// It has begun and not ended.
    pub(crate) living: bool,
    /// What had not ended when its time to leave was over, and was dropped.
    pub(crate) late: Vec<String>,
}

/// A controller was put together in a way that cannot work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WiringError {
    /// `owns` was called before `reconciles`.
    #[error("owns({child}) needs to know the owner's kind: call reconciles(...) before it")]
    OwnsBeforeReconciles {
        /// The owned kind.
        child: KindId,
    },
    /// `reconciles` was called twice.
    #[error(
        "reconciles({second}) after reconciles({first}): a controller has one primary kind; use watches(...) for others"
    )]
    TwoPrimaries {
        /// The kind given first.
        first: KindId,
        /// The kind given second.
        second: KindId,
    },
    /// Nothing would ever put a key on the queue.
    #[error("no source: call reconciles(...), watches(...) or source(...)")]
    NoSource,
}

/// A controller could not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of its sources ended.
    #[error("controller {controller} lost a source")]
    Source {
        /// The controller.
        controller: &'static str,
        /// What happened to the source.
        #[source]
        source: SourceError,
    },
    /// One of its sources ended before it had synced.
    #[error("controller {controller} would wait for ever")]
    NeverSynced {
        /// The controller.
        controller: &'static str,
        /// What is wrong.
        #[source]
        source: NeverSynced,
    },
    /// One of its workers panicked outside a reconcile, which is a bug of this crate.
    #[error("controller {controller}: a worker panicked")]
    WorkerPanicked {
        /// The controller.
        controller: &'static str,
        /// The panic.
        #[source]
        source: tokio::task::JoinError,
    },
    /// One of its sources panicked.
    #[error("controller {controller}: a source panicked: {message}")]
    SourcePanicked {
        /// The controller.
        controller: &'static str,
        /// The text of the panic.
        message: String,
    },
}

// === impl ControllerSettings ===

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            workers: DEFAULT_WORKERS,
            reconcile_timeout: DEFAULT_RECONCILE_TIMEOUT,
            queue: QueueSettings::default(),
        }
    }
}

// === impl Controller ===

impl Controller<Request> {
    /// Starts wiring a controller whose queue is keyed by namespace and name. The name stands in metrics, logs and
    /// the configuration file: lower-case words joined by hyphens.
    pub fn new(name: &'static str) -> Self {
        Self::keyed(name)
    }

    /// Reconciles the objects of this store: each change of one enqueues it. An object whose annotation
    /// [`PAUSED_ANNOTATION`](crate::cache::PAUSED_ANNOTATION) says `true` is left alone, unless it is being deleted.
    pub fn reconciles<K>(self, store: &Store<K>) -> Self {
        self.primary(store, None)
    }

    /// As [`Controller::reconciles`], for the changes that a predicate admits.
    pub fn reconciles_when<K>(self, store: &Store<K>, predicate: impl Predicate) -> Self {
        self.primary(store, Some(Arc::new(predicate)))
    }

    /// Watches objects whose controller owner is of the reconciled kind: each change of one enqueues its owner.
    pub fn owns<K>(self, children: &Store<K>) -> Self {
        self.children(children, EnqueueForOwner::controller, None)
    }

    /// As [`Controller::owns`], for the changes that a predicate admits.
    pub fn owns_when<K>(self, children: &Store<K>, predicate: impl Predicate) -> Self {
        self.children(children, EnqueueForOwner::controller, Some(Arc::new(predicate)))
    }

    /// Watches objects that have owners of the reconciled kind: each change of one enqueues all of them, also those
    /// that are not its controller.
    pub fn co_owns<K>(self, children: &Store<K>) -> Self {
        self.children(children, EnqueueForOwner::any, None)
    }

    /// As [`Controller::co_owns`], for the changes that a predicate admits.
    pub fn co_owns_when<K>(self, children: &Store<K>, predicate: impl Predicate) -> Self {
        self.children(children, EnqueueForOwner::any, Some(Arc::new(predicate)))
    }

    fn primary<K>(mut self, store: &Store<K>, predicate: Option<Arc<dyn Predicate>>) -> Self {
        let objects = store.kind_store();
        let kind = objects.kind().clone();
        if let Some(first) = self.primary.replace(kind.clone()) {
            self.problem.get_or_insert(WiringError::TwoPrimaries { first, second: kind });
        }
        let source = StoreSource::new(Arc::clone(objects), EnqueueForObject).primary();
        let objects = Arc::clone(objects);
        // An object that is gone, or cannot be read, is the reconciler's business.
        self.pause = Some(Arc::new(move |request| {
            let view = objects.get(request).ok().flatten();
            view.is_some_and(|view| view.meta().paused && !view.meta().deleting)
        }));
        self.store_source(source, predicate)
    }

    fn children<K>(
        mut self,
        children: &Store<K>,
        owner_of: impl FnOnce(KindId) -> EnqueueForOwner,
        predicate: Option<Arc<dyn Predicate>>,
    ) -> Self {
        let children = children.kind_store();
        let Some(owner) = self.primary.clone() else {
            let child = children.kind().clone();
            self.problem.get_or_insert(WiringError::OwnsBeforeReconciles { child });
            return self;
        };
        self.store_source(StoreSource::new(Arc::clone(children), owner_of(owner)), predicate)
    }
}

impl<Q: Key> Controller<Q> {
    /// Starts wiring a controller with a key type of its own.
    pub fn keyed(name: &'static str) -> Self {
        Self {
            name,
            needs_lease: true,
            sources: Vec::new(),
            store_sources: Vec::new(),
            filters: Vec::new(),
            pause: None,
            primary: None,
            problem: None,
        }
    }

    /// Watches the objects of a store and asks `handler` which keys each change concerns.
    pub fn watches<K>(self, store: &Store<K>, handler: impl EventHandler<Q>) -> Self {
        self.store_source(StoreSource::new(Arc::clone(store.kind_store()), handler), None)
    }

    /// As [`Controller::watches`], for the changes that a predicate admits.
    pub fn watches_when<K>(
        self,
        store: &Store<K>,
        handler: impl EventHandler<Q>,
        predicate: impl Predicate,
    ) -> Self {
        let source = StoreSource::new(Arc::clone(store.kind_store()), handler);
        self.store_source(source, Some(Arc::new(predicate)))
    }

    /// Looks only at the changes that this predicate admits too, of every store the controller was given or will be.
    /// What was added by [`Controller::source`] is not filtered.
    pub fn filtered(mut self, predicate: impl Predicate) -> Self {
        self.filters.push(Arc::new(predicate));
        self
    }

    fn store_source(mut self, source: StoreSource<Q>, predicate: Option<Arc<dyn Predicate>>) -> Self {
        self.store_sources.push(predicate.into_iter().fold(source, StoreSource::filtered_by));
        self
    }

    /// Adds anything that feeds the queue.
    pub fn source(mut self, source: impl Source<Q>) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Runs on every replica, whether it leads or not.
    pub fn runs_without_lease(mut self) -> Self {
        self.needs_lease = false;
        self
    }

    /// Gives the controller its one reconciler. Mistakes in the wiring are told by `Manager::register`.
    pub fn reconciler(mut self, reconciler: impl Reconciler<Q>) -> Registration<Q> {
        for source in self.store_sources {
            let filtered = self.filters.iter().cloned().fold(source, StoreSource::filtered_by);
            self.sources.push(Box::new(filtered));
        }
        if self.sources.is_empty() {
            self.problem.get_or_insert(WiringError::NoSource);
        }
        let wired = Wired { sources: self.sources, pause: self.pause, reconciler: Arc::new(reconciler) };
        let wired = self.problem.map_or(Ok(wired), Err);
        Registration { name: self.name, needs_lease: self.needs_lease, wired }
    }
}

impl<Q: Key> Wired<Q> {
    /// Puts the controller together: its life, and what reaches it until that ends.
    pub(crate) fn open(self, name: &'static str, environment: Environment) -> (Life, Weak<Post<Q>>) {
        run::open(name, self, environment)
    }
}

// === impl Departure ===

impl Departure {
    /// That of a controller nobody takes out.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self { leave: CancellationToken::new(), grace: Duration::ZERO, stage: watch::Sender::default() }
    }

    /// Waits until the controller should have left.
    async fn overdue(&self) {
        self.leave.cancelled().await;
        tokio::time::sleep(self.grace).await;
    }
}

impl<Q: Key> fmt::Debug for Controller<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<Q: Key> fmt::Debug for Registration<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
