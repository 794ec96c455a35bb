//! The sections of the runtime, except `controllers`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

use super::{BindAddress, Duration, LogFilter, Problem, Section, Size, is_dns_name, is_namespace};
use crate::cache::{CacheSettings, Pack};
use crate::election::{
    DEFAULT_LEASE_DURATION, DEFAULT_RENEW_DEADLINE, DEFAULT_RETRY_PERIOD, ElectionSettings, OnLost,
};

/// Settings of leader election. Replicas elect a leader through a Lease. Only the leader reconciles; the
/// other replicas keep their caches warm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct LeaderElection {
    /// Whether leader-only work waits for the Lease. Disable it only if there is never more than one replica.
    pub enabled: bool,
    /// Name of the Lease, a DNS name. Empty is the name of the program. Two independent managers of one
    /// program in one namespace need different names.
    #[schemars(regex(pattern = r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$"))]
    pub lease_name: String,
    /// Namespace of the Lease. Empty is the namespace of the Pod; outside a cluster a namespace is required.
    #[schemars(regex(pattern = "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$"))]
    pub namespace: String,
    /// How long the other replicas wait for a holder that does not renew: the longest time without a leader
    /// after a crash. Whole seconds, above renewDeadline.
    #[schemars(extend("x-mainstay-range" = ["1s", "1h"]))]
    pub lease_duration: Duration,
    /// How long the holder tries to renew the Lease before it stops its leader-only work. The holder may
    /// write for 0.9 times leaseDuration after a renewal, so renewDeadline and retryPeriod together are at
    /// most that long. Below leaseDuration, above 1.2 times retryPeriod.
    #[schemars(extend("x-mainstay-range" = ["1ms", "1h"]))]
    pub renew_deadline: Duration,
    /// Time between two attempts to acquire or renew the Lease. Each costs the API server one request per
    /// replica. At least 1s if an elector of client-go competes for the same Lease: it cannot tell two
    /// renewals within one second apart.
    #[schemars(extend("x-mainstay-range" = ["1ms", "1h"]))]
    pub retry_period: Duration,
    /// The action of a replica that lost the Lease, once its leader-only work has ended: Exit ends the
    /// process, and Kubernetes starts it again without old state; Campaign keeps the warm caches and competes
    /// for the Lease again.
    pub on_lost: OnLost,
}

/// Settings of the server of /livez, /readyz and /healthz.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Health {
    /// The address that the server listens on: an IP address with a port; "" or "0" switches the server off,
    /// port 0 takes any free port.
    pub bind_address: BindAddress,
}

/// Settings of the server of /metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Metrics {
    /// The address that the server listens on: an IP address with a port; "" or "0" switches the server off,
    /// port 0 takes any free port.
    pub bind_address: BindAddress,
    /// Whether a scrape needs a token, which the API server reviews: the token's account needs the right to
    /// get the nonResourceURL /metrics. The manager's own account needs the right to create such reviews, see
    /// deploy/components/metrics-auth. Tokens cross the network unencrypted unless tlsDir is set or something
    /// else encrypts the traffic.
    pub auth: bool,
    /// Directory of tls.crt and tls.key, such as a mounted Secret, for https in place of http: an absolute
    /// path, or "" for none. The two files may change at any time and are followed; only another directory
    /// needs a start.
    #[serde(with = "optional_path")]
    #[schemars(with = "String", regex(pattern = "^(/.*)?$"))]
    pub tls_dir: Option<PathBuf>,
}

