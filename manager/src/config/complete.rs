//! From what holds back to what a file would have to say for it, with nothing left out.
//!
//! The opposite of `resolve`. Every struct is taken apart by name, so a setting that is forgotten here does not compile.

use super::raw::{
    RawCache, RawController, RawHealth, RawInspect, RawKind, RawLeaderElection, RawLimit, RawLogging,
    RawManager, RawMetrics, RawProbePolicy, RawQueue, RawRate, RawRetry, RawShutdown, RawWaitDeployment,
};
use super::{
    Controllers, EVERY_CONTROLLER, Health, Inspect, LeaderElection, Logging, ManagerConfiguration, Metrics,
    ProbePolicy, Shutdown, WaitDeploymentSettings,
};
use crate::cache::CacheSettings;
use crate::controller::ControllerSettings;
use crate::queue::{Delay, QueueSettings, RetryPolicy};

impl From<&ManagerConfiguration> for RawManager {
    /// `"*"` is complete. A named controller has what the file says of it, and no more.
    fn from(configuration: &ManagerConfiguration) -> Self {
        let ManagerConfiguration {
            leader_election,
            health: Health { bind_address: health },
            metrics,
            inspect,
            cache,
            shutdown: Shutdown { grace_period },
            logging: Logging { format, level },
            probe_policy,
            wait_deployment: WaitDeploymentSettings { not_passed_on },
            controllers: Controllers { every, named },
        } = configuration;
        let Metrics { bind_address, auth, tls_dir } = metrics;
        let metrics = RawMetrics {
            bind_address: Some(*bind_address),
            auth: Some(*auth),
            tls_dir: Some(tls_dir.clone().unwrap_or_default()),
        };
        let Inspect { bind_address, token_file } = inspect;
        let inspect = RawInspect {
            bind_address: Some(*bind_address),
            token_file: Some(token_file.clone().unwrap_or_default()),
        };
        let mut controllers = named.clone();
        controllers.insert(EVERY_CONTROLLER.to_owned(), every.into());
        Self {
            leader_election: leader_election.into(),
            health: RawHealth { bind_address: Some(*health) },
            metrics,
            inspect,
            cache: cache.into(),
            shutdown: RawShutdown { grace_period: Some(*grace_period) },
            logging: RawLogging { format: Some(*format), level: Some(level.clone()) },
            probe_policy: probe_policy.into(),
            wait_deployment: RawWaitDeployment { not_passed_on: Some(not_passed_on.clone()) },
            controllers,
        }
    }
}

impl From<&LeaderElection> for RawLeaderElection {
    fn from(election: &LeaderElection) -> Self {
        let LeaderElection {
            enabled,
            lease_name,
            namespace,
            lease_duration,
            renew_deadline,
            retry_period,
            on_lost,
        } = election;
        Self {
            enabled: Some(*enabled),
            lease_name: Some(lease_name.clone()),
            namespace: Some(namespace.clone()),
            lease_duration: Some(*lease_duration),
            renew_deadline: Some(*renew_deadline),
            retry_period: Some(*retry_period),
            on_lost: Some(*on_lost),
        }
    }
}

impl From<&CacheSettings> for RawCache {
    fn from(cache: &CacheSettings) -> Self {
        let CacheSettings { namespaces, resync, max_object_bytes, pack, pack_kinds } = cache;
        let kind = |(kind, pack): (&String, &_)| (kind.clone(), RawKind { pack: Some(*pack) });
        Self {
            namespaces: Some(namespaces.clone()),
            resync: Some(*resync),
            max_object_bytes: Some(u64::try_from(*max_object_bytes).unwrap_or(u64::MAX)),
            pack: Some(*pack),
            kinds: Some(pack_kinds.iter().map(kind).collect()),
        }
    }
}

impl From<&ProbePolicy> for RawProbePolicy {
    fn from(policy: &ProbePolicy) -> Self {
        let ProbePolicy {
            mode,
            allow,
            cross_namespace,
            dns_suffixes,
            resources,
            allow_loopback,
            denied,
            denied_ports,
            min_period,
            max_per_second,
            max_per_second_per_namespace,
            max_per_second_per_address,
            max_targets_per_namespace,
        } = policy;
        Self {
            mode: Some(*mode),
            allow: Some(allow.clone()),
            cross_namespace: Some(cross_namespace.clone()),
            dns_suffixes: Some(dns_suffixes.clone()),
            resources: Some(resources.clone()),
            allow_loopback: Some(*allow_loopback),
            denied: Some(denied.clone()),
            denied_ports: Some(denied_ports.clone()),
            min_period: Some(*min_period),
            max_per_second: Some(*max_per_second),
            max_per_second_per_namespace: Some(*max_per_second_per_namespace),
            max_per_second_per_address: Some(*max_per_second_per_address),
            max_targets_per_namespace: Some(*max_targets_per_namespace),
        }
    }
}

impl From<&ControllerSettings> for RawController {
    /// What the file has no words for, several delays or rates, is left out; only code can ask for it.
    fn from(settings: &ControllerSettings) -> Self {
        let ControllerSettings { workers, reconcile_timeout, queue } = settings;
        let QueueSettings { retry, retry_share, max_wait, max_depth } = queue;
        let RetryPolicy { delays, rates, jitter_percent, max_attempts } = retry;
        let mut retry = RawRetry {
            jitter: Some(*jitter_percent),
            max_attempts: Some(*max_attempts),
            ..RawRetry::default()
        };
        if let [Delay::Exponential { base, factor, max }] = **delays {
            (retry.base_delay, retry.factor, retry.max_delay) = (Some(base), Some(factor), Some(max));
        }
        let retry_rate = match &**rates {
            [] => Some(RawRate::Off),
            [rate] => {
                Some(RawRate::Limit(RawLimit { per_second: Some(rate.per_second), burst: Some(rate.burst) }))
            }
            _ => None,
        };
        Self {
            workers: Some(count(*workers)),
            reconcile_timeout: Some(*reconcile_timeout),
            queue: RawQueue {
                retry,
                retry_share: Some(*retry_share),
                retry_rate,
                max_wait: Some(*max_wait),
                max_depth: Some(count(*max_depth)),
            },
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
