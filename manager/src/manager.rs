//! Owns what all controllers share, and their lives.
//!
//! Knows every room below. It hands connections, cache, metrics and settings down, starts everything in
//! order, and stops it in order (see [`Manager::run`]).
//!
//! Two managers in one process share nothing.

mod candidate;
mod cluster;
mod clusters;
mod control;
mod environment;
mod error;
#[cfg(any(test, fuzzing))]
#[path = "manager/tests/fuzz.rs"]
pub mod fuzz;
mod gates;
mod guard;
mod handle;
mod lifecycle;
mod members;
mod options;
mod readiness;
mod reload;
mod runnable;
mod serving;
#[cfg(feature = "testing")]
mod testing;

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use kube::Resource;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{Applier, Patcher};
use crate::config::{BindAddress, Loaded, ManagerConfiguration};
use crate::controller::{ControllerMetrics, Directory, Grace, Registration, Removal, Term};
use crate::election::{ElectionSettings, InvalidSettings, Notice, OnLost};
use crate::health::Checks;
use crate::inspect::{OwnPages, PageError};
use crate::key::{Fence, Key, KindId, KindScope, is_dns_label};
use crate::metrics::{Process, Registry, Runtimes, build_info};
use crate::queue::QueueMetrics;
use crate::serve::{Bound, Limits};

use clusters::Clusters;
use gates::Gates;
use guard::Guards;
use members::{Member, Members, Newcomer};
use reload::Reloads;
use runnable::Recruit;
use serving::{count_reads, notice, secured};

pub use cluster::{Cluster, ClusterError};
pub use error::{BuildError, ManagerError, RegisterError, StopError};
pub use guard::TokenFileError;
pub use handle::{ControllerGone, ControllerHandle, RemoveError};
pub use options::{ManagerOptions, SetLogLevel};
pub use runnable::{RunContext, Runnable, RunnableGroup};
#[cfg(feature = "testing")]
pub use testing::RunningManager;

/// Where the kubelet writes a Pod's namespace.
const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Owner of a shared cache, an election, probes, metrics and many controllers. Cheap to clone, also while running; all
/// clones are one manager.
#[derive(Clone)]
pub struct Manager {
    shared: Arc<Shared>,
}

struct Shared {
    options: ManagerOptions,
    /// `None` if this manager leads without being elected.
    election: Option<ElectionSettings>,
    registry: Registry,
    /// What is told of tokio's runtimes.
    runtimes: Runtimes,
    checks: Checks,
    clusters: Clusters,
    fence: Fence,
    /// Whether leader-only work may run.
    term: Term,
    /// In which the controllers run that need no Lease: from when the caches have been listed to the end of the manager.
    always: Term,
    controller_metrics: ControllerMetrics,
    queue_metrics: QueueMetrics,
    /// The controllers that run now.
    directory: Directory,
    /// Cancelled to stop the manager.
    stop: CancellationToken,
    stops: Stops,
    guards: Guards,
    /// What the replicas tell each other on the Lease.
    notice: Notice,
    members: Members,
    reloads: Reloads,
    /// Pages of the program's own.
    pages: OwnPages,
    gates: Gates,
    /// What `run` takes; `None` once it has.
    unstarted: Mutex<Option<Unstarted>>,
    probes_addr: Option<SocketAddr>,
    metrics_addr: Option<SocketAddr>,
    inspect_addr: Option<SocketAddr>,
}

/// What the parts of a manager are told to end with, in the order of the stop.
#[derive(Default)]
struct Stops {
    /// What users see as "the manager has begun to stop".
    begun: CancellationToken,
    leader_only: CancellationToken,
    others: CancellationToken,
}

/// What only the running manager needs.
struct Unstarted {
    probes: Option<Bound>,
    metrics: Option<Bound>,
    inspect: Option<Bound>,
}

// === impl Manager ===

impl Manager {
    /// Builds a manager: binds its ports and sets up its connections; nothing runs yet. Call it inside the runtime that
    /// will run the reconciles.
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
        let guards = Guards::new(configuration)?;
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
            guards,
            members,
            pages: OwnPages::default(),
            gates: Gates::default(),
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
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Declares the right to write a kind under a field manager's name.
    pub fn applier<K>(&self, field_manager: impl Into<Arc<str>>) -> Applier<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: KindScope,
    {
        Applier::new(KindId::of::<K>(), field_manager)
    }

    /// Declares the right to create and patch a kind under a field manager's name, without server-side apply.
    pub fn patcher<K>(&self, field_manager: impl Into<Arc<str>>) -> Patcher<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        K::Scope: KindScope,
    {
        Patcher::new(KindId::of::<K>(), field_manager)
    }

    /// Returns where the API server is, as the connection says it.
    pub fn server(&self) -> http::Uri {
        self.connections().config().cluster_url.clone()
    }

    /// Returns the registry, to add metrics of one's own.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Returns the checks behind the probes, to add some of one's own.
    pub fn checks(&self) -> &Checks {
        &self.shared.checks
    }

