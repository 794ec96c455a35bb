//! Metrics of the mirror: the delay of its writes, and the results of its runs.

use std::time::Duration;

use mainstay::metrics::Registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Upper bounds of the histogram of the delay of status writes in seconds: from one request to an API server
/// that refuses writes for minutes.
const LAG_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// Label value of a run of the status mirror: the status was written.
const APPLIED: &str = "applied";
/// Label value of a run of the status mirror: the status was up to date, so it was not written.
pub(super) const SKIPPED: &str = "skipped";
/// Label value of a run of the status mirror: the write failed, because another writer had changed the
/// object.
pub(super) const CONFLICT: &str = "conflict";
/// Label value of a run of the status mirror: the write failed for another reason than a conflict.
pub(super) const ERROR: &str = "error";

/// The metric families of the status mirror.
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

    /// Counts a run of the status mirror by its result, except runs that the pause between writes delays.
    pub(super) fn count(&self, result: &'static str) {
        self.writes.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a written status, and records the time `lag` for which it was out of date.
    pub(super) fn applied(&self, lag: Duration) {
        self.count(APPLIED);
        self.lag.observe(lag.as_secs_f64());
    }
}
