//! The configuration file: the runtime's own keys, and sections of the program.
//!
//! A file has one mapping per section. Each section is a plain type that serde reads, schemars describes and a
//! [`Section`] judges; a key that is not written has the value of the type's `Default`. The default file, the JSON Schema,
//! the bounds of values and the list of changed keys are all made from these types. Precedence is flag over file over
//! default; of controllers, code stands between the entries of all and of one ([`Controllers`]).
//!
//! # Invariants
//! 1. A file is accepted as a whole or not at all; [`ConfigError`] has the value problems of all sections.
//! 2. A default is written once, in the `Default` of a type; a bound once, in the attributes of a field.
//! 3. Every key does something: there is none for a feature that this release does not have.

mod bind;
mod change;
mod check;
mod controllers;
mod default_file;
mod document;
mod loaded;
mod log_filter;
mod problem;
mod schema;
mod section;
mod source;
mod standing;
mod text;
mod units;
mod words;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

pub use bind::BindAddress;
pub use change::{Change, Difference};
pub use controllers::Controllers;
pub use loaded::{Loaded, Origin, Origins, Setting};
pub use log_filter::{LogFilter, LogLevel};
pub use problem::{ConfigError, Position, Problem};
pub use schema::ConfigSchema;
pub use section::{Applies, Section, SectionError};
pub(crate) use section::{Channels, Sections};
pub use source::Source;
pub use standing::{Refused, Standing};
pub use text::from_text;
pub use units::{Duration, Size};

use crate::cache::{CacheSettings, Pack};
use crate::controller::ControllerSettings;
use crate::election::{
    DEFAULT_LEASE_DURATION, DEFAULT_RENEW_DEADLINE, DEFAULT_RETRY_PERIOD, ElectionSettings, OnLost,
};
use crate::key::is_dns_label;

use schema::RUNTIME;

/// The `apiVersion` of the file.
pub const API_VERSION: &str = "config.mainstay.dev/v1alpha1";
/// The `kind` of the file.
pub const KIND: &str = "ManagerConfiguration";
/// The file looked for in a directory, such as a mounted `ConfigMap`.
pub const FILE_NAME: &str = "manager.yaml";
/// The name under `controllers` that sets the defaults of all.
pub const EVERY_CONTROLLER: &str = "*";

/// All settings of a manager.
///
/// [`ManagerConfiguration::default`] is the meaning of a file without settings.
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
/// // A value without the shape of its key is reported with its place: the first one of each section.
/// let error = read("shutdown: {gracePeriod: 30}\nlogging: {levle: info}").unwrap_err();
/// assert_eq!(error.lines(), [
///     "manager.yaml:3:25: shutdown.gracePeriod: 30; \
///      expected a duration such as 30s, 5ms, 2m or 1h30m, with a unit: 30s or 30ms",
///     "manager.yaml:4:11: logging.levle: unknown key, set to \"info\"; did you mean level?",
/// ]);
///
/// // Values outside their bounds are reported all together.
/// let error = read("shutdown: {gracePeriod: 9h}\ncontrollers: {web: {workers: 0, queue: {retryShare: 101}}}");
/// assert_eq!(error.unwrap_err().lines(), [
///     "manager.yaml: shutdown.gracePeriod: \"9h\"; expected a duration from 1s to 1h",
///     "manager.yaml: controllers.web.queue.retryShare: 101; expected a whole number from 1 to 100",
///     "manager.yaml: controllers.web.workers: 0; expected a whole number from 1 to 1000",
/// ]);
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagerConfiguration {
    /// Whether and how replicas agree on a leader.
    pub leader_election: LeaderElection,
    /// The server of `/livez`, `/readyz` and `/healthz`.
    pub health: Health,
    /// The server of `/metrics`.
    pub metrics: Metrics,
    /// The server of `/debug`.
    pub inspect: Inspect,
    /// Objects that are watched and kept.
    pub cache: Cache,
    /// How long stopping may take.
    pub shutdown: Shutdown,
    /// Log lines.
    pub logging: Logging,
    /// Settings of all controllers, and of single ones.
    pub controllers: Controllers,
    /// The sections of the program.
    pub(crate) sections: Sections,
}