    /// Returns the address of the probes as bound, if they are served.
    pub fn probes_addr(&self) -> Option<SocketAddr> {
        self.shared.probes_addr
    }

    /// Returns the address of the metrics as bound, if they are served.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.shared.metrics_addr
    }

    /// Returns the address of the inspection as bound, if it is served.
    pub fn inspect_addr(&self) -> Option<SocketAddr> {
        self.shared.inspect_addr
    }

    /// Returns whether leader-only work may run here, and tells of every change: true from when this replica has been
    /// elected, or would have been were there an election, until its term ends or is lost. The channel ends with the last
    /// handle of the manager.
    ///
    /// It tells; it is no fence. What must not happen on two replicas is written by leader-only work.
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

    /// Asks a running manager to stop in order; one that has not been run yet will end at once.
    pub fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Registers a controller; it starts with the manager, or now if the manager is running.
    ///
    /// # Errors
    /// If the controller cannot run as it was put together, its name is none or taken, its
    /// [settings](crate::controller::Controller#settings) make no sense, or the manager has begun to stop. Nothing is left of what was
    /// refused.
    pub fn register<Q: Key>(
        &self,
        registration: Registration<Q>,
    ) -> Result<ControllerHandle<Q>, RegisterError> {
        let Registration { name, needs_lease, settings, wired } = registration;
        if !is_dns_label(&name) {
            return Err(RegisterError::Name { name });
        }
        let wired = wired.map_err(|source| RegisterError::Wiring { name: Arc::clone(&name), source })?;
        let (seat, settings) = self.shared.members.seat(Arc::clone(&name), settings)?;
        let (leave, stage) = (CancellationToken::new(), seat.stage().subscribe());
        let configurations = self.configurations();
        let grace: Grace = Arc::new(move || *configurations.borrow().shutdown.grace_period);
        let removal = Removal { leave: leave.clone(), grace: Arc::clone(&grace), stage: seat.stage() };
        let environment = self.shared.environment(&name, needs_lease, settings, removal);
        let (future, port) = wired.open(Arc::clone(&name), environment);
        let newcomer = Newcomer { needs_lease, future, leave: leave.clone(), seat };
        self.shared.members.submit(Member::Controller(Box::new(newcomer)))?;
        let members = self.shared.members.downgrade();
        Ok(ControllerHandle { name, port, leave, stage, grace, members })
    }

    /// Serves a page of the program's own at `/debug/NAME`, and at all paths below it, beside those of every manager.
    ///
    /// `answer` gets the segments that follow the name. It runs on a thread of its own and returns JSON.
    ///
    /// # Errors
    /// If the name is none, or that of another page.
    pub fn page(
        &self,
        name: &'static str,
        answer: impl Fn(&[&str]) -> Result<serde_json::Value, PageError> + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        if is_dns_label(name) && self.shared.pages.add(name, answer) {
            Ok(())
        } else {
            Err(RegisterError::PageName { name: name.into() })
        }
    }

    /// Adds anything else with a lifetime; it starts with its [group](Runnable::group), or now if that has begun.
    ///
    /// # Errors
    /// If its name is none, it needs a Lease that may be won more than once, or the manager has begun to stop. What was
    /// refused is dropped.
    pub fn add(&self, runnable: impl Runnable) -> Result<(), RegisterError> {
        let name = runnable.name();
        if !is_dns_label(name) {
            return Err(RegisterError::RunnableName { name: name.into() });
        }
        let needs_lease = runnable.group() == RunnableGroup::LeaderElection;
        if needs_lease && self.shared.on_lost() == Some(OnLost::Campaign) {
            return Err(RegisterError::RunsOnce { name: name.into() });
        }
        let recruit = Recruit::new(name, runnable, &self.shared.gates);
        let gate = recruit.gate.clone();
        self.shared.members.submit(Member::Runnable(recruit)).inspect_err(|_stopped| {
            if let Some(gate) = gate {
                gate.over();
            }
        })
    }
}

// === impl Shared ===

impl Shared {
    /// What this manager does that loses the Lease; `None` if it leads without one.
    fn on_lost(&self) -> Option<OnLost> {
        self.election.as_ref().map(|election| election.on_lost)
    }
}

/// A manager stands for its own cluster: stores, transforms and readiness of kinds are declared on it directly, as in
/// controller-runtime, whose `Manager` embeds its `Cluster`.
impl Deref for Manager {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.shared.clusters.own()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// Binds a port now, so that one that is taken is told before anything runs.
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
    let settings = election.settings(&own_namespace, &*options.identity);
    let problems = settings.validate();
    if problems.is_empty() {
        Ok(Some(settings))
    } else {
        Err(BuildError::Election(InvalidSettings(problems)))
    }
}

/// The namespace of the Pod this process runs in, if it does run in one.
fn own_namespace() -> Option<String> {
    let namespace = std::fs::read_to_string(SERVICE_ACCOUNT_NAMESPACE).ok()?;
    Some(namespace.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

#[cfg(test)]
mod tests;
