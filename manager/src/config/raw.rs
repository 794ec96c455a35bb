//! What a file says and what flags say: every setting optional, every value valid by itself.
//!
//! One struct per section, its fields in the order of the file. Reading checks types, units and ranges; what must
//! fit together is checked in `resolve`, once everything has a value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::allow::{AllowRule, is_dns_name};
use super::cursor::{Cursor, closest, one_of};
use super::{API_VERSION, BindAddress, EVERY_CONTROLLER, KIND, LogFilter, LogFormat, Overrides, ProbeMode};
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
/// The growth 100 passes any delay within a few failures.
const MAX_FACTOR: f64 = 100.0;
/// The API server takes objects of some 3 MiB at most; a gibibyte stands for "no limit".
const OBJECT_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 30;

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
    pub(super) pack_kinds: BTreeMap<String, Pack>,
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
    pub(super) allow: Option<Vec<AllowRule>>,
    pub(super) allow_loopback: Option<bool>,
    pub(super) denied_ports: Option<Vec<u16>>,
    pub(super) max_per_second: Option<u32>,
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
    Limit { per_second: Option<f64>, burst: Option<u32> },
}

// === impl RawManager ===

impl RawManager {
    pub(super) fn read(root: &Cursor<'_>, known: Option<&[&str]>) -> Self {
        let mut fields = root.fields();
        for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match fields.cursor(key) {
                Some(cursor) if cursor.is_text(expected) => {}
                Some(cursor) => cursor.refuse(expected),
                None => root.report(format!("{key} is missing; expected {key}: {expected}")),
            }
        }
        let raw = Self {
            leader_election: fields.section("leaderElection", RawLeaderElection::read),
            health: fields.section("health", RawHealth::read),
            metrics: fields.section("metrics", RawMetrics::read),
            inspect: fields.section("inspect", RawInspect::read),
            cache: fields.section("cache", RawCache::read),
            shutdown: fields.section("shutdown", RawShutdown::read),
            logging: fields.section("logging", RawLogging::read),
            probe_policy: fields.section("probePolicy", RawProbePolicy::read),
            controllers: fields.section("controllers", |cursor| read_controllers(cursor, known)),
        };
        fields.close();
        raw
    }

    /// Puts flags over the file.
    pub(super) fn put_over(&mut self, flags: &Overrides) {
        fn put<T: Clone>(flag: Option<&T>, file: &mut Option<T>) {
            if let Some(flag) = flag {
                *file = Some(flag.clone());
            }
        }
        put(flags.leader_elect.as_ref(), &mut self.leader_election.enabled);
        put(flags.leader_election_namespace.as_ref(), &mut self.leader_election.namespace);
        put(flags.health_bind_address.as_ref(), &mut self.health.bind_address);
        put(flags.metrics_bind_address.as_ref(), &mut self.metrics.bind_address);
        put(flags.inspect_bind_address.as_ref(), &mut self.inspect.bind_address);
        put(flags.log_level.as_ref(), &mut self.logging.level);
        put(flags.log_format.as_ref(), &mut self.logging.format);
    }
}

// === impl sections ===

impl RawLeaderElection {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            enabled: fields.take("enabled", Cursor::boolean),
            lease_name: fields.take("leaseName", |cursor| {
                cursor.parsed("the name of a Lease: lower-case letters, digits, - and .", |text| {
                    is_dns_name(text).then(|| text.to_owned())
                })
            }),
            namespace: fields.take("namespace", |cursor| {
                cursor.parsed("the name of a namespace, or \"\" for the manager's own", |text| {
                    (text.is_empty() || is_dns_label(text)).then(|| text.to_owned())
                })
            }),
            lease_duration: fields.take("leaseDuration", |cursor| cursor.duration(SECOND..=HOUR)),
            renew_deadline: fields.take("renewDeadline", |cursor| cursor.duration(MILLISECOND..=HOUR)),
            retry_period: fields.take("retryPeriod", |cursor| cursor.duration(MILLISECOND..=HOUR)),
            on_lost: fields.take("onLost", |cursor| {
                cursor.choice(&[("Exit", OnLost::Exit), ("Campaign", OnLost::Campaign)])
            }),
        };
        fields.close();
        raw
    }
}

impl RawHealth {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self { bind_address: fields.take("bindAddress", Cursor::parse) };
        fields.close();
        raw
    }
}

impl RawMetrics {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            bind_address: fields.take("bindAddress", Cursor::parse),
            auth: fields.take("auth", Cursor::boolean),
            tls_dir: fields.take("tlsDir", |cursor| read_path(cursor, "/etc/mainstay/tls")),
        };
        fields.close();
        raw
    }
}

impl RawInspect {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            bind_address: fields.take("bindAddress", Cursor::parse),
            token_file: fields.take("tokenFile", |cursor| read_path(cursor, "/etc/mainstay/inspect/token")),
        };
        fields.close();
        raw
    }
}

/// Reads the path of something that may be left out. A relative one is refused: the file may be reached through links,
/// and the process be started anywhere, so it would mean one thing to whoever wrote it and another to the process.
fn read_path(cursor: &Cursor<'_>, example: &str) -> Option<PathBuf> {
    cursor.parsed(&format!("an absolute path such as {example}, or \"\" for none"), |text| {
        (text.is_empty() || Path::new(text).is_absolute()).then(|| PathBuf::from(text))
    })
}