/// Replicas agree on a leader through a Lease. Only the leader reconciles; the others keep their caches warm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct LeaderElection {
    /// Whether leader-only work waits for the Lease. Switch it off only where one replica runs, ever.
    pub enabled: bool,
    /// Name of the Lease, a DNS name. Two managers that must not wait for each other need different names.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"))]
    pub lease_name: String,
    /// Namespace of the Lease. Empty is the namespace the Pod runs in; outside a cluster it has to be given.
    #[schemars(regex(pattern = "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$"))]
    pub namespace: String,
    /// How long the other replicas wait for a silent holder, so the longest time without a leader after a crash. Whole
    /// seconds, above renewDeadline.
    #[schemars(extend("x-mainstay-range" = ["1s", "1h"]))]
    pub lease_duration: Duration,
    /// How long the holder tries to renew before it gives up its work. It may write for 0.9 times leaseDuration after a
    /// renewal, so renewDeadline and retryPeriod together are at most that. Below leaseDuration, above 1.2 times
    /// retryPeriod.
    #[schemars(extend("x-mainstay-range" = ["1ms", "1h"]))]
    pub renew_deadline: Duration,
    /// Time between two tries to get or renew the Lease. Each costs the API server one request per replica. At least 1s
    /// where an elector of client-go stands for the same Lease: it takes two renewals within one second for the same.
    #[schemars(extend("x-mainstay-range" = ["1ms", "1h"]))]
    pub retry_period: Duration,
    /// What a replica does that lost the Lease, once its leader-only work has ended: Exit ends the process, which
    /// Kubernetes starts again with nothing left over; Campaign keeps the warm caches and competes again.
    pub on_lost: OnLost,
}

/// The server of /livez, /readyz and /healthz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Health {
    /// Where it listens: an IP address with a port; "" or "0" switches it off, port 0 takes any free one.
    pub bind_address: BindAddress,
}

/// The server of /metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Metrics {
    /// Where it listens: an IP address with a port; "" or "0" switches it off, port 0 takes any free one.
    pub bind_address: BindAddress,
    /// Whether a scrape needs a token, which the API server reviews: it has to be of an account that may get the
    /// nonResourceURL /metrics. The manager's own account needs the right to create such reviews, see
    /// deploy/components/metrics-auth. A token crosses the network as it is, so set tlsDir with it unless something else
    /// encrypts.
    pub auth: bool,
    /// Directory of tls.crt and tls.key, such as a mounted Secret, for https in place of http: an absolute path, or ""
    /// for none. The two files may change at any time and are followed; only another directory needs a start.
    #[serde(with = "optional_path")]
    #[schemars(with = "String", regex(pattern = "^(/.*)?$"))]
    pub tls_dir: Option<PathBuf>,
}

/// The server of /debug: what is queued, cached, watched and led, as JSON, and actions by POST. Names of objects and
/// errors are shown to every client that can connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Inspect {
    /// Where it listens: a loopback address with a port, or any address with tokenFile; "" or "0" switches it off, port
    /// 0 takes any free one. Reach it with kubectl exec or port-forward. Without tokenFile only requests whose Host is
    /// localhost or a loopback address are answered, so that no web page can read along; a proxy in the Pod that passes
    /// others on to this port lets them in.
    pub bind_address: BindAddress,
    /// File of a token that every request has to show as Authorization: Bearer TOKEN; the command inspect takes it with
    /// --config or --token-file. An absolute path, or "" for none. The token crosses the network as it is, over plain
    /// http. The manager follows the file, so the token may change at any time; another path needs a start.
    #[serde(with = "optional_path")]
    #[schemars(with = "String", regex(pattern = "^(/.*)?$"))]
    pub token_file: Option<PathBuf>,
}

/// Objects that are watched and kept in memory: one list and watch per kind, shared by all of its readers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Cache {
    /// The only namespaces of the manager's own cluster that are watched; empty is all of them. Each costs a watch of its
    /// own per kind.
    #[schemars(inner(regex(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")), extend("uniqueItems" = true))]
    pub namespaces: Vec<String>,
    /// Time between two reconciles of every object without a change, in case one was missed; 0s is never. Costs one
    /// reconcile per object, after all fresh work.
    #[schemars(extend("x-mainstay-range" = ["0s", "8760h"]))]
    pub resync: Duration,
    /// Whether objects are kept packed: a Pod of 6 KiB in about 500 bytes, for 14 us of a processor per change and 4 us
    /// more per read. Auto packs a kind once it has a mebibyte, if that saves a third; Always from the first object on.
    pub pack: Pack,
    /// A version of an object above this size is left out, counted and named; an earlier one that was kept stays and is
    /// served until the object shrinks or goes. /debug/caches lists them as leftOut.
    #[schemars(extend("x-mainstay-range" = ["1Ki", "1Gi"]))]
    pub max_object_bytes: Size,
}

