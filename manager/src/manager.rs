//! Owns everything that controllers share, and starts and stops them.
//!
//! Uses every room below. It passes connections, cache, metrics and settings down, and starts and stops
//! everything in order (see [`Manager::run`]).
//!
//! Two managers in one process share no state.

mod candidate;
mod cluster;
mod clusters;
mod control;
mod environment;
mod error;
#[cfg(any(test, fuzzing))]
#[path = "manager/tests/fuzz.rs"]
pub mod fuzz;
mod guard;
mod handle;
mod lifecycle;
mod members;
#[cfg(feature = "dev")]
mod observe;
mod options;
mod preflight;
mod readiness;
mod readiness_list;
mod reload;
mod rights;
mod runnable;
mod serving;
#[cfg(feature = "testing")]
mod testing;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{BindAddress, Loaded, ManagerConfiguration};
use crate::controller::{ControllerMetrics, Directory, Grace, Registration, Removal, RunObserver, Term};
use crate::election::{ElectionSettings, InvalidSettings, Notice, OnLost};
use crate::health::Checks;
use crate::inspect::{OwnPages, PageError};
use crate::key::{Fence, Key};
use crate::metrics::{Process, Registry, Runtimes, build_info};
use crate::queue::QueueMetrics;
use crate::rbac::{Place, Rights};
use crate::serve::{Bound, Limits};

use clusters::Clusters;
use guard::{TokenFile, inspect_token};
use members::{Member, Members, PendingController};
use preflight::Preflight;
use readiness_list::ReadinessList;
use reload::Reloads;
use runnable::PendingRunnable;
use serving::{count_reads, notice, secured};

pub use cluster::Cluster;
pub use error::{BuildError, ManagerError, RegisterError, StopError};
pub use guard::TokenFileError;
pub use handle::{ControllerGone, ControllerHandle, RemoveError};
pub use options::{ManagerOptions, SetLogLevel};
pub use preflight::MissingRights;
pub use runnable::{RunContext, Runnable, RunnableGroup};
#[cfg(feature = "testing")]
pub use testing::RunningManager;

/// The path of the file in which the kubelet writes the namespace of a Pod.
const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Owner of a shared cache, an election, health probes, metrics and many controllers. Cheap to clone, also
/// while running; all clones are one manager.
#[derive(Clone, derive_more::Debug)]
#[debug("Manager {{ options: {:?}, .. }}", self.shared.options)]
pub struct Manager {
    shared: Arc<Shared>,
}

struct Shared {
    options: ManagerOptions,
    /// The settings of the leader election; `None` if this manager leads without an election.
    election: Option<ElectionSettings>,
    registry: Registry,
    /// The metrics of tokio's runtimes in this process.
    runtimes: Runtimes,
    checks: Checks,
    clusters: Clusters,
    fence: Fence,
    /// The term of leadership during which leader-only work may run.
    term: Term,
    /// The term of controllers that need no Lease: from the first lists of the caches to the end of the
    /// manager.
    always: Term,
    controller_metrics: ControllerMetrics,
    queue_metrics: QueueMetrics,
    /// The running controllers of this manager, for the debug pages.
    directory: Directory,
    /// Cancelled to stop the manager in order.
    stop: CancellationToken,
    stops: Stops,
    /// The token that requests for the debug pages need; `None` if no file has one.
    inspect_token: Option<TokenFile>,
    /// The addresses for requests between replicas, which they publish on the Lease.
    notice: Notice,
    members: Members,
    reloads: Reloads,
    /// The debug pages that the program adds.
    pages: OwnPages,
    readiness_list: ReadinessList,
    preflight: Preflight,
    /// The observer of the runs of all controllers that are registered after it was set; empty without one.
    run_observer: OnceLock<RunObserver>,
    /// The bound ports of the servers until `run` takes them; `None` after that.
    unstarted: Mutex<Option<Unstarted>>,
    probes_addr: Option<SocketAddr>,
    metrics_addr: Option<SocketAddr>,
    inspect_addr: Option<SocketAddr>,
}

/// The tokens that stop the parts of a manager, in the order in which they are cancelled.
#[derive(Default)]
struct Stops {
    /// Cancelled when the stop of the manager begins.
    begun: CancellationToken,
    leader_only: CancellationToken,
    others: CancellationToken,
}

/// The bound ports of a manager that does not run yet, by server.
struct Unstarted {
    probes: Option<Bound>,
    metrics: Option<Bound>,
    inspect: Option<Bound>,
}

// === impl Manager ===

