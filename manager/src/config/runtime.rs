//! The sections that every file has: those of the runtime, without the one of controllers.

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
    /// Where it listens: a loopback address with a port, or any address with tokenFile or auth; "" or "0" switches it off,
    /// port 0 takes any free one. Reach it with kubectl exec or port-forward. Without either only requests whose Host is
    /// localhost or a loopback address are answered, so that no web page can read along; a proxy in the Pod that passes
    /// others on to this port lets them in.
    pub bind_address: BindAddress,
    /// Whether a request needs a token which the API server reviews: one of the audience mainstay-inspect, of an account
    /// that may get, or post to, the nonResourceURL asked for, such as /debug/controllers. The manager's own account needs
    /// the right to create such reviews, see deploy/components/inspect-peers.
    pub auth: bool,
    /// File of a token that every request has to show as Authorization: Bearer TOKEN; the command inspect takes it with
    /// --config or --token-file. An absolute path, or "" for none. The token crosses the network as it is, so set tlsDir
    /// with it. The manager follows the file, so the token may change at any time; another path needs a start. With auth
    /// the manager does not read it: it is what the command inspect shows.
    #[serde(with = "optional_path")]
    #[schemars(with = "String", regex(pattern = "^(/.*)?$"))]
    pub token_file: Option<PathBuf>,
    /// Directory of tls.crt and tls.key, such as a mounted Secret, for https in place of http: an absolute path, or ""
    /// for none. The two files may change at any time and are followed; only another directory needs a start.
    #[serde(with = "optional_path")]
    #[schemars(with = "String", regex(pattern = "^(/.*)?$"))]
    pub tls_dir: Option<PathBuf>,
    /// Whether a standby forwards requests about controllers, queues and pages of the program to the leader, with the
    /// caller's token. Needs auth, tlsDir, and a bindAddress that other Pods reach; 0.0.0.0 stands for the address in the
    /// variable `POD_IP`. The leader writes address and certificate into an annotation of the Lease: whoever may update the
    /// Lease may have tokens sent there.
    pub peers: bool,
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
    /// Of an object above this size, as JSON without managedFields, only metadata is kept: reads of the rest fail, and the
    /// object is counted as `mainstay_cache_too_large_objects`. The default keeps every object that etcd stores. Handles
    /// may read less, see `Store::limited_to_share`. Set it together with the memory limit wherever others create objects.
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
                "{address} can be reached from outside; expected a loopback address such as 127.0.0.1:{} \
                 (use kubectl port-forward), or a token that readers have to show, by inspect.tokenFile or inspect.auth",
                address.port()
            );
            problems.push(Problem::message("bindAddress", message));
        }
        if self.peers {
            if loopback || address.is_none() {
                let expected =
                    "with inspect.peers an address that the other Pods reach, such as 0.0.0.0:8082";
                problems.push(Problem::new("bindAddress", &self.bind_address.to_string(), expected));
            }
            if !self.auth {
                let expected = "true with inspect.peers: a token says who asks, of whichever replica";
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
        // Below the 45 s after which Kubernetes kills a Pod of `deploy/`, with time to report late parts.
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