/// How the process stops after SIGTERM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Shutdown {
    /// One deadline for all of it. Late parts are named in the log, and the Lease is then not released. Keep it below the
    /// Pod's terminationGracePeriodSeconds.
    #[schemars(extend("x-mainstay-range" = ["1s", "1h"]))]
    pub grace_period: Duration,
}

/// Lines on standard error. Of warnings and errors that repeat themselves, from one controller and about one kind, a hundred
/// are written at once and ten a second; `left_out` is the number of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Logging {
    /// Json is one object per line, for collectors; Text is for people.
    pub format: LogFormat,
    /// The least important level that is written: off, error, warn, info, debug or trace, and levels of single modules
    /// after commas, such as `info,mainstay::queue=debug`. Libraries that quote what peers send (h2, `hickory_*`, rustls)
    /// write at debug and trace only where they are named.
    pub level: LogFilter,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Values of flags on the command line, which replace those of the file; `None` leaves the file's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Replaces `leaderElection.enabled`.
    pub leader_elect: Option<bool>,
    /// Replaces `leaderElection.namespace`.
    pub leader_election_namespace: Option<String>,
    /// Replaces `health.bindAddress`.
    pub health_bind_address: Option<BindAddress>,
    /// Replaces `metrics.bindAddress`.
    pub metrics_bind_address: Option<BindAddress>,
    /// Replaces `inspect.bindAddress`.
    pub inspect_bind_address: Option<BindAddress>,
    /// Replaces `logging.level`.
    pub log_level: Option<LogFilter>,
    /// Replaces `logging.format`.
    pub log_format: Option<LogFormat>,
}

// === impl ManagerConfiguration ===

impl ManagerConfiguration {
    /// Reads a file, or `manager.yaml` in a directory. Any controller may be named in it, and no section of a program.
    ///
    /// # Errors
    /// If the file cannot be read or anything in it is wrong; see [`ConfigError::lines`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Loaded::load(path, &Overrides::default(), None).map(|loaded| loaded.configuration)
    }

    /// Reads a text; see [`Loaded::parse`], which also returns where each value came from.
    ///
    /// # Errors
    /// As for [`Loaded::parse`].
    pub fn parse(
        text: &str,
        origin: &str,
        overrides: &Overrides,
        schema: Option<&ConfigSchema>,
    ) -> Result<Self, ConfigError> {
        Loaded::parse(text, origin, overrides, schema).map(|loaded| loaded.configuration)
    }

    /// Returns the settings of one controller, which the file need not name and whose code sets nothing. For one
    /// whose code does, see [`Controllers::settings`].
    pub fn controller(&self, name: &str) -> ControllerSettings {
        self.controllers.settings(name, |_| {})
    }

    /// Returns a section of the program.
    ///
    /// # Errors
    /// If the configuration has none of this name and type.
    pub fn section<S: Section>(&self, name: &str) -> Result<Arc<S>, SectionError> {
        self.sections.get(name)
    }

    /// Returns what holds in a process that runs by this configuration once another one was loaded: values that apply
    /// live are the other's, the rest stays until the next start.
    #[must_use]
    pub fn reloaded(&self, new: &Self) -> Self {
        Self {
            shutdown: new.shutdown.clone(),
            logging: Logging { format: self.logging.format, level: new.logging.level.clone() },
            controllers: self.controllers.reloaded(&new.controllers),
            sections: self.sections.reloaded(&new.sections),
            ..self.clone()
        }
    }

    /// Every value by section and key, as the file spells it. `"*"` is complete; a named controller has only what is
    /// written under its name.
    fn tree(&self) -> Json {
        let Self { leader_election, health, metrics, inspect, cache, shutdown, logging, .. } = self;
        let mut tree = serde_json::json!({
            "leaderElection": leader_election, "health": health, "metrics": metrics, "inspect": inspect,
            "cache": cache, "shutdown": shutdown, "logging": logging, "controllers": self.controllers.tree(),
        });
        for (name, value) in self.sections.trees() {
            tree[name] = value.clone();
        }
        tree
    }

    /// Replaces values by those of flags. Returns the paths that were set with the names of their flags, as the command
    /// line has them.
    fn put_over(&mut self, flags: &Overrides) -> HashMap<&'static str, &'static str> {
        fn put<T: Clone>(flag: Option<&T>, value: &mut T) -> bool {
            if let Some(flag) = flag {
                value.clone_from(flag);
            }
            flag.is_some()
        }
        let Overrides {
            leader_elect,
            leader_election_namespace: namespace,
            health_bind_address: health,
            metrics_bind_address: metrics,
            inspect_bind_address: inspect,
            log_level,
            log_format,
        } = flags;
        let (election, logging) = (&mut self.leader_election, &mut self.logging);
        let set = [
            (put(leader_elect.as_ref(), &mut election.enabled), "leaderElection.enabled", "--leader-elect"),
            (
                put(namespace.as_ref(), &mut election.namespace),
                "leaderElection.namespace",
                "--leader-election-namespace",
            ),
            (
                put(health.as_ref(), &mut self.health.bind_address),
                "health.bindAddress",
                "--health-probe-bind-address",
            ),
            (
                put(metrics.as_ref(), &mut self.metrics.bind_address),
                "metrics.bindAddress",
                "--metrics-bind-address",
            ),
            (
                put(inspect.as_ref(), &mut self.inspect.bind_address),
                "inspect.bindAddress",
                "--inspect-bind-address",
            ),
            (put(log_level.as_ref(), &mut logging.level), "logging.level", "--log-level"),
            (put(log_format.as_ref(), &mut logging.format), "logging.format", "--log-format"),
        ];
        set.into_iter().filter(|(set, ..)| *set).map(|(_, path, flag)| (path, flag)).collect()
    }

    /// Reports everything that is wrong within one of the sections of the runtime; `tree` is the file as it is written.
    fn judge(&self, tree: &Json, problems: &mut Vec<Problem>) {
        let own = [
            self.leader_election.validate(),
            self.health.validate(),
            self.metrics.validate(),
            self.inspect.validate(),
            self.cache.validate(),
            self.shutdown.validate(),
            self.logging.validate(),
        ];
        for (declared, own) in RUNTIME.iter().zip(own) {
            declared.judge(&tree[declared.name], own, problems);
        }
    }

    /// Reports values that do not fit those of other sections.
    fn check_addresses(&self) -> Vec<Problem> {
        let servers = [
            ("health.bindAddress", self.health.bind_address),
            ("metrics.bindAddress", self.metrics.bind_address),
            ("inspect.bindAddress", self.inspect.bind_address),
        ];
        let mut problems = Vec::new();
        for (index, (path, address)) in servers.iter().enumerate() {
            for (other_path, other) in servers.iter().take(index) {
                if address.collides(*other) {
                    let message = format!(
                        "{address} collides with {other_path} {other}; expected another port or host"
                    );
                    problems.push(Problem::message(*path, message));
                }
            }
        }
        problems
    }
}

