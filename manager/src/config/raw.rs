//! What a file says and what flags say: every setting optional, every value valid by itself.
//!
//! One struct per section, its fields in the order of the file. A section's `walk` is the one place that knows the name
//! of a key, what it takes and when a change of it applies. What must fit together is checked in `resolve`, once
//! everything has a value.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use super::allow::{self, AllowEntry, is_dns_name};
use super::allowed::{Allowed, NAMESPACE};
use super::network::{self, Network};
use super::shape::{
    AbsolutePath, Boolean, Choice, KEY_OR_DOMAIN_PATTERN, KIND_PATTERN, Kinds, List, Name, Number,
    OptionalRate, Parsed, Percent, Port, Size, Time, Whole, is_key_or_domain, is_kind,
};
use super::walk::{
    Applies::{AtNextStart, Live},
    Section, Walk,
};
use super::{API_VERSION, BindAddress, KIND, LogFilter, LogFormat, Overrides, ProbeMode, bind, log_filter};
use crate::cache::Pack;
use crate::controller::MAX_WORKERS;
use crate::election::OnLost;
use crate::key::is_dns_label;

/// Upper end of every time that has no better one.
const DAY: Duration = Duration::from_hours(24);
/// Election works in seconds; an hour without a leader is longer than anybody wants.
const HOUR: Duration = Duration::from_hours(1);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// A resync rarer than once a year is none.
const YEAR: Duration = Duration::from_hours(365 * 24);
/// Above what one process can open, or a queue can hand out, per second.
const MAX_PER_SECOND: u32 = 100_000;
/// Above what one process can keep an eye on.
const MAX_TARGETS: u32 = 1_000_000;
/// The growth 100 passes any delay within a few failures.
const MAX_FACTOR: f64 = 100.0;
/// The API server takes objects of some 3 MiB at most; a gibibyte stands for "no limit".
const OBJECT_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 30;

const ADDRESS: Parsed<BindAddress> = Parsed { pattern: bind::PATTERN, write: BindAddress::as_written };
const PACK: Choice<Pack> = Choice(&[("Auto", Pack::Auto), ("Never", Pack::Never), ("Always", Pack::Always)]);

#[derive(Debug, Default)]
pub(super) struct RawManager {
    pub(super) leader_election: RawLeaderElection,
    pub(super) health: RawHealth,
    pub(super) metrics: RawMetrics,
    pub(super) inspect: RawInspect,
    pub(super) cache: RawCache,
    pub(super) shutdown: RawShutdown,
    pub(super) logging: RawLogging,
    pub(super) probe_policy: RawProbePolicy,
    pub(super) wait_deployment: RawWaitDeployment,
    /// By name; `"*"` is among them.
    pub(super) controllers: BTreeMap<String, RawController>,
}

#[derive(Debug, Default)]
pub(super) struct RawLeaderElection {
    pub(super) enabled: Option<bool>,
    pub(super) lease_name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) lease_duration: Option<Duration>,
    pub(super) renew_deadline: Option<Duration>,
    pub(super) retry_period: Option<Duration>,
    pub(super) on_lost: Option<OnLost>,
}

#[derive(Debug, Default)]
pub(super) struct RawHealth {
    pub(super) bind_address: Option<BindAddress>,
}

#[derive(Debug, Default)]
pub(super) struct RawMetrics {
    pub(super) bind_address: Option<BindAddress>,
    pub(super) auth: Option<bool>,
    /// Empty where it was written as `""`.
    pub(super) tls_dir: Option<PathBuf>,
}

#[derive(Debug, Default)]
pub(super) struct RawInspect {
    pub(super) bind_address: Option<BindAddress>,
    /// Empty where it was written as `""`.
    pub(super) token_file: Option<PathBuf>,
}

