//! From what was set to what holds: defaults, `"*"`, and what must fit together.
//!
//! Pure. Every default of the file stands here, or is the `Default` of the room whose settings they are.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::Problems;
use super::raw::{
    RawCache, RawController, RawLeaderElection, RawLogging, RawManager, RawProbePolicy, RawRate,
};
use super::{
    BindAddress, Controllers, EVERY_CONTROLLER, Health, Inspect, LeaderElection, LogFilter, LogFormat,
    LogLevel, Logging, ManagerConfiguration, Metrics, ProbeMode, ProbePolicy, Shutdown,
    WaitDeploymentSettings, cursor,
};
use crate::cache::CacheSettings;
use crate::controller::ControllerSettings;
use crate::election::{DEFAULT_LEASE_DURATION, DEFAULT_RENEW_DEADLINE, DEFAULT_RETRY_PERIOD};

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
/// A quarter of all, so that one namespace alone cannot slow down the rest.
const DEFAULT_PROBES_PER_SECOND_PER_NAMESPACE: u32 = 50;
/// Below what one server is asked by its own clients. Ten checks of it take a fifth of that at the default `minPeriod`.
const DEFAULT_PROBES_PER_SECOND_PER_ADDRESS: u32 = 10;
/// As many as the rate of a namespace serves with the default period of 10 s.
const DEFAULT_TARGETS_PER_NAMESPACE: u32 = 500;
/// Half the period that an object has by default.
const DEFAULT_MIN_PERIOD: Duration = Duration::from_secs(5);
/// What starts before something else, and has a condition that says so.
const DEFAULT_RESOURCES: [&str; 3] = ["Deployment.apps", "Job.batch", "WaitDeployment.apps.mainstay.dev"];

/// Returns a complete configuration, which is valid if no problem was reported.
pub(super) fn resolve(raw: &RawManager, problems: &Problems) -> ManagerConfiguration {
    let address = |address: Option<BindAddress>, default| address.unwrap_or(BindAddress::Tcp(default));
    let resolved = ManagerConfiguration {
        leader_election: leader_election(&raw.leader_election),
        health: Health { bind_address: address(raw.health.bind_address, DEFAULT_HEALTH) },
        metrics: Metrics {
            bind_address: address(raw.metrics.bind_address, DEFAULT_METRICS),
            auth: raw.metrics.auth.unwrap_or(false),
            tls_dir: written_path(raw.metrics.tls_dir.as_deref()),
        },
        inspect: Inspect {
            bind_address: address(raw.inspect.bind_address, DEFAULT_INSPECT),
            token_file: written_path(raw.inspect.token_file.as_deref()),
        },
        cache: cache(&raw.cache),
        shutdown: Shutdown { grace_period: raw.shutdown.grace_period.unwrap_or(DEFAULT_GRACE_PERIOD) },
        logging: logging(&raw.logging),
        probe_policy: probe_policy(&raw.probe_policy),
        wait_deployment: WaitDeploymentSettings {
            not_passed_on: raw.wait_deployment.not_passed_on.clone().unwrap_or_default(),
        },
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

fn written_path(written: Option<&Path>) -> Option<PathBuf> {
    written.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned)
}

fn cache(raw: &RawCache) -> CacheSettings {
    let default = CacheSettings::default();
    CacheSettings {
        namespaces: raw.namespaces.clone().unwrap_or(default.namespaces),
        resync: raw.resync.unwrap_or(default.resync),
        max_object_bytes: raw.max_object_bytes.map_or(default.max_object_bytes, size),
        pack: raw.pack.unwrap_or(default.pack),
        pack_kinds: raw
            .kinds
            .iter()
            .flatten()
            .filter_map(|(kind, raw)| Some((kind.clone(), raw.pack?)))
            .collect(),
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
        cross_namespace: raw.cross_namespace.clone().unwrap_or_default(),
        dns_suffixes: raw.dns_suffixes.clone().unwrap_or_default(),
        resources: raw.resources.clone().unwrap_or_else(|| DEFAULT_RESOURCES.map(str::to_owned).into()),
        allow_loopback: raw.allow_loopback.unwrap_or(false),
        denied: raw.denied.clone().unwrap_or_default(),
        denied_ports: raw.denied_ports.clone().unwrap_or_default(),
        min_period: raw.min_period.unwrap_or(DEFAULT_MIN_PERIOD),
        max_per_second: raw.max_per_second.unwrap_or(DEFAULT_PROBES_PER_SECOND),
        max_per_second_per_namespace: raw
            .max_per_second_per_namespace
            .unwrap_or(DEFAULT_PROBES_PER_SECOND_PER_NAMESPACE),
        max_per_second_per_address: raw
            .max_per_second_per_address
            .unwrap_or(DEFAULT_PROBES_PER_SECOND_PER_ADDRESS),
        max_targets_per_namespace: raw.max_targets_per_namespace.unwrap_or(DEFAULT_TARGETS_PER_NAMESPACE),
    }
}

fn controllers(raw: &BTreeMap<String, RawController>, problems: &Problems) -> Controllers {
    let (mut named, mut every) = (raw.clone(), ControllerSettings::default());
    if let Some(star) = named.remove(EVERY_CONTROLLER) {
        check_rate(EVERY_CONTROLLER, &star, &every, problems);
        star.put_over(&mut every, &ControllerSettings::default());
    }
    for (name, written) in &named {
        check_rate(name, written, &every, problems);
    }
    Controllers { every, named }
}

/// Refuses half of a rate whose other half nobody gives. Code might, but the file must be right without it.
fn check_rate(name: &str, written: &RawController, below: &ControllerSettings, problems: &Problems) {
    let path = format!("{}.queue.retryRate", controller_path(name));
    let Some(RawRate::Limit(limit)) = &written.queue.retry_rate else { return };
    if limit.over(&below.queue.retry.rates, &[]).is_some() || problems.touches(&path) {
        return;
    }
    let missing = match (limit.per_second, limit.burst) {
        (None, None) => "neither perSecond nor burst",
        (None, _) => "no perSecond",
        _ => "no burst",
    };
    problems.about(&path, format!("has {missing}; expected {{perSecond: 50, burst: 200}} or null"));
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
        && resolved.inspect.token_file.is_none()
        && !problems.touches("inspect.tokenFile")
    {
        let message = format!(
            "{address} can be reached from outside; expected a loopback address such as 127.0.0.1:{} \
             (use kubectl port-forward), or a token that readers have to show, in inspect.tokenFile",
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
    check_controller(EVERY_CONTROLLER, &controllers.every, problems);
    // What is wrong with "*" would be repeated by every controller that takes it over.
    if !problems.touches(&controller_path(EVERY_CONTROLLER)) {
        for name in controllers.named.keys() {
            check_controller(name, &controllers.settings(name, |_| {}), problems);
        }
    }
}

fn check_controller(name: &str, settings: &ControllerSettings, problems: &Problems) {
    let path = controller_path(name);
    for problem in settings.problems() {
        // The section of the queue it is in: a default in place of a refused value is not judged.
        let section = problem.field.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
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
pub(super) fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