/// Returns whether a text is the name of a namespace.
pub fn is_namespace(text: &str) -> bool {
    is_dns_label(text)
}

/// Returns whether a text is a DNS name as Kubernetes takes them: lower-case labels, joined by dots.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

// === impl LeaderElection ===

impl LeaderElection {
    /// Returns the settings of an elector. `own_namespace` is where the process runs, `identity` names the replica.
    pub fn settings(&self, own_namespace: &str, identity: impl Into<Arc<str>>) -> ElectionSettings {
        let namespace = if self.namespace.is_empty() { own_namespace } else { &self.namespace };
        ElectionSettings {
            lease_duration: *self.lease_duration,
            renew_deadline: *self.renew_deadline,
            retry_period: *self.retry_period,
            on_lost: self.on_lost,
            ..ElectionSettings::new(namespace, self.lease_name.as_str(), identity)
        }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_name: "mainstay".to_owned(),
            namespace: String::new(),
            lease_duration: DEFAULT_LEASE_DURATION.into(),
            renew_deadline: DEFAULT_RENEW_DEADLINE.into(),
            retry_period: DEFAULT_RETRY_PERIOD.into(),
            on_lost: OnLost::default(),
        }
    }
}

impl Section for LeaderElection {
    const RESTART: &'static [&'static str] = &[""];

    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !is_dns_name(&self.lease_name) {
            let expected = "the name of a Lease: lower-case letters, digits, - and .";
            problems.push(Problem::new("leaseName", &self.lease_name, expected));
        }
        if !self.namespace.is_empty() && !is_namespace(&self.namespace) {
            let expected = "the name of a namespace, or \"\" for the manager's own";
            problems.push(Problem::new("namespace", &self.namespace, expected));
        }
        // Namespace and identity are known only to the process that runs; any valid ones do for the rest.
        let election =
            Self { namespace: "default".to_owned(), lease_name: "lease".to_owned(), ..self.clone() };
        problems.extend(election.settings("default", "replica").validate().into_iter().map(|invalid| {
            let key = invalid.path.rsplit('.').next().unwrap_or_default();
            Problem::message(key, format!("{}; {}", invalid.value, invalid.expected))
        }));
        problems
    }
}