impl Manager {
    /// Makes a manager: binds its ports and sets up its connections, and starts no task yet. Call it inside
    /// the runtime that will run the reconciles.
    pub fn new(
        options: ManagerOptions,
        configuration: impl Into<Loaded>,
        connection: kube::Config,
    ) -> Result<Self, BuildError> {
        let loaded = configuration.into();
        let configuration = &loaded.configuration;
        let probes = bind("health.bindAddress", configuration.health.bind_address)?;
        let metrics = bind("metrics.bindAddress", configuration.metrics.bind_address)?;
        let inspect = bind("inspect.bindAddress", configuration.inspect.bind_address)?;
        let election = election_settings(&options, configuration)?;
        let registry = Registry::new();
        build_info(&registry, options.name, options.version);
        Process::register(&registry);
        let runtimes = Runtimes::register(&registry);
        if let Ok(work) = Handle::try_current() {
            runtimes.add("work", &work);
        }
        let (metrics, certificates) =
            secured(metrics, "metrics.tlsDir", configuration.metrics.tls_dir.as_deref())?;
        if let Some(certificates) = certificates {
            count_reads(&certificates, &registry);
        }
        let (inspect, certificates) =
            secured(inspect, "inspect.tlsDir", configuration.inspect.tls_dir.as_deref())?;
        let served = inspect.as_ref().zip(certificates).filter(|_| configuration.inspect.peers);
        let notice = served.map(|(bound, certificates)| notice(&options, bound, certificates)).transpose()?;
        let inspect_token = inspect_token(configuration)?;
        let fence = if configuration.leader_election.enabled { Fence::closed() } else { Fence::open() };
        let clusters = Clusters::new(Cluster::own(&options, configuration, connection, &fence, &registry)?);
        let members = Members::new(configuration.clone());
        let events = clusters.own().events().clone();
        let shared = Shared {
            notice: notice.unwrap_or_default(),
            reloads: Reloads::new(&options, loaded, members.clone(), events, &registry),
            clusters,
            controller_metrics: ControllerMetrics::register(&registry),
            queue_metrics: QueueMetrics::register(&registry),
            directory: Directory::default(),
            checks: Checks::new(),
            term: Term::new(),
            always: Term::new(),
            stop: CancellationToken::new(),
            stops: Stops::default(),
            inspect_token,
            members,
            pages: OwnPages::default(),
            readiness_list: ReadinessList::default(),
            preflight: Preflight::default(),
            run_observer: OnceLock::new(),
            probes_addr: probes.as_ref().map(Bound::local_addr),
            metrics_addr: metrics.as_ref().map(Bound::local_addr),
            inspect_addr: inspect.as_ref().map(Bound::local_addr),
            unstarted: Mutex::new(Some(Unstarted { probes, metrics, inspect })),
            options,
            election,
            registry,
            runtimes,
            fence,
        };
        shared.declare_settings();
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the rights that the manager needs in its own cluster, from everything that has been declared
    /// so far: stores, controllers and [`needs`](Cluster::needs), the election and other settings.
    pub fn rights(&self) -> Rights {
        let configuration = self.shared.members.configuration();
        self.rights_in(&self.shared.own_namespace(), &configuration.cache.namespaces)
    }

    /// Returns the rights that the manager would need in another namespace, and with its cache restricted to
    /// these namespaces; to none if `served` is empty.
    pub(crate) fn rights_in(&self, own: &str, served: &[String]) -> Rights {
        let needs = self.shared.clusters.own().declarations().needs();
        Rights::new(self.shared.options.name, own, served, &needs)
    }

    /// Returns the address of the API server that the manager is connected to.
    pub fn server(&self) -> http::Uri {
        self.connections().config().cluster_url.clone()
    }

    /// Returns the metrics registry of the manager, to add metrics.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Returns the health checks behind the probes, to add checks.
    pub fn checks(&self) -> &Checks {
        &self.shared.checks
    }

    /// Returns the bound address of the server of health probes; `None` if they are not served.
    pub fn probes_addr(&self) -> Option<SocketAddr> {
        self.shared.probes_addr
    }

    /// Returns the bound address of the server of metrics; `None` if they are not served.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.shared.metrics_addr
    }

    /// Returns the bound address of the server of debug pages; `None` if they are not served.
    pub fn inspect_addr(&self) -> Option<SocketAddr> {
        self.shared.inspect_addr
    }