/// Settings of the server of /debug: queues, caches, watches, the leader and the configuration as JSON, and
/// actions by POST. Every client that can connect sees names of objects and errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Inspect {
    /// The address that the server listens on: a loopback address with a port, or any address with tokenFile
    /// or auth; "" or "0" switches the server off, port 0 takes any free port. Connect by kubectl exec or
    /// port-forward. Without tokenFile and auth the server answers only requests whose Host is localhost or a
    /// loopback address, so that no web page can read the answers; a proxy in the Pod that forwards requests
    /// to this port would bypass this check.
    pub bind_address: BindAddress,
    /// Whether a request needs a token which the API server reviews: a token of the audience
    /// mainstay-inspect, of an account with the right to get, or post to, the requested nonResourceURL, such
    /// as /debug/controllers. The manager's own account needs the right to create such reviews, see
    /// deploy/components/inspect-peers.
    pub auth: bool,
    /// File of a token that every request must have as Authorization: Bearer TOKEN; the command inspect sends
    /// it with --config or --token-file. An absolute path, or "" for none. The token crosses the network
    /// unencrypted unless tlsDir is set. The manager reloads the file when it changes; another path needs a
    /// restart. With auth only the command inspect reads the file.
    #[serde(with = "optional_path")]
    #[schemars(with = "String", regex(pattern = "^(/.*)?$"))]
    pub token_file: Option<PathBuf>,
    /// Directory of tls.crt and tls.key, such as a mounted Secret, for https in place of http: an absolute
    /// path, or "" for none. The two files may change at any time and are followed; only another directory
    /// needs a start.
    #[serde(with = "optional_path")]
    #[schemars(with = "String", regex(pattern = "^(/.*)?$"))]
    pub tls_dir: Option<PathBuf>,
    /// Whether a standby forwards requests about controllers, queues and pages of the program to the leader,
    /// with the caller's token. Needs auth, tlsDir, and a bindAddress that other Pods can reach; 0.0.0.0
    /// stands for the address in the variable `POD_IP`. The leader writes its address and certificate into an
    /// annotation of the Lease, so an account with the right to update the Lease can redirect tokens.
    pub peers: bool,
}

/// Settings of the cache of watched objects in memory: one list and watch per kind, shared by all readers of
/// the kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Cache {
    /// The namespaces of the manager's own cluster to watch; empty is all namespaces. Each costs one watch
    /// per kind.
    #[schemars(inner(regex(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")), extend("uniqueItems" = true))]
    pub namespaces: Vec<String>,
    /// Time between two resyncs, which reconcile every object in case a change was missed; 0s is never. Each
    /// costs one reconcile per object, after all fresh work.
    #[schemars(extend("x-mainstay-range" = ["0s", "8760h"]))]
    pub resync: Duration,
    /// Whether objects are kept compressed: a Pod of 6 KiB in about 500 bytes, for 14 us of CPU time per
    /// change and 4 us more per read. Auto compresses a kind above one mebibyte, if that saves a third;
    /// Always from the first object on.
    pub pack: Pack,
    /// Of an object above this size, as JSON without managedFields, the cache keeps only metadata: reads of
    /// the rest fail, and `mainstay_cache_too_large_objects` counts the object. The default keeps every
    /// object that etcd can store. A store may have a smaller limit, see `Store::limited_to_share`. Set it
    /// together with the memory limit wherever others create objects.
    #[schemars(extend("x-mainstay-range" = ["1Ki", "1Gi"]))]
    pub max_object_bytes: Size,
}

/// Settings of the shutdown of the process after SIGTERM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Shutdown {
    /// The deadline of the whole shutdown, counted from its begin. After it the log names the parts that have
    /// not ended, and the Lease is not released. Keep it below the Pod's terminationGracePeriodSeconds.
    #[schemars(extend("x-mainstay-range" = ["1s", "1h"]))]
    pub grace_period: Duration,
}

/// Settings of log lines on standard error. A warning or error that repeats, for one controller and one kind,
/// is logged up to a hundred times at once and then ten times a second; `left_out` counts the lines left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Logging {
    /// The format of log lines: Json is one object per line, for log collectors; Text is for people.
    pub format: LogFormat,
    /// The least severe level that is logged: off, error, warn, info, debug or trace, and levels of single
    /// modules after commas, such as `info,mainstay::queue=debug`. Libraries that quote bytes of a peer (h2,
    /// `hickory_*`, rustls) log at debug and trace only if the value names them.
    pub level: LogFilter,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogFormat {
    /// Each log line is one JSON object.
    Json,
    /// Each log line is text for people.
    Text,
}

// === impl LeaderElection ===

