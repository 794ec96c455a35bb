//! Metrics of the mirror: the delay of its writes, and the results of its runs.

use std::time::Duration;

use mainstay::metrics::Registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// In seconds: from one request to an API server that refuses writes for minutes.
const LAG_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// The status was written.
const APPLIED: &str = "applied";
/// The status was up to date.
pub(super) const SKIPPED: &str = "skipped";
/// Another writer had changed the object meanwhile.
pub(super) const CONFLICT: &str = "conflict";
/// The write failed for another reason.
pub(super) const ERROR: &str = "error";

/// The metric families of the mirror.
#[derive(Clone, Debug)]
pub(super) struct MirrorMetrics {
    lag: Histogram,
    writes: Family<[(&'static str, &'static str); 1], Counter>,
}

// === impl MirrorMetrics ===

impl MirrorMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let metrics = Self {
            lag: registry.family(
                "mainstay_waitdeployment_mirror_lag_seconds",
                "Time from the first run that found a status out of date until it was written",
                Histogram::new(LAG_BUCKETS),
            ),
            writes: registry.family(
                "mainstay_waitdeployment_mirror_writes",
                "Runs for statuses that were due, by the result of the write",
                Family::default(),
            ),
        };
        for result in [APPLIED, SKIPPED, CONFLICT, ERROR] {
            drop(metrics.writes.get_or_create(&[("result", result)]));
        }
        metrics
    }

    /// Counts a run that was not delayed by the pause between writes, by its result.
    pub(super) fn count(&self, result: &'static str) {
        self.writes.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a written status that was out of date for `lag`.
    pub(super) fn applied(&self, lag: Duration) {
        self.count(APPLIED);
        self.lag.observe(lag.as_secs_f64());
    }
}
