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
use super::units::format_duration;
use super::{
    BindAddress, CacheSettings, ControllerSettings, Controllers, EVERY_CONTROLLER, Health, Inspect,
    LeaderElection, LogFilter, LogFormat, LogLevel, Logging, ManagerConfiguration, Metrics, OnLost,
    ProbeMode, ProbePolicy, QueueSettings, Rate, RetryPolicy, Shutdown, cursor,
};

/// Name of the Lease.
const DEFAULT_LEASE_NAME: &str = "mainstay";
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);
const DEFAULT_RENEW_DEADLINE: Duration = Duration::from_secs(10);
const DEFAULT_RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Ports of controller-runtime's own defaults; inspect takes the next one.
const DEFAULT_METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080);
const DEFAULT_HEALTH: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8081);
const DEFAULT_INSPECT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8082);
/// Below the 45 s after which Kubernetes kills a Pod of `deploy/`, with time to report who was late.
const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;
/// Two hundred connections a second are noticed by no network and serve thousands of objects.
const DEFAULT_PROBES_PER_SECOND: u32 = 200;
const DEFAULT_RESYNC: Duration = Duration::from_secs(10 * 3600);
const DEFAULT_MAX_OBJECT_BYTES: u64 = 8 << 20;
const DEFAULT_WORKERS: u32 = 2;
const DEFAULT_RECONCILE_TIMEOUT: Duration = Duration::from_secs(120);
const DEFAULT_BASE_DELAY: Duration = Duration::from_millis(5);
const DEFAULT_FACTOR: f64 = 2.0;
const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(1000);
const DEFAULT_JITTER: u8 = 10;
const DEFAULT_RETRY_SHARE: u8 = 50;
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(30);

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
        on_lost: raw.on_lost.unwrap_or(OnLost::Exit),
    }
}

fn cache(raw: &RawCache) -> CacheSettings {
    CacheSettings {
        namespaces: raw.namespaces.clone().unwrap_or_default(),
        resync: raw.resync.unwrap_or(DEFAULT_RESYNC),
        max_object_bytes: size(raw.max_object_bytes.unwrap_or(DEFAULT_MAX_OBJECT_BYTES)),
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
    ControllerSettings {
        workers: size(raw.workers.unwrap_or(DEFAULT_WORKERS).into()),
        reconcile_timeout: raw.reconcile_timeout.unwrap_or(DEFAULT_RECONCILE_TIMEOUT),
        queue: queue(&raw.queue, path, problems),
    }
}

fn queue(raw: &RawQueue, controller: &str, problems: &Problems) -> QueueSettings {
    QueueSettings {
        retry: retry(&raw.retry),
        retry_share: raw.retry_share.unwrap_or(DEFAULT_RETRY_SHARE),
        retry_rate: raw.retry_rate.as_ref().and_then(|raw| rate(raw, controller, problems)),
        max_wait: raw.max_wait.unwrap_or(DEFAULT_MAX_WAIT),
        max_depth: size(raw.max_depth.unwrap_or(0).into()),
    }
}

fn retry(raw: &RawRetry) -> RetryPolicy {
    RetryPolicy {
        base_delay: raw.base_delay.unwrap_or(DEFAULT_BASE_DELAY),
        factor: raw.factor.unwrap_or(DEFAULT_FACTOR),
        max_delay: raw.max_delay.unwrap_or(DEFAULT_MAX_DELAY),
        jitter_percent: raw.jitter.unwrap_or(DEFAULT_JITTER),
        max_attempts: raw.max_attempts.unwrap_or(0),
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
    let LeaderElection { lease_duration, renew_deadline, retry_period, .. } = election;
    let [lease, renew, retry] =
        [lease_duration, renew_deadline, retry_period].map(|period| format_duration(*period));
    if lease_duration.subsec_nanos() != 0 {
        let message = format!("{lease}; expected whole seconds, because the Lease records nothing finer");
        problems.about("leaderElection.leaseDuration", message);
    }
    if renew_deadline >= lease_duration {
        let message = format!(
            "{renew} is not shorter than leaderElection.leaseDuration {lease}; \
             expected the holder to give up before others take over"
        );
        problems.about("leaderElection.renewDeadline", message);
    }
    // client-go's bound: a try is put off by up to a fifth, and one try at least must fit.
    if renew_deadline.as_nanos() * 10 <= retry_period.as_nanos() * 12 {
        let message = format!(
            "{retry} is too long for leaderElection.renewDeadline {renew}; \
             expected 1.2 times the period to be shorter than the deadline"
        );
        problems.about("leaderElection.retryPeriod", message);
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
    check_retry(EVERY_CONTROLLER, &controllers.every.queue.retry, problems);
    // What is wrong with "*" would be repeated by every controller that takes it over.
    if !problems.touches(&controller_path(EVERY_CONTROLLER)) {
        for (name, settings) in &controllers.named {
            check_retry(name, &settings.queue.retry, problems);
        }
    }
}

fn check_retry(controller: &str, retry: &RetryPolicy, problems: &Problems) {
    let path = format!("{}.queue.retry", controller_path(controller));
    if retry.base_delay <= retry.max_delay || problems.touches(&path) {
        return;
    }
    let [base, max] = [retry.base_delay, retry.max_delay].map(format_duration);
    let message =
        format!("{base} is longer than maxDelay {max}; expected maxDelay to be raised or baseDelay lowered");
    problems.about(&format!("{path}.baseDelay"), message);
}

fn controller_path(name: &str) -> String {
    cursor::child("controllers", name)
}

/// Converts what a range has already kept within 32 bits.
fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
