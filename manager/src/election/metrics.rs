//! Metrics of an elector. Names and labels are client-go's where it has the same metric.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;

use crate::key::Fence;
use crate::metrics::Registry;

const FENCE: &str = "mainstay_election_fence_seconds";

type Labels = [(&'static str, String); 1];

/// The metrics of one elector, labelled with the name of its Lease.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    pub(super) master: Gauge,
    /// Number of renewals that had to get the Lease first, because the known version was stale.
    pub(super) slow_path: Counter,
    /// Number of terms of leadership of this replica.
    pub(super) terms: Counter,
    /// Number of terms of leadership that ended by a loss of the Lease.
    pub(super) losses: Counter,
    /// Number of a leader's writes of the Lease that failed to renew it.
    pub(super) failures: Counter,
    pub(super) renew_seconds: Histogram,
    pub(super) take_over_seconds: Histogram,
    pub(super) release_seconds: Histogram,
}

/// Collects the time for which the fence still allows writes. It is read at each scrape, since a stored gauge
/// would be as old as the last renewal.
#[derive(Debug)]
struct Timings {
    fence: Fence,
    labels: Labels,
}

// === impl Metrics ===

impl Metrics {
    pub(super) fn register(registry: &Registry, lease_name: &str, fence: &Fence) -> Self {
        let labels: Labels = [("name", lease_name.to_owned())];
        let counter = |name: &str, help: &str| {
            registry.family(name, help, Family::<Labels, Counter>::default()).get_or_create_owned(&labels)
        };
        let histogram = |name: &str, help: &str| {
            let family = Family::<Labels, Histogram>::new_with_constructor(|| {
                // 1 ms to 16 s: from a round trip within a rack to just above the default lease duration.
                Histogram::new([
                    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 4.0, 8.0,
                    16.0,
                ])
            });
            registry.family(name, help, family).get_or_create_owned(&labels)
        };
        let master = registry.family(
            "leader_election_master_status",
            "Whether this replica leads: 0 is a standby, 1 the leader. 'name' is the name of the Lease",
            Family::<Labels, Gauge>::default(),
        );
        registry.reserve([FENCE]);
        registry.register_collector(Box::new(Timings { fence: fence.clone(), labels: labels.clone() }));
        Self {
            master: master.get_or_create_owned(&labels),
            slow_path: counter(
                "leader_election_slowpath",
                "Renewals that had to read the Lease first. 'name' is the name of the Lease",
            ),
            terms: counter("mainstay_election_transitions", "How often this replica became the leader"),
            losses: counter(
                "mainstay_election_losses",
                "How often this replica lost the Lease while leading",
            ),
            failures: counter("mainstay_election_renew_failures", "Tries to renew that did not renew"),
            renew_seconds: histogram(
                "mainstay_election_renew_seconds",
                "Time from sending a renewal to its answer",
            ),
            take_over_seconds: histogram(
                "mainstay_election_take_over_seconds",
                "Time from when a released Lease was seen to when this replica led",
            ),
            release_seconds: histogram(
                "mainstay_election_release_seconds",
                "Time from when a term was to end to when the Lease was given up, its work included",
            ),
        }
    }
}

// === impl Timings ===

impl Collector for Timings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // The fence of an elector always has an end, so `None` does not occur.
        let left = self.fence.left().unwrap_or_default();
        let help =
            "For how long leader-only work may still write unless the Lease is renewed; 0 on a standby";
        let mut family = encoder.encode_descriptor(FENCE, help, None, MetricType::Gauge)?;
        ConstGauge::new(left.as_secs_f64()).encode(family.encode_family(&self.labels)?)
    }
}