impl RawCache {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            namespaces: fields.take("namespaces", |cursor| {
                cursor.list("namespaces", |item| {
                    item.parsed("the name of a namespace", |text| is_dns_label(text).then(|| text.to_owned()))
                })
            }),
            resync: fields.take("resync", |cursor| cursor.duration(Duration::ZERO..=YEAR)),
            max_object_bytes: fields.take("maxObjectBytes", |cursor| cursor.size(OBJECT_BYTES)),
            pack: fields.take("pack", read_pack),
            pack_kinds: fields.section("kinds", read_kinds),
        };
        fields.close();
        raw
    }
}

fn read_pack(cursor: &Cursor<'_>) -> Option<Pack> {
    cursor.choice(&[("Auto", Pack::Auto), ("Never", Pack::Never), ("Always", Pack::Always)])
}

/// Reads settings of single kinds, such as `{Pod: {pack: Auto}}`.
fn read_kinds(cursor: &Cursor<'_>) -> BTreeMap<String, Pack> {
    let mut kinds = BTreeMap::new();
    for (kind, cursor) in cursor.entries("a mapping from kinds to their settings").unwrap_or_default() {
        let named = kind.starts_with(|c: char| c.is_ascii_uppercase())
            && kind.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
        if !named {
            cursor.report("unknown kind; expected a kind such as Pod or Deployment.apps".to_owned());
        }
        let mut fields = cursor.fields();
        kinds.extend(fields.take("pack", read_pack).map(|pack| (kind, pack)));
        fields.close();
    }
    kinds
}

impl RawShutdown {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self { grace_period: fields.take("gracePeriod", |cursor| cursor.duration(SECOND..=HOUR)) };
        fields.close();
        raw
    }
}

impl RawLogging {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            format: fields.take("format", |cursor| {
                cursor.choice(&[("Json", LogFormat::Json), ("Text", LogFormat::Text)])
            }),
            level: fields.take("level", Cursor::parse),
        };
        fields.close();
        raw
    }
}

impl RawProbePolicy {
    fn read(cursor: &Cursor<'_>) -> Self {
        let modes = [
            ("ServicesOnly", ProbeMode::ServicesOnly),
            ("AllowList", ProbeMode::AllowList),
            ("Any", ProbeMode::Any),
        ];
        let mut fields = cursor.fields();
        let raw = Self {
            mode: fields.take("mode", |cursor| cursor.choice(&modes)),
            allow: fields.take("allow", |cursor| cursor.list("networks, hosts and domains", Cursor::parse)),
            allow_loopback: fields.take("allowLoopback", Cursor::boolean),
            denied_ports: fields.take("deniedPorts", |cursor| {
                cursor.list("ports", |item| {
                    item.whole(1..=u32::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
                })
            }),
            max_per_second: fields.take("maxPerSecond", |cursor| cursor.whole(1..=MAX_PER_SECOND)),
        };
        fields.close();
        raw
    }
}

fn read_controllers(cursor: &Cursor<'_>, known: Option<&[&str]>) -> BTreeMap<String, RawController> {
    let mut controllers = BTreeMap::new();
    for (name, cursor) in cursor.entries("a mapping from controllers to their settings").unwrap_or_default() {
        if let Some(known) = known
            && name != EVERY_CONTROLLER
            && !known.contains(&name.as_str())
        {
            let near =
                closest(&name, known).map_or_else(String::new, |near| format!("; did you mean {near}?"));
            let all: Vec<&str> = known.iter().copied().chain([r#""*""#]).collect();
            cursor.report(format!("unknown controller; expected {}{near}", one_of(&all)));
        }
        controllers.insert(name, RawController::read(&cursor));
    }
    controllers
}

impl RawController {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            workers: fields.take("workers", |cursor| cursor.whole(1..=MAX_WORKERS.into())),
            reconcile_timeout: fields
                .take("reconcileTimeout", |cursor| cursor.duration(Duration::ZERO..=DAY)),
            queue: fields.section("queue", RawQueue::read),
        };
        fields.close();
        raw
    }
}

impl RawQueue {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            retry: fields.section("retry", RawRetry::read),
            retry_share: fields.take("retryShare", |cursor| cursor.percent(1..=100)),
            retry_rate: fields.take("retryRate", |cursor| Some(RawRate::read(cursor))),
            max_wait: fields.take("maxWait", |cursor| cursor.duration(MILLISECOND..=DAY)),
            max_depth: fields.take("maxDepth", |cursor| cursor.whole(0..=u32::MAX)),
        };
        fields.close();
        raw
    }
}

impl RawRetry {
    fn read(cursor: &Cursor<'_>) -> Self {
        let mut fields = cursor.fields();
        let raw = Self {
            base_delay: fields.take("baseDelay", |cursor| cursor.duration(MILLISECOND..=DAY)),
            factor: fields.take("factor", |cursor| cursor.number(1.0..=MAX_FACTOR)),
            max_delay: fields.take("maxDelay", |cursor| cursor.duration(MILLISECOND..=DAY)),
            jitter: fields.take("jitter", |cursor| cursor.percent(0..=100)),
            max_attempts: fields.take("maxAttempts", |cursor| cursor.whole(0..=u32::MAX)),
        };
        fields.close();
        raw
    }
}

impl RawRate {
    fn read(cursor: &Cursor<'_>) -> Self {
        if cursor.is_null() {
            return Self::Off;
        }
        let mut fields = cursor.fields();
        let raw = Self::Limit {
            per_second: fields.take("perSecond", |cursor| cursor.number(0.001..=f64::from(MAX_PER_SECOND))),
            burst: fields.take("burst", |cursor| cursor.whole(1..=MAX_PER_SECOND)),
        };
        fields.close();
        raw
    }
}