#[derive(Debug, Default)]
pub(super) struct RawCache {
    pub(super) namespaces: Option<Vec<String>>,
    pub(super) resync: Option<Duration>,
    pub(super) max_object_bytes: Option<u64>,
    pub(super) pack: Option<Pack>,
    pub(super) kinds: Option<BTreeMap<String, RawKind>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RawKind {
    pub(super) pack: Option<Pack>,
}

#[derive(Debug, Default)]
pub(super) struct RawShutdown {
    pub(super) grace_period: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct RawLogging {
    pub(super) format: Option<LogFormat>,
    pub(super) level: Option<LogFilter>,
}

#[derive(Debug, Default)]
pub(super) struct RawProbePolicy {
    pub(super) mode: Option<ProbeMode>,
    pub(super) allow: Option<Vec<AllowEntry>>,
    pub(super) cross_namespace: Option<Vec<String>>,
    pub(super) dns_suffixes: Option<Vec<String>>,
    pub(super) resources: Option<Vec<String>>,
    pub(super) allow_loopback: Option<bool>,
    pub(super) denied: Option<Vec<Network>>,
    pub(super) denied_ports: Option<Vec<u16>>,
    pub(super) min_period: Option<Duration>,
    pub(super) max_per_second: Option<u32>,
    pub(super) max_per_second_per_namespace: Option<u32>,
    pub(super) max_per_second_per_address: Option<u32>,
    pub(super) max_targets_per_namespace: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct RawWaitDeployment {
    pub(super) not_passed_on: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RawController {
    pub(super) workers: Option<u32>,
    pub(super) reconcile_timeout: Option<Duration>,
    pub(super) queue: RawQueue,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RawQueue {
    pub(super) retry: RawRetry,
    pub(super) retry_share: Option<u8>,
    pub(super) retry_rate: Option<RawRate>,
    pub(super) max_wait: Option<Duration>,
    pub(super) max_depth: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RawRetry {
    pub(super) base_delay: Option<Duration>,
    pub(super) factor: Option<f64>,
    pub(super) max_delay: Option<Duration>,
    pub(super) jitter: Option<u8>,
    pub(super) max_attempts: Option<u32>,
}

/// Written as `null`, or as a mapping.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RawRate {
    Off,
    Limit(RawLimit),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RawLimit {
    pub(super) per_second: Option<f64>,
    pub(super) burst: Option<u32>,
}

// === impl RawManager ===

impl Section for RawManager {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.constant("apiVersion", API_VERSION);
        keys.constant("kind", KIND);
        keys.section("leaderElection", &mut self.leader_election);
        keys.section("health", &mut self.health);
        keys.section("metrics", &mut self.metrics);
        keys.section("inspect", &mut self.inspect);
        keys.section("cache", &mut self.cache);
        keys.section("shutdown", &mut self.shutdown);
        keys.section("logging", &mut self.logging);
        keys.section("probePolicy", &mut self.probe_policy);
        keys.section("waitDeployment", &mut self.wait_deployment);
        keys.controllers("controllers", &mut self.controllers);
    }
}

impl RawManager {
    /// Puts flags over the file. Returns the paths that were set with the names of their flags, which `cli` gives them.
    pub(super) fn put_over(&mut self, flags: &Overrides) -> HashMap<&'static str, &'static str> {
        fn put<T: Clone>(flag: Option<&T>, file: &mut Option<T>) -> bool {
            if let Some(flag) = flag {
                *file = Some(flag.clone());
            }
            flag.is_some()
        }
        let Overrides {
            leader_elect,
            leader_election_namespace,
            health_bind_address,
            metrics_bind_address,
            inspect_bind_address,
            log_level,
            log_format,
        } = flags;
        let (election, logging) = (&mut self.leader_election, &mut self.logging);
        let set = [
            (put(leader_elect.as_ref(), &mut election.enabled), "leaderElection.enabled", "--leader-elect"),
            (
                put(leader_election_namespace.as_ref(), &mut election.namespace),
                "leaderElection.namespace",
                "--leader-election-namespace",
            ),
            (
                put(health_bind_address.as_ref(), &mut self.health.bind_address),
                "health.bindAddress",
                "--health-probe-bind-address",
            ),
            (
                put(metrics_bind_address.as_ref(), &mut self.metrics.bind_address),
                "metrics.bindAddress",
                "--metrics-bind-address",
            ),
            (
                put(inspect_bind_address.as_ref(), &mut self.inspect.bind_address),
                "inspect.bindAddress",
                "--inspect-bind-address",
            ),
            (put(log_level.as_ref(), &mut logging.level), "logging.level", "--log-level"),
            (put(log_format.as_ref(), &mut logging.format), "logging.format", "--log-format"),
        ];
        set.into_iter().filter(|(set, ..)| *set).map(|(_, path, flag)| (path, flag)).collect()
    }
}

// === impl sections ===

impl Section for RawLeaderElection {
    fn walk(&mut self, keys: &mut impl Walk) {
        let lease = Name {
            expected: "the name of a Lease: lower-case letters, digits, - and .",
            accepts: is_dns_name,
            pattern: allow::DNS_NAME_PATTERN,
        };
        let namespace = Name {
            expected: "the name of a namespace, or \"\" for the manager's own",
            accepts: |text| text.is_empty() || is_dns_label(text),
            pattern: "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$",
        };
        keys.key("enabled", AtNextStart, &mut self.enabled, Boolean);
        keys.key("leaseName", AtNextStart, &mut self.lease_name, lease);
        keys.key("namespace", AtNextStart, &mut self.namespace, namespace);
        keys.key("leaseDuration", AtNextStart, &mut self.lease_duration, Time(SECOND..=HOUR));
        keys.key("renewDeadline", AtNextStart, &mut self.renew_deadline, Time(MILLISECOND..=HOUR));
        keys.key("retryPeriod", AtNextStart, &mut self.retry_period, Time(MILLISECOND..=HOUR));
        let on_lost = Choice(&[("Exit", OnLost::Exit), ("Campaign", OnLost::Campaign)]);
        keys.key("onLost", AtNextStart, &mut self.on_lost, on_lost);
    }
}

impl Section for RawHealth {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.key("bindAddress", AtNextStart, &mut self.bind_address, ADDRESS);
    }
}

impl Section for RawMetrics {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.key("bindAddress", AtNextStart, &mut self.bind_address, ADDRESS);
        keys.key("auth", AtNextStart, &mut self.auth, Boolean);
        keys.key("tlsDir", AtNextStart, &mut self.tls_dir, AbsolutePath { example: "/etc/mainstay/tls" });
    }
}

impl Section for RawInspect {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.key("bindAddress", AtNextStart, &mut self.bind_address, ADDRESS);
        let token = AbsolutePath { example: "/etc/mainstay/inspect/token" };
        keys.key("tokenFile", AtNextStart, &mut self.token_file, token);
    }
}

impl Section for RawCache {
    fn walk(&mut self, keys: &mut impl Walk) {
        let namespaces = List { of: "namespaces", item: NAMESPACE };
        keys.key("namespaces", AtNextStart, &mut self.namespaces, namespaces);
        keys.key("resync", AtNextStart, &mut self.resync, Time(Duration::ZERO..=YEAR));
        keys.key("maxObjectBytes", AtNextStart, &mut self.max_object_bytes, Size(OBJECT_BYTES));
        keys.key("pack", AtNextStart, &mut self.pack, PACK);
        keys.key("kinds", AtNextStart, &mut self.kinds, Kinds);
    }
}

impl Section for RawKind {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.key("pack", AtNextStart, &mut self.pack, PACK);
    }
}

impl Section for RawShutdown {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.key("gracePeriod", Live, &mut self.grace_period, Time(SECOND..=HOUR));
    }
}

