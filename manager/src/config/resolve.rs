//! From what was set to what holds: defaults, `"*"`, and what must fit together.
//!
//! Pure. Every default of the file stands here, or is the `Default` of the room whose settings they are.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::problem::Problems;
use super::raw::{
    RawCache, RawController, RawLeaderElection, RawLogging, RawManager, RawProbePolicy, RawQueue, RawRate,
    RawRetry,
};
use super::{
    BindAddress, Controllers, EVERY_CONTROLLER, Health, Inspect, LeaderElection, LogFilter, LogFormat,
    LogLevel, Logging, ManagerConfiguration, Metrics, ProbeMode, ProbePolicy, Shutdown, cursor,
};
use crate::cache::CacheSettings;
use crate::controller::ControllerSettings;
use crate::election::{DEFAULT_LEASE_DURATION, DEFAULT_RENEW_DEADLINE, DEFAULT_RETRY_PERIOD};
use crate::queue::{
    DEFAULT_BASE_DELAY, DEFAULT_FACTOR, DEFAULT_JITTER_PERCENT, DEFAULT_MAX_DELAY, Delay, QueueSettings,
    Rate, RetryPolicy,
};

/// Name of the Lease.
const DEFAULT_LEASE_NAME: &str = "mainstay";
/// Ports of controller-runtime's own defaults; inspect takes the next one.
const DEFAULT_METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
const DEFAULT_HEALTH: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8081);
const DEFAULT_INSPECT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8082);
/// Below the 45 s after which Kubernetes kills a Pod of `deploy/`, with time to report who was late.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;
/// Two hundred connections a second are noticed by no network and serve thousands of objects.
const DEFAULT_PROBES_PER_SECOND: u32 = 200;

/// Returns a complete configuration, which is valid if no problem was reported.
pub(super) fn resolve(raw: &RawManager, problems: &Problems) -> ManagerConfiguration {
    let address = |address: Option<BindAddress>, default| address.unwrap_or(BindAddress::Tcp(default));
    let resolved = ManagerConfiguration {
        leader_election: leader_election(&raw.leader_election),
        health: Health { bind_address: address(raw.health.bind_address, DEFAULT_HEALTH) },
        metrics: Metrics { bind_address: address(raw.metrics.bind_address, DEFAULT_METRICS) },
        inspect: Inspect { bind_address: address(raw.inspect.bind_address, DEFAULT_INSPECT) },
        cache: cache(&raw.cache),
        shutdown: Shutdown { grace_period: raw.shutdown.grace_period.unwrap_or(DEFAULT_GRACE_PERIOD) },
        logging: logging(&raw.logging),
        probe_policy: probe_policy(&raw.probe_policy),
        controllers: controllers(&raw.controllers, problems),
    };
    check_election(&resolved.leader_election, problems);
    check_addresses(&resolved, problems);
    check_probe_policy(&resolved.probe_policy, problems);
    check_controllers(&resolved.controllers, problems);
    resolved
}

fn leader_election(raw: &RawLeaderElection) -> LeaderElection {
    LeaderElection {
        enabled: raw.enabled.unwrap_or(true),
        lease_name: raw.lease_name.clone().unwrap_or_else(|| DEFAULT_LEASE_NAME.to_owned()),
        namespace: raw.namespace.clone().unwrap_or_default(),
        lease_duration: raw.lease_duration.unwrap_or(DEFAULT_LEASE_DURATION),
        renew_deadline: raw.renew_deadline.unwrap_or(DEFAULT_RENEW_DEADLINE),
        retry_period: raw.retry_period.unwrap_or(DEFAULT_RETRY_PERIOD),
        on_lost: raw.on_lost.unwrap_or_default(),
    }
}

fn cache(raw: &RawCache) -> CacheSettings {
    let default = CacheSettings::default();
    CacheSettings {
        namespaces: raw.namespaces.clone().unwrap_or(default.namespaces),
        resync: raw.resync.unwrap_or(default.resync),
        max_object_bytes: raw.max_object_bytes.map_or(default.max_object_bytes, size),
    }
}

fn logging(raw: &RawLogging) -> Logging {
    Logging {
        format: raw.format.unwrap_or(LogFormat::Json),
        level: raw.level.clone().unwrap_or(LogFilter { level: DEFAULT_LOG_LEVEL, modules: Vec::new() }),
    }
}

fn probe_policy(raw: &RawProbePolicy) -> ProbePolicy {
    ProbePolicy {
        mode: raw.mode.unwrap_or(ProbeMode::ServicesOnly),
        allow: raw.allow.clone().unwrap_or_default(),
        allow_loopback: raw.allow_loopback.unwrap_or(false),
        denied_ports: raw.denied_ports.clone().unwrap_or_default(),
        max_per_second: raw.max_per_second.unwrap_or(DEFAULT_PROBES_PER_SECOND),
    }
}

fn controllers(raw: &BTreeMap<String, RawController>, problems: &Problems) -> Controllers {
    let every = raw.get(EVERY_CONTROLLER).cloned().unwrap_or_default();
    let named = raw.iter().filter(|(name, _)| name.as_str() != EVERY_CONTROLLER).map(|(name, own)| {
        (name.clone(), controller(&own.clone().over(&every), &controller_path(name), problems))
    });
    Controllers {
        named: named.collect(),
        every: controller(&every, &controller_path(EVERY_CONTROLLER), problems),
    }
}

