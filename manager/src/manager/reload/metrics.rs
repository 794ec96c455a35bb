//! Metrics of configuration changes.

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::Registry;

type Labels = [(&'static str, &'static str); 1];

/// The metrics about the configuration of one manager and its reloads. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ReloadMetrics {
    successful: Gauge,
    reloads: Family<Labels, Counter>,
    applied_at: Gauge,
    restart_needed: Gauge,
}

/// The result of a reload of the changed configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied,
    /// The configuration file has the same values as before.
    Unchanged,
    Refused,
}

// === impl ReloadMetrics ===

impl ReloadMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let gauge = |name: &str, help: &str| {
            registry.family(&format!("mainstay_config_{name}"), help, Gauge::default())
        };
        let successful = "Whether the present configuration file was accepted: 0 if it was refused, and the \
                          former configuration stays in force";
        let applied_at = "Time at which a configuration was last accepted, in seconds since 1970";
        let restart_needed = "Keys of the configuration file whose values need a restart";
        let reloads = "Changes of the configuration file, by result";
        let metrics = Self {
            successful: gauge("last_reload_successful", successful),
            reloads: registry.family("mainstay_config_reloads", reloads, Family::default()),
            applied_at: gauge("last_applied_timestamp_seconds", applied_at),
            restart_needed: gauge("restart_needed", restart_needed),
        };
        for outcome in [Outcome::Applied, Outcome::Unchanged, Outcome::Refused] {
            drop(metrics.reloads.get_or_create(&outcome.labels()));
        }
        metrics
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.reloads.get_or_create(&outcome.labels()).inc();
    }

    pub(super) fn accepted(&self, restart_needed: usize, at: Timestamp) {
        self.successful.set(1);
        self.applied_at.set(at.as_second());
        self.restart_needed.set(i64::try_from(restart_needed).unwrap_or(i64::MAX));
    }

    pub(super) fn refused(&self) {
        self.successful.set(0);
    }
}

// === impl Outcome ===

impl Outcome {
    fn labels(self) -> Labels {
        let outcome = match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        };
        [("result", outcome)]
    }
}