impl Section for RawLogging {
    fn walk(&mut self, keys: &mut impl Walk) {
        let formats = Choice(&[("Json", LogFormat::Json), ("Text", LogFormat::Text)]);
        keys.key("format", AtNextStart, &mut self.format, formats);
        let level = Parsed { pattern: log_filter::PATTERN, write: LogFilter::to_string };
        keys.key("level", Live, &mut self.level, level);
    }
}

impl Section for RawProbePolicy {
    fn walk(&mut self, keys: &mut impl Walk) {
        let modes = Choice(&[
            ("ServicesOnly", ProbeMode::ServicesOnly),
            ("AllowList", ProbeMode::AllowList),
            ("Any", ProbeMode::Any),
        ]);
        let network = Parsed { pattern: network::PATTERN, write: Network::to_string };
        let namespace = Name {
            expected: "the name of a namespace, or \"*\" for every one",
            accepts: |text| text == "*" || is_dns_label(text),
            pattern: r"^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$",
        };
        let suffix = Name {
            expected: "a domain such as example.com",
            accepts: is_dns_name,
            pattern: allow::DNS_NAME_PATTERN,
        };
        let kind =
            Name { expected: "a kind such as Pod or Job.batch", accepts: is_kind, pattern: KIND_PATTERN };
        keys.key("mode", Live, &mut self.mode, modes);
        keys.key("allow", Live, &mut self.allow, List { of: "networks, hosts and domains", item: Allowed });
        keys.key(
            "crossNamespace",
            Live,
            &mut self.cross_namespace,
            List { of: "namespaces", item: namespace },
        );
        keys.key("dnsSuffixes", Live, &mut self.dns_suffixes, List { of: "domains", item: suffix });
        keys.key("resources", Live, &mut self.resources, List { of: "kinds", item: kind });
        keys.key("allowLoopback", Live, &mut self.allow_loopback, Boolean);
        keys.key("denied", Live, &mut self.denied, List { of: "networks", item: network });
        keys.key("deniedPorts", Live, &mut self.denied_ports, List { of: "ports", item: Port });
        keys.key("minPeriod", Live, &mut self.min_period, Time(SECOND..=HOUR));
        let per_second = || Whole(1..=MAX_PER_SECOND);
        keys.key("maxPerSecond", Live, &mut self.max_per_second, per_second());
        keys.key("maxPerSecondPerNamespace", Live, &mut self.max_per_second_per_namespace, per_second());
        keys.key("maxPerSecondPerAddress", Live, &mut self.max_per_second_per_address, per_second());
        keys.key("maxTargetsPerNamespace", Live, &mut self.max_targets_per_namespace, Whole(1..=MAX_TARGETS));
    }
}