impl LeaderElection {
    /// Returns the settings of an elector from this section. `program` and `own_namespace` stand for an empty
    /// name and an empty namespace, `identity` names the replica.
    pub fn settings(
        &self,
        program: &str,
        own_namespace: &str,
        identity: impl Into<Arc<str>>,
    ) -> ElectionSettings {
        let lease_name = if self.lease_name.is_empty() { program } else { &self.lease_name };
        let namespace = if self.namespace.is_empty() { own_namespace } else { &self.namespace };
        ElectionSettings {
            lease_duration: *self.lease_duration,
            renew_deadline: *self.renew_deadline,
            retry_period: *self.retry_period,
            on_lost: self.on_lost,
            ..ElectionSettings::new(namespace, lease_name, identity)
        }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_name: String::new(),
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
        if !self.lease_name.is_empty() && !is_dns_name(&self.lease_name) {
            let expected =
                "the name of a Lease (lower-case letters, digits, - and .) or \"\" for the program's";
            problems.push(Problem::new("leaseName", &self.lease_name, expected));
        }
        if !self.namespace.is_empty() && !is_namespace(&self.namespace) {
            let expected = "the name of a namespace, or \"\" for the manager's own";
            problems.push(Problem::new("namespace", &self.namespace, expected));
        }
        // The names and the identity of the process are unknown here; the timings are checked with any valid
        // ones.
        let election = Self { namespace: String::new(), lease_name: String::new(), ..self.clone() };
        problems.extend(election.settings("lease", "default", "replica").validate().into_iter().map(
            |invalid| {
                let key = invalid.path.rsplit('.').next().unwrap_or_default();
                Problem::message(key, format!("{}; {}", invalid.value, invalid.expected))
            },
        ));
        problems
    }
}

// === impl Health, Metrics, Inspect ===

/// Port 8081, and 8080 for metrics, are controller-runtime's defaults; port 8082 of /debug is the next one.
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
        Self {
            bind_address: listen(Ipv4Addr::LOCALHOST, 8082),
            auth: false,
            token_file: None,
            tls_dir: None,
            peers: false,
        }
    }
}

impl Section for Inspect {
    const RESTART: &'static [&'static str] = &[""];

    fn validate(&self) -> Vec<Problem> {
        let token = check_path("tokenFile", self.token_file.as_deref(), "/etc/mainstay/inspect/token");
        let tls = check_path("tlsDir", self.tls_dir.as_deref(), "/etc/mainstay/inspect-tls");
        let mut problems: Vec<Problem> = token.into_iter().chain(tls).collect();
        let address = self.bind_address.socket();
        let loopback = address.is_some_and(|address| address.ip().is_loopback());
        if let Some(address) = address.filter(|_| !loopback && !self.auth && self.token_file.is_none()) {
            let message = format!(
                "{address} is reachable from other hosts; expected a loopback address such as 127.0.0.1:{} \
                 (use kubectl port-forward), or a required token by inspect.tokenFile or inspect.auth",
                address.port()
            );
            problems.push(Problem::message("bindAddress", message));
        }
        if self.peers {
            if loopback || address.is_none() {
                let expected =
                    "with inspect.peers an address that other Pods can reach, such as 0.0.0.0:8082";
                problems.push(Problem::new("bindAddress", &self.bind_address.to_string(), expected));
            }
            if !self.auth {
                let expected = "true with inspect.peers: standby and leader both check the caller's token";
                problems.push(Problem::new("auth", &self.auth, expected));
            }
            if self.tls_dir.is_none() {
                let expected =
                    "with inspect.peers a directory of tls.crt and tls.key: tokens are sent to the leader";
                problems.push(Problem::new("tlsDir", &"", expected));
            }
        }
        problems
    }
}

fn listen(host: Ipv4Addr, port: u16) -> BindAddress {
    BindAddress::Tcp(SocketAddr::new(IpAddr::V4(host), port))
}

/// Returns a problem for a relative path: it would depend on the directory in which the process is started.
fn check_path(key: &str, path: Option<&Path>, example: &str) -> Option<Problem> {
    let relative = path.filter(|path| !path.is_absolute())?;
    let expected = format!("an absolute path such as {example}, or \"\" for none");
    Some(Problem::new(key, &relative, expected))
}

/// Serde functions of an optional path; `None` is spelled `""`.
mod optional_path {
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
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
    /// Returns the settings of the cache from this section.
    pub fn settings(&self) -> CacheSettings {
        CacheSettings {
            namespaces: self.namespaces.clone(),
            resync: *self.resync,
            max_object_bytes: usize::try_from(self.max_object_bytes.bytes()).unwrap_or(usize::MAX),
            pack: self.pack,
            ..CacheSettings::default()
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let CacheSettings { namespaces, resync, max_object_bytes, pack, .. } = CacheSettings::default();
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
        // Below the 45 s after which Kubernetes kills a Pod of `deploy/`, with time to log the parts that
        // have not ended.
        Self { grace_period: Duration::from_secs(30) }
    }
}

impl Section for Shutdown {}

impl Default for Logging {
    fn default() -> Self {
        Self { format: LogFormat::Json, level: LogFilter { level: LevelFilter::INFO, modules: Vec::new() } }
    }
}

impl Section for Logging {
    const RESTART: &'static [&'static str] = &["format"];
}
