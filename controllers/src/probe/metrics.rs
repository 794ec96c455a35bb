//! What the probe engine tells about itself. Labels are bounded: never an address, never a namespace.

use std::time::Duration;

use mainstay::metrics::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::schedule::{Schedule, Start};
use super::{Held, ProbeResult, Target};
use crate::reasons::denial;

/// From a connection inside the node to the longest timeout of a dependency, in seconds.
const DURATION_BUCKETS: [f64; 12] = [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 60.0];

/// From the precision of the timer to a period that a limit has made useless, in seconds.
const LAG_BUCKETS: [f64; 8] = [0.001, 0.005, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0];

/// The families of one engine.
#[derive(Clone, Debug)]
pub(super) struct ProbeMetrics {
    probes: Family<ProbeLabels, Counter>,
    duration: Family<KindLabels, Histogram, fn() -> Histogram>,
    lag: Histogram,
    delayed: Family<ReasonLabels, Counter>,
    denied: Family<ReasonLabels, Counter>,
    in_flight: Gauge,
    targets: Gauge,
    shaken: Gauge,
    panics: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    r#type: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

// === impl ProbeMetrics ===

impl ProbeMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let metrics = Self {
            probes: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            lag: Histogram::new(LAG_BUCKETS),
            delayed: Family::default(),
            denied: Family::default(),
            in_flight: Gauge::default(),
            targets: Gauge::default(),
            shaken: Gauge::default(),
            panics: Counter::default(),
        };
        // The reasons are known: a counter that appears with its first event hides that event from `increase()`.
        for held in Held::ALL {
            drop(metrics.delayed.get_or_create(&ReasonLabels { reason: held.as_str() }));
        }
        for reason in denial::ALL {
            drop(metrics.denied.get_or_create(&ReasonLabels { reason }));
        }
        registry.register(
            "mainstay_waitdeployment_probe",
            "Probes by kind and result",
            metrics.probes.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_duration_seconds",
            "Time from the start of a probe to its result",
            metrics.duration.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_lag_seconds",
            "Time from the moment at which a probe was due to its start",
            metrics.lag.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_delayed",
            "Probes begun later than they were due, by the limit that kept them",
            metrics.delayed.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_inflight",
            "Probes in flight",
            metrics.in_flight.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_targets",
            "Targets that something waits for, each probed once per period",
            metrics.targets.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_denied",
            "Probes that the policy forbade, by the rule that did",
            metrics.denied.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_shaken",
            "1 while most of what answered is silent at once, which is taken for a fault of the manager's own network",
            metrics.shaken.clone(),
        );
        registry.register(
            "mainstay_waitdeployment_probe_panics",
            "Probes that panicked; each is a fault of the program, and is tried again",
            metrics.panics.clone(),
        );
        metrics
    }

    /// Counts a probe that ended by itself.
    pub(super) fn count(&self, target: &Target, result: &ProbeResult, took: Duration) {
        let result = match result {
            ProbeResult::Connected | ProbeResult::Answered => "ready",
            ProbeResult::NotReady { .. } => "not_ready",
            ProbeResult::Denied { rule, .. } => {
                self.denied.get_or_create(&ReasonLabels { reason: rule }).inc();
                "denied"
            }
        };
        self.probes.get_or_create(&ProbeLabels { r#type: target.check().kind(), result }).inc();
        let kind = KindLabels { r#type: target.check().kind() };
        self.duration.get_or_create(&kind).observe(took.as_secs_f64());
    }

    /// Counts a probe that begins.
    pub(super) fn begin(&self, start: &Start) {
        self.lag.observe(start.lag.as_secs_f64());
        if let Some(held) = start.held {
            self.delayed.get_or_create(&ReasonLabels { reason: held.as_str() }).inc();
        }
    }

    /// Notes whether losses have a common cause on our side.
    pub(super) fn shaken(&self, shaken: bool) {
        self.shaken.set(shaken.into());
    }

    /// Counts a probe that ended by a panic.
    pub(super) fn panicked(&self) {
        self.panics.inc();
    }

    /// Takes from the schedule what nobody tells.
    pub(super) fn observe(&self, schedule: &mut Schedule) {
        let put_back = ReasonLabels { reason: denial::MAX_TARGETS };
        self.denied.get_or_create(&put_back).inc_by(schedule.take_put_back());
        self.in_flight.set(i64::try_from(schedule.in_flight()).unwrap_or(i64::MAX));
        self.targets.set(i64::try_from(schedule.targets()).unwrap_or(i64::MAX));
    }
}