impl Section for RawWaitDeployment {
    fn walk(&mut self, keys: &mut impl Walk) {
        let key = Name {
            expected: "a key such as team or example.com/team, or a domain with all its keys, such as example.com/*",
            accepts: is_key_or_domain,
            pattern: KEY_OR_DOMAIN_PATTERN,
        };
        // What the Deployments have already would stay until their WaitDeployments change: at a start all are looked at.
        keys.key("notPassedOn", AtNextStart, &mut self.not_passed_on, List { of: "keys", item: key });
    }
}

impl Section for RawController {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.key("workers", Live, &mut self.workers, Whole(1..=MAX_WORKERS.into()));
        keys.key("reconcileTimeout", Live, &mut self.reconcile_timeout, Time(Duration::ZERO..=DAY));
        keys.section("queue", &mut self.queue);
    }
}

impl Section for RawQueue {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.section("retry", &mut self.retry);
        keys.key("retryShare", Live, &mut self.retry_share, Percent(1..=100));
        keys.key("retryRate", Live, &mut self.retry_rate, OptionalRate);
        keys.key("maxWait", Live, &mut self.max_wait, Time(MILLISECOND..=DAY));
        keys.key("maxDepth", Live, &mut self.max_depth, Whole(0..=u32::MAX));
    }
}

impl Section for RawRetry {
    fn walk(&mut self, keys: &mut impl Walk) {
        keys.key("baseDelay", Live, &mut self.base_delay, Time(MILLISECOND..=DAY));
        keys.key("factor", Live, &mut self.factor, Number(1.0..=MAX_FACTOR));
        keys.key("maxDelay", Live, &mut self.max_delay, Time(MILLISECOND..=DAY));
        keys.key("jitter", Live, &mut self.jitter, Percent(0..=100));
        keys.key("maxAttempts", Live, &mut self.max_attempts, Whole(0..=u32::MAX));
    }
}

impl Section for RawLimit {
    fn walk(&mut self, keys: &mut impl Walk) {
        let per_second = Number(0.001..=f64::from(MAX_PER_SECOND));
        keys.key("perSecond", Live, &mut self.per_second, per_second);
        keys.key("burst", Live, &mut self.burst, Whole(1..=MAX_PER_SECOND));
    }
}