// === impl Health, Metrics, Inspect ===

/// Ports of controller-runtime's own defaults; inspect takes the next one.
impl Default for Health {
    fn default() -> Self {
        Self { bind_address: listen(Ipv4Addr::UNSPECIFIED, 8081) }
    }
}

impl Section for Health {
    const RESTART: &'static [&'static str] = &[""];
}

impl Default for Metrics {
    fn default() -> Self {
        Self { bind_address: listen(Ipv4Addr::UNSPECIFIED, 8080), auth: false, tls_dir: None }
    }
}

impl Section for Metrics {
    const RESTART: &'static [&'static str] = &[""];

    fn validate(&self) -> Vec<Problem> {
        check_path("tlsDir", self.tls_dir.as_deref(), "/etc/mainstay/tls").into_iter().collect()
    }
}

impl Default for Inspect {
    fn default() -> Self {
        Self { bind_address: listen(Ipv4Addr::LOCALHOST, 8082), token_file: None }
    }
}

impl Section for Inspect {
    const RESTART: &'static [&'static str] = &[""];

    fn validate(&self) -> Vec<Problem> {
        let token = check_path("tokenFile", self.token_file.as_deref(), "/etc/mainstay/inspect/token");
        let mut problems: Vec<Problem> = token.into_iter().collect();
        if let BindAddress::Tcp(address) = self.bind_address
            && !address.ip().is_loopback()
            && self.token_file.is_none()
        {
            let message = format!(
                "{address} can be reached from outside; expected a loopback address such as 127.0.0.1:{} \
                 (use kubectl port-forward), or a token that readers have to show, in inspect.tokenFile",
                address.port()
            );
            problems.push(Problem::message("bindAddress", message));
        }
        problems
    }
}

fn listen(host: Ipv4Addr, port: u16) -> BindAddress {
    BindAddress::Tcp(SocketAddr::new(IpAddr::V4(host), port))
}

/// Refuses a relative path: the file may be reached through links and the process be started anywhere, so it would mean
/// one thing to its author and another to the process.
fn check_path(key: &str, path: Option<&Path>, example: &str) -> Option<Problem> {
    let relative = path.filter(|path| !path.is_absolute())?;
    let expected = format!("an absolute path such as {example}, or \"\" for none");
    Some(Problem::new(key, &relative, expected))
}

/// A path that is spelled `""` where there is none.
mod optional_path {
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub(super) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        path.clone().unwrap_or_default().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        PathBuf::deserialize(deserializer).map(|path| Some(path).filter(|path| !path.as_os_str().is_empty()))
    }
}

// === impl Cache ===

impl Cache {
    /// Returns the settings of the cache.
    pub fn settings(&self) -> CacheSettings {
        CacheSettings {
            namespaces: self.namespaces.clone(),
            resync: *self.resync,
            max_object_bytes: usize::try_from(self.max_object_bytes.bytes()).unwrap_or(usize::MAX),
            pack: self.pack,
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let CacheSettings { namespaces, resync, max_object_bytes, pack } = CacheSettings::default();
        let max_object_bytes = Size::from_bytes(u64::try_from(max_object_bytes).unwrap_or(u64::MAX));
        Self { namespaces, resync: resync.into(), pack, max_object_bytes }
    }
}

impl Section for Cache {
    const RESTART: &'static [&'static str] = &[""];

    fn validate(&self) -> Vec<Problem> {
        let wrong = |(index, name): (usize, &String)| {
            let path = format!("namespaces[{index}]");
            (!is_namespace(name)).then(|| Problem::new(path, name, "the name of a namespace"))
        };
        self.namespaces.iter().enumerate().filter_map(wrong).collect()
    }
}

// === impl Shutdown, Logging ===

impl Default for Shutdown {
    fn default() -> Self {
        // Below the 45 s after which Kubernetes kills a Pod of `deploy/`, with time to report late parts.
        Self { grace_period: Duration::from_secs(30) }
    }
}

impl Section for Shutdown {}

impl Default for Logging {
    fn default() -> Self {
        Self { format: LogFormat::Json, level: LogFilter { level: LogLevel::Info, modules: Vec::new() } }
    }
}

impl Section for Logging {
    const RESTART: &'static [&'static str] = &["format"];
}
