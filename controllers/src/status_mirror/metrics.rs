//! What the mirror tells about itself: how late its statuses are, and what its runs came to.

use std::time::Duration;

use mainstay::metrics::Registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// From one request to an API server that refuses for minutes, in seconds.
const LAG_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// The families of one mirror.
#[derive(Clone, Debug)]
pub(super) struct MirrorMetrics {
    lag: Histogram,
    writes: Family<[(&'static str, &'static str); 1], Counter>,
}

/// What a run came to that was not put off.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteResult {
    /// The status was written.
    Applied,
    /// It showed everything already.
    Skipped,
    /// Somebody else had written meanwhile.
    Conflict,
    /// The write failed for another reason.
    Error,
}

// === impl MirrorMetrics ===

impl MirrorMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let metrics = Self {
            lag: registry.family(
                "mainstay_waitdeployment_mirror_lag_seconds",
                "Time from the first look that found a status out of date to its being written",
                Histogram::new(LAG_BUCKETS),
            ),
            writes: registry.family(
                "mainstay_waitdeployment_mirror_writes",
                "Looks at statuses that were due, by what became of the write",
                Family::default(),
            ),
        };
        for result in [WriteResult::Applied, WriteResult::Skipped, WriteResult::Conflict, WriteResult::Error]
        {
            drop(metrics.writes.get_or_create(&[("result", result.as_str())]));
        }
        metrics
    }

    pub(super) fn count(&self, result: WriteResult) {
        self.writes.get_or_create(&[("result", result.as_str())]).inc();
    }

    /// Counts a status that was written, out of date for so long.
    pub(super) fn applied(&self, lag: Duration) {
        self.count(WriteResult::Applied);
        self.lag.observe(lag.as_secs_f64());
    }
}

// === impl WriteResult ===

impl WriteResult {
    fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Skipped => "skipped",
            Self::Conflict => "conflict",
            Self::Error => "error",
        }
    }
}
