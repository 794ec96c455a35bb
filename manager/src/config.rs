//! What an operator may set, complete and valid.
//!
//! A file goes through three forms: the tree of what was written, the raw settings in which everything is
//! optional, and [`ManagerConfiguration`], in which everything has a value. Precedence is flag over file over
//! default; what code sets of its controller stands between what the file says to all of them and what it says to that
//! one ([`Controllers`]). The shipped `config/manager.yaml` is the documentation and names every default.
//!
//! # Invariants
//! 1. A file is taken as a whole or not at all; [`ConfigError`] lists everything that is wrong with it.
//! 2. A default is written once, in `resolve`.
//! 3. Every key does something: there is none for what this release cannot do.

mod allow;
mod allowed;
mod bind;
mod change;
mod complete;
mod controllers;
mod cursor;
mod follow;
mod guide;
mod loaded;
mod log_filter;
mod network;
mod problem;
mod raw;
mod resolve;
mod schema;
mod shape;
mod source;
mod standing;
mod tree;
mod units;
mod walk;
mod written;

#[cfg(test)]
pub(crate) mod edits;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use allow::{AllowEntry, AllowRule};
pub use bind::BindAddress;
pub use change::{Change, Difference};
pub use controllers::Controllers;
pub(crate) use follow::Follower;
pub use loaded::{Loaded, Origin, Origins, Setting};
pub use log_filter::{LogFilter, LogLevel};
pub use network::Network;
pub use problem::{ConfigError, Problem};
pub use schema::schema;
pub use source::Source;
pub use standing::{Refused, Standing};
pub use tree::Position;
pub use walk::Applies;

use crate::cache::CacheSettings;
use crate::controller::ControllerSettings;
use crate::election::{ElectionSettings, OnLost};

use problem::Problems;

/// The `apiVersion` of the file.
pub const API_VERSION: &str = "config.mainstay.dev/v1alpha1";
/// The `kind` of the file.
pub const KIND: &str = "ManagerConfiguration";
/// The file looked for in a directory, such as a mounted `ConfigMap`.
pub const FILE_NAME: &str = "manager.yaml";
/// The name under `controllers` that sets the defaults of all.
pub const EVERY_CONTROLLER: &str = "*";

/// The shipped file, which spells out the defaults.
const DEFAULTS_TEXT: &str = include_str!("../../config/manager.yaml");

/// All settings of a manager.
///
/// [`ManagerConfiguration::default`] is what a file without settings means.
///
/// ```
/// use mainstay::config::{ManagerConfiguration, Overrides};
///
/// let read = |settings: &str| {
///     let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
///     ManagerConfiguration::parse(&format!("{head}{settings}"), "manager.yaml", &Overrides::default(), None)
/// };
///
/// let configuration = read("controllers: {\"*\": {workers: 3}, web: {queue: {retryShare: 20}}}")?;
/// let web = configuration.controller("web");
/// assert_eq!((web.workers, web.queue.retry_share), (3, 20));
///
/// // All that is wrong is said at once, each with its place, the value found and what was expected.
/// let error = read("shutdown: {gracePeriod: 30}\nlogging: {levle: info}").unwrap_err();
/// assert_eq!(error.lines(), [
///     "manager.yaml:3:25: shutdown.gracePeriod: 30 has no unit; \
///      expected a duration such as 30s, 5ms, 2m or 1h30m, perhaps 30s or 30ms",
///     "manager.yaml:4:18: logging.levle: unknown key, set to \"info\"; did you mean level?",
/// ]);
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ManagerConfiguration {
    /// Whether and how replicas agree on a leader.
    pub leader_election: LeaderElection,
    /// Where `/livez`, `/readyz` and `/healthz` are served.
    pub health: Health,
    /// Where `/metrics` is served.
    pub metrics: Metrics,
    /// Where `/debug` is served.
    pub inspect: Inspect,
    /// What is watched and kept.
    pub cache: CacheSettings,
    /// How long stopping may take.
    pub shutdown: Shutdown,
    /// What is logged, and how.
    pub logging: Logging,
    /// What probes may connect to.
    pub probe_policy: ProbePolicy,
    /// What becomes of a WaitDeployment.
    pub wait_deployment: WaitDeploymentSettings,
    /// What is said of all controllers, and of single ones.
    pub controllers: Controllers,
}

/// Leadership through a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// Whether leader-only work waits for the Lease; off means that this replica always leads.
    pub enabled: bool,
    /// Name of the Lease.
    pub lease_name: String,
    /// Namespace of the Lease; empty is the namespace the process runs in.
    pub namespace: String,
    /// How long others wait for a silent holder; whole seconds, above `renew_deadline`.
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up; above 1.2 times `retry_period`.
    pub renew_deadline: Duration,
    /// Time between two tries.
    pub retry_period: Duration,
    /// What a replica does that loses the Lease.
    pub on_lost: OnLost,
}

/// The server of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Where it listens.
    pub bind_address: BindAddress,
}

/// The server of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Where it listens.
    pub bind_address: BindAddress,
    /// Whether a scrape needs a token of an account that the API server lets `get` the path.
    pub auth: bool,
    /// Directory of `tls.crt` and `tls.key`, an absolute path; `None` for plain HTTP.
    pub tls_dir: Option<PathBuf>,
}