fn controller(raw: &RawController, path: &str, problems: &Problems) -> ControllerSettings {
    let default = ControllerSettings::default();
    ControllerSettings {
        workers: raw.workers.map_or(default.workers, |workers| size(workers.into())),
        reconcile_timeout: raw.reconcile_timeout.unwrap_or(default.reconcile_timeout),
        queue: queue(&raw.queue, &default.queue, path, problems),
    }
}

fn queue(raw: &RawQueue, default: &QueueSettings, controller: &str, problems: &Problems) -> QueueSettings {
    let rate = raw.retry_rate.as_ref().and_then(|raw| rate(raw, controller, problems));
    QueueSettings {
        retry: retry(&raw.retry, rate),
        retry_share: raw.retry_share.unwrap_or(default.retry_share),
        max_wait: raw.max_wait.unwrap_or(default.max_wait),
        max_depth: raw.max_depth.map_or(default.max_depth, |depth| size(depth.into())),
    }
}

/// A file says one backoff and one rate; other policies are given in code.
fn retry(raw: &RawRetry, rate: Option<Rate>) -> RetryPolicy {
    let base = raw.base_delay.unwrap_or(DEFAULT_BASE_DELAY);
    let factor = raw.factor.unwrap_or(DEFAULT_FACTOR);
    let max = raw.max_delay.unwrap_or(DEFAULT_MAX_DELAY);
    RetryPolicy {
        delays: vec![Delay::Exponential { base, factor, max }],
        rates: rate.into_iter().collect(),
        jitter_percent: raw.jitter.unwrap_or(DEFAULT_JITTER_PERCENT),
        max_attempts: raw.max_attempts.unwrap_or_default(),
    }
}

/// A rate has no defaults of its own: half of one is a mistake, not a wish.
fn rate(raw: &RawRate, controller: &str, problems: &Problems) -> Option<Rate> {
    let RawRate::Limit { per_second, burst } = raw else { return None };
    if let (Some(per_second), Some(burst)) = (*per_second, *burst) {
        return Some(Rate { per_second, burst });
    }
    let path = format!("{controller}.queue.retryRate");
    if !problems.touches(&path) {
        let missing = match (per_second, burst) {
            (None, None) => "neither perSecond nor burst",
            (None, _) => "no perSecond",
            _ => "no burst",
        };
        problems.about(&path, format!("has {missing}; expected {{perSecond: 50, burst: 200}} or null"));
    }
    None
}

fn check_election(election: &LeaderElection, problems: &Problems) {
    if problems.touches("leaderElection") {
        return;
    }
    // Namespace and identity are known only to the process that runs; any valid ones do for the rest.
    for invalid in election.settings("default", "replica").validate() {
        problems.about(invalid.path, format!("{}; {}", invalid.value, invalid.expected));
    }
}

fn check_addresses(resolved: &ManagerConfiguration, problems: &Problems) {
    let servers = [
        ("health.bindAddress", resolved.health.bind_address),
        ("metrics.bindAddress", resolved.metrics.bind_address),
        ("inspect.bindAddress", resolved.inspect.bind_address),
    ];
    for (index, (path, address)) in servers.iter().enumerate() {
        for (other_path, other) in &servers[..index] {
            if address.collides(*other) && !problems.touches(path) && !problems.touches(other_path) {
                let message =
                    format!("{address} collides with {other_path} {other}; expected another port or host");
                problems.about(path, message);
            }
        }
    }
    if let BindAddress::Tcp(address) = resolved.inspect.bind_address
        && !address.ip().is_loopback()
    {
        let message = format!(
            "{address} can be reached from outside; expected a loopback address such as 127.0.0.1:{}, \
             because readers are not authenticated (use kubectl port-forward)",
            address.port()
        );
        problems.about("inspect.bindAddress", message);
    }
}

fn check_probe_policy(policy: &ProbePolicy, problems: &Problems) {
    if problems.touches("probePolicy") {
        return;
    }
    let message = match (policy.mode, policy.allow.len()) {
        (ProbeMode::AllowList, 0) => "[] with probePolicy.mode AllowList; expected at least one entry, \
                                      or mode ServicesOnly"
            .to_owned(),
        (ProbeMode::AllowList, _) | (_, 0) => return,
        (mode, n) => format!(
            "a list of {n} with probePolicy.mode {mode:?}, which does not read it; expected [] or mode AllowList"
        ),
    };
    problems.about("probePolicy.allow", message);
}

fn check_controllers(controllers: &Controllers, problems: &Problems) {
    check_queue(EVERY_CONTROLLER, &controllers.every.queue, problems);
    // What is wrong with "*" would be repeated by every controller that takes it over.
    if !problems.touches(&controller_path(EVERY_CONTROLLER)) {
        for (name, settings) in &controllers.named {
            check_queue(name, &settings.queue, problems);
        }
    }
}

fn check_queue(controller: &str, queue: &QueueSettings, problems: &Problems) {
    let path = format!("{}.queue", controller_path(controller));
    for problem in queue.problems() {
        let section = problem.field.split('.').next().unwrap_or_default();
        if !problems.touches(&format!("{path}.{section}")) {
            problems
                .about(&format!("{path}.{}", problem.field), format!("{} {}", problem.value, problem.reason));
        }
    }
}

fn controller_path(name: &str) -> String {
    cursor::child("controllers", name)
}

/// Converts what a range has already kept within 32 bits.
fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