    /// Returns a channel that publishes whether leader-only work may run here: true from the election of this
    /// replica, or from the start if there is no election, until its term ends or is lost. The channel closes
    /// with the last handle of the manager.
    ///
    /// It is no fence: do in leader-only work whatever must not happen on two replicas.
    ///
    /// ```no_run
    /// # async fn wait(manager: &mainstay::manager::Manager) {
    /// let mut leading = manager.leading();
    /// if leading.wait_for(|leading| *leading).await.is_ok() {
    ///     println!("elected");
    /// }
    /// # }
    /// ```
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.shared.term.subscribe()
    }

    /// Stops a running manager in order. A manager that does not run yet ends at once when it is run.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Registers a controller with the manager. The controller starts with the manager, or now if the manager
    /// runs.
    ///
    /// # Errors
    /// The controller is wired wrongly, its name is invalid or taken, its
    /// [settings](crate::controller::Controller#settings) are out of bounds, or the manager has begun to
    /// stop. A refused controller leaves no task and keeps no name.
    #[track_caller]
    pub fn register<Q: Key>(
        &self,
        mut registration: Registration<Q>,
    ) -> Result<ControllerHandle<Q>, RegisterError> {
        let controller = &mut registration.controller;
        let (name, needs_lease) = (Arc::clone(&controller.name), controller.needs_lease);
        RegisterError::check_name("controller", &name)?;
        if let Some(source) = controller.problem.take() {
            return Err(RegisterError::Wiring { name, source });
        }
        self.shared.declare(controller, Place::caller());
        let settings = controller.settings.clone();
        let (name_guard, settings) = self.shared.members.name_guard(Arc::clone(&name), settings)?;
        let (leave, stage) = (CancellationToken::new(), name_guard.stage.subscribe());
        let configurations = self.configurations();
        let grace: Grace = Arc::new(move || *configurations.borrow().shutdown.grace_period);
        let removal =
            Removal { leave: leave.clone(), grace: Arc::clone(&grace), stage: name_guard.stage.clone() };
        let environment = self.shared.environment(&name, needs_lease, settings, removal);
        let (future, port) = registration.open(environment);
        let pending = PendingController { needs_lease, future, leave: leave.clone(), name_guard };
        self.shared.members.submit(Member::Controller(Box::new(pending)))?;
        let members = self.shared.members.downgrade();
        Ok(ControllerHandle { name, port, leave, stage, grace, members })
    }

    /// Serves a debug page of the program at `/debug/NAME` and all paths below it.
    ///
    /// `answer` gets the path segments after the name. It runs on a thread of its own and returns JSON.
    ///
    /// # Errors
    /// The name is invalid, or taken by another page.
    pub fn page(
        &self,
        name: &'static str,
        answer: impl Fn(&[&str]) -> Result<serde_json::Value, PageError> + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        RegisterError::check_name("debug page", name)?;
        let added = self.shared.pages.add(name, answer);
        added
            .then_some(())
            .ok_or_else(|| RegisterError::DuplicateName { part: "debug page", name: name.into() })
    }

    /// Adds a runnable to the manager. It starts with its [group](Runnable::group), or now if that has
    /// started.
    ///
    /// # Errors
    /// Its name is invalid, it needs a Lease that may be won more than once, or the manager has begun to
    /// stop. A refused runnable is dropped.
    pub fn add(&self, runnable: impl Runnable) -> Result<(), RegisterError> {
        let name = runnable.name();
        RegisterError::check_name("runnable", name)?;
        let needs_lease = runnable.group() == RunnableGroup::LeaderElection;
        if needs_lease && self.shared.on_lost() == Some(OnLost::Campaign) {
            return Err(RegisterError::RunsOnce { name: name.into() });
        }
        let pending = PendingRunnable::new(name, runnable, &self.shared.readiness_list);
        let entry = pending.entry.clone();
        self.shared.members.submit(Member::Runnable(pending)).inspect_err(|_stopped| {
            if let Some(entry) = entry {
                entry.over();
            }
        })
    }
}

// === impl Shared ===

impl Shared {
    /// Returns the configured reaction to a lost Lease; `None` if the manager leads without an election.
    fn on_lost(&self) -> Option<OnLost> {
        self.election.as_ref().map(|election| election.on_lost)
    }

    /// Refuses new controllers, runnables and clusters from now on.
    fn close(&self) {
        self.members.close();
        self.clusters.close();
    }
}

/// A manager derefs to its own cluster, so that stores, transforms and required kinds are declared on it
/// directly, as in controller-runtime, where `Manager` embeds `Cluster`.
impl Deref for Manager {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.shared.clusters.own()
    }
}

/// Binds the port of a server at once, so that a taken port is an error before anything runs. `None` if the
/// configuration switches the server off.
fn bind(key: &'static str, address: BindAddress) -> Result<Option<Bound>, BuildError> {
    let Some(address) = address.socket() else { return Ok(None) };
    let bound = Bound::bind(address, Limits::default());
    bound.map(Some).map_err(|source| BuildError::Bind { key, address, source })
}

fn election_settings(
    options: &ManagerOptions,
    configuration: &ManagerConfiguration,
) -> Result<Option<ElectionSettings>, BuildError> {
    let election = &configuration.leader_election;
    if !election.enabled {
        return Ok(None);
    }
    let own_namespace = own_namespace().unwrap_or_default();
    if election.namespace.is_empty() && own_namespace.is_empty() {
        return Err(BuildError::NoLeaseNamespace);
    }
    let settings = election.settings(options.name, &own_namespace, &*options.identity);
    let problems = settings.validate();
    if problems.is_empty() {
        Ok(Some(settings))
    } else {
        Err(BuildError::Election(InvalidSettings(problems)))
    }
}

/// Returns the namespace of the Pod in which this process runs; `None` outside a cluster.
fn own_namespace() -> Option<String> {
    let namespace = std::fs::read_to_string(SERVICE_ACCOUNT_NAMESPACE).ok()?;
    Some(namespace.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

#[cfg(test)]
mod tests;