/// The server of debug pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspect {
    /// Where it listens; a loopback address unless there is a token.
    pub bind_address: BindAddress,
    /// File of the token that who comes from another host has to show, an absolute path; `None` lets only this host in.
    pub token_file: Option<PathBuf>,
}

/// How the process stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// One deadline for everything between the signal and the end.
    pub grace_period: Duration,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// How a line looks.
    pub format: LogFormat,
    /// Which lines are written.
    pub level: LogFilter,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// What probes may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePolicy {
    /// Which kinds of address are allowed.
    pub mode: ProbeMode,
    /// What `AllowList` allows beside Services; empty in every other mode.
    pub allow: Vec<AllowEntry>,
    /// Namespaces whose Services objects of other namespaces may name; `*` among them is every one.
    pub cross_namespace: Vec<String>,
    /// Domains whose names `dns` checks may look up, themselves and what is below them.
    pub dns_suffixes: Vec<String>,
    /// Kinds that `resource` checks may look at, such as `Job.batch`.
    pub resources: Vec<String>,
    /// Whether loopback addresses may be dialled; for development, where prerequisites are local.
    pub allow_loopback: bool,
    /// Networks never dialled, whatever else admits them.
    pub denied: Vec<Network>,
    /// Ports never dialled.
    pub denied_ports: Vec<u16>,
    /// The shortest period; a shorter one that an object asks for is lengthened to it.
    pub min_period: Duration,
    /// The most probes begun per second, over all targets; one probe opens at most four connections.
    pub max_per_second: u32,
    /// The most probes begun per second for the objects of one namespace.
    pub max_per_second_per_namespace: u32,
    /// The most of them at one address: a host as it is written and a port, however many checks there are of it.
    pub max_per_second_per_address: u32,
    /// The most targets probed at one time for the objects of one namespace.
    pub max_targets_per_namespace: u32,
}

/// Which kinds of address probes may connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Services in the object's own namespace.
    ServicesOnly,
    /// Services, and what `allow` lists.
    AllowList,
    /// Any address; for clusters with one tenant.
    Any,
}

/// What becomes of a WaitDeployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitDeploymentSettings {
    /// Keys of labels and annotations that its Deployment does not get; `DOMAIN/*` is every key of that domain.
    pub not_passed_on: Vec<String>,
}

/// What flags on the command line put over the file; `None` leaves the file's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Over `leaderElection.enabled`.
    pub leader_elect: Option<bool>,
    /// Over `leaderElection.namespace`.
    pub leader_election_namespace: Option<String>,
    /// Over `health.bindAddress`.
    pub health_bind_address: Option<BindAddress>,
    /// Over `metrics.bindAddress`.
    pub metrics_bind_address: Option<BindAddress>,
    /// Over `inspect.bindAddress`.
    pub inspect_bind_address: Option<BindAddress>,
    /// Over `logging.level`.
    pub log_level: Option<LogFilter>,
    /// Over `logging.format`.
    pub log_format: Option<LogFormat>,
}

// === impl ManagerConfiguration ===

impl ManagerConfiguration {
    /// Reads a file, or `manager.yaml` in a directory. Any controller may be named in it.
    ///
    /// # Errors
    /// If the file cannot be read or anything in it is wrong; see [`ConfigError::lines`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Loaded::load(path, &Overrides::default(), None).map(|loaded| loaded.configuration)
    }

    /// Reads a text; see [`Loaded::parse`], which also tells where each value came from.
    ///
    /// # Errors
    /// As for [`Loaded::parse`].
    pub fn parse(
        text: &str,
        origin: &str,
        overrides: &Overrides,
        controllers: Option<&[&str]>,
    ) -> Result<Self, ConfigError> {
        Loaded::parse(text, origin, overrides, controllers).map(|loaded| loaded.configuration)
    }

    /// Returns the text of the shipped file: every key with its default, meaning, unit and range.
    pub fn defaults_text() -> &'static str {
        DEFAULTS_TEXT
    }

    /// Returns the settings of one controller, which the file need not name and whose code sets nothing. For one
    /// whose code does, see [`Controllers::settings`].
    pub fn controller(&self, name: &str) -> ControllerSettings {
        self.controllers.settings(name, |_| {})
    }
}

/// What an empty file means.
impl Default for ManagerConfiguration {
    fn default() -> Self {
        resolve::resolve(&raw::RawManager::default(), &Problems::default())
    }
}

/// Returns whether a text is the name of a namespace.
pub(crate) fn is_namespace(text: &str) -> bool {
    crate::key::is_dns_label(text)
}

// === impl LeaderElection ===

impl LeaderElection {
    /// Returns what an elector is told. `own_namespace` is where the process runs, `identity` who it is.
    pub fn settings(&self, own_namespace: &str, identity: impl Into<Arc<str>>) -> ElectionSettings {
        let namespace = if self.namespace.is_empty() { own_namespace } else { &self.namespace };
        ElectionSettings {
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            on_lost: self.on_lost,
            ..ElectionSettings::new(namespace, self.lease_name.as_str(), identity)
        }
    }
}
