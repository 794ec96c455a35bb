//! Flags on the command line, which override the file.

use std::collections::HashMap;

use super::{BindAddress, LogFilter, LogFormat, ManagerConfiguration};

/// The path of each key that a flag overrides, with the name of the flag.
const FLAGS: [(&str, &str); 7] = [
    ("leaderElection.enabled", "--leader-elect"),
    ("leaderElection.namespace", "--leader-election-namespace"),
    ("health.bindAddress", "--health-probe-bind-address"),
    ("metrics.bindAddress", "--metrics-bind-address"),
    ("inspect.bindAddress", "--inspect-bind-address"),
    ("logging.level", "--log-level"),
    ("logging.format", "--log-format"),
];

/// Values of command-line flags, each in place of the configuration file's value; `None` keeps the file's
/// value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Value of `--leader-elect`, in place of `leaderElection.enabled`; `None` if the flag is absent.
    pub leader_elect: Option<bool>,
    /// Value of `--leader-election-namespace`, in place of `leaderElection.namespace`; `None` if the flag is
    /// absent.
    pub leader_election_namespace: Option<String>,
    /// Value of `--health-probe-bind-address`, in place of `health.bindAddress`; `None` if the flag is
    /// absent.
    pub health_bind_address: Option<BindAddress>,
    /// Value of `--metrics-bind-address`, in place of `metrics.bindAddress`; `None` if the flag is absent.
    pub metrics_bind_address: Option<BindAddress>,
    /// Value of `--inspect-bind-address`, in place of `inspect.bindAddress`; `None` if the flag is absent.
    pub inspect_bind_address: Option<BindAddress>,
    /// Value of `--log-level`, in place of `logging.level`; `None` if the flag is absent.
    pub log_level: Option<LogFilter>,
    /// Value of `--log-format`, in place of `logging.format`; `None` if the flag is absent.
    pub log_format: Option<LogFormat>,
}

// === impl Overrides ===

impl Overrides {
    /// Replaces values of a configuration by those of the given flags. Returns the paths of the replaced
    /// values with the names of their flags.
    pub(super) fn apply_to(
        &self,
        configuration: &mut ManagerConfiguration,
    ) -> HashMap<&'static str, &'static str> {
        let ManagerConfiguration { leader_election, health, metrics, inspect, logging, .. } = configuration;
        // In the order of `FLAGS`.
        let set = [
            put(self.leader_elect.as_ref(), &mut leader_election.enabled),
            put(self.leader_election_namespace.as_ref(), &mut leader_election.namespace),
            put(self.health_bind_address.as_ref(), &mut health.bind_address),
            put(self.metrics_bind_address.as_ref(), &mut metrics.bind_address),
            put(self.inspect_bind_address.as_ref(), &mut inspect.bind_address),
            put(self.log_level.as_ref(), &mut logging.level),
            put(self.log_format.as_ref(), &mut logging.format),
        ];
        FLAGS.into_iter().zip(set).filter_map(|(flag, set)| set.then_some(flag)).collect()
    }
}

/// Replaces a value by that of a flag if the flag is given. Returns whether it is.
fn put<T: Clone>(flag: Option<&T>, value: &mut T) -> bool {
    if let Some(flag) = flag {
        value.clone_from(flag);
    }
    flag.is_some()
}
