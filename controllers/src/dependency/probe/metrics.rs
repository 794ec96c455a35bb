//! Metrics of the probe engine. Labels are bounded: never an address, never a namespace.

use std::time::Duration;

use mainstay::metrics::Registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{ProbeResult, StartLimit, Target};
use crate::reasons::denial;

/// Upper bounds of the histogram of probe durations in seconds: from a connection inside the node to the
/// longest timeout of a dependency.
const DURATION_BUCKETS: [f64; 12] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 60.0];

/// Upper bounds of the histogram of delays in seconds with which due probes start: from the precision of the
/// timer to a delay that makes a period useless.
const LAG_BUCKETS: [f64; 8] = [0.001, 0.005, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0];

/// The metric families of one probe engine.
#[derive(Clone, Debug)]
pub(super) struct ProbeMetrics {
    probes: Family<[Label; 2], Counter>,
    duration: Family<[Label; 1], Histogram, fn() -> Histogram>,
    lag: Histogram,
    delayed: Family<[Label; 1], Counter>,
    denied: Family<[Label; 1], Counter>,
    pub(super) in_flight: Gauge,
    targets: Gauge,
    /// Metric that is 1 while the outage guard has an alarm, otherwise 0.
    pub(super) outage: Gauge,
    pub(super) panics: Counter,
}

/// The name and the value of one metric label.
type Label = (&'static str, &'static str);

// === impl ProbeMetrics ===

impl ProbeMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let metrics = Self {
            probes: registry.family(
                "mainstay_waitdeployment_probe",
                "Probes by kind and result",
                Family::default(),
            ),
            duration: registry.family(
                "mainstay_waitdeployment_probe_duration_seconds",
                "Time from the start of a probe to its result",
                Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            ),
            lag: registry.family(
                "mainstay_waitdeployment_probe_lag_seconds",
                "Time from the moment at which a probe was due to its start",
                Histogram::new(LAG_BUCKETS),
            ),
            delayed: registry.family(
                "mainstay_waitdeployment_probe_delayed",
                "Probes started later than they were due, by the limit that delayed them",
                Family::default(),
            ),
            in_flight: registry.family(
                "mainstay_waitdeployment_probe_inflight",
                "Probes in flight",
                Gauge::default(),
            ),
            targets: registry.family(
                "mainstay_waitdeployment_probe_targets",
                "Targets that objects wait for, each probed once per period",
                Gauge::default(),
            ),
            denied: registry.family(
                "mainstay_waitdeployment_probe_denied",
                "Probes denied by the policy, by rule",
                Family::default(),
            ),
            outage: registry.family(
                "mainstay_waitdeployment_probe_outage_suspected",
                "1 while most targets that answered are silent, so that a fault of the manager is assumed",
                Gauge::default(),
            ),
            panics: registry.family(
                "mainstay_waitdeployment_probe_panics",
                "Probes that panicked; each is a bug, and the probe is retried",
                Counter::default(),
            ),
        };
        // All series exist from the start: a counter that appears with its first event hides that event from
        // `increase()`.
        for limit in StartLimit::ALL {
            drop(metrics.delayed.get_or_create(&[("reason", limit.as_str())]));
        }
        for reason in denial::ALL {
            drop(metrics.denied.get_or_create(&[("reason", reason)]));
        }
        metrics
    }

    /// Counts a probe that has ended, by kind of check and result, and records its duration.
    pub(super) fn count(&self, target: &Target, result: &ProbeResult, took: Duration) {
        let result = match result {
            ProbeResult::Connected | ProbeResult::Answered => "ready",
            ProbeResult::NotReady { .. } => "not_ready",
            ProbeResult::Denied { rule, .. } => {
                self.deny(rule);
                "denied"
            }
        };
        let kind = ("type", target.check().kind());
        self.probes.get_or_create(&[kind, ("result", result)]).inc();
        self.duration.get_or_create(&[kind]).observe(took.as_secs_f64());
    }

    /// Records the lag of a probe that starts, from the time at which it was due, and counts the limit that
    /// delayed it.
    pub(super) fn begin(&self, lag: Duration, delayed_by: Option<StartLimit>) {
        self.lag.observe(lag.as_secs_f64());
        if let Some(limit) = delayed_by {
            self.delayed.get_or_create(&[("reason", limit.as_str())]).inc();
        }
    }

    /// Counts a probe that a rule of the policy denied.
    pub(super) fn deny(&self, rule: &'static str) {
        self.denied.get_or_create(&[("reason", rule)]).inc();
    }

    pub(super) fn count_targets(&self, targets: usize) {
        self.targets.set(i64::try_from(targets).unwrap_or(i64::MAX));
    }
}
