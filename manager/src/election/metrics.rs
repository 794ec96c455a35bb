//! What an elector counts. Names and labels are client-go's where it has one.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::Registry;

type Labels = [(&'static str, String); 1];

/// The families of one elector, already at its labels.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    pub(super) master: Gauge,
    /// Renewals that had to look first, because the Lease was not as last seen.
    pub(super) slow_path: Counter,
    /// Terms of this replica.
    pub(super) terms: Counter,
    /// Terms of this replica that ended by a loss.
    pub(super) losses: Counter,
    /// Requests of a leader that did not renew.
    pub(super) failures: Counter,
    renew_seconds: Histogram,
}

// === impl Metrics ===

impl Metrics {
    pub(super) fn register(registry: &Registry, lease_name: &str) -> Self {
        let labels: Labels = [("name", lease_name.to_owned())];
        let gauge = Family::<Labels, Gauge>::default();
        let counter = |name: &str, help: &str| {
            let family = Family::<Labels, Counter>::default();
            registry.register(name, help, family.clone());
            family.get_or_create_owned(&labels)
        };
        registry.register(
            "leader_election_master_status",
            "Whether this replica leads: 0 is a standby, 1 the leader. 'name' is the name of the Lease",
            gauge.clone(),
        );
        let slow_path = counter(
            "leader_election_slowpath",
            "Renewals that had to read the Lease first. 'name' is the name of the Lease",
        );
        let terms = counter("mainstay_election_transitions", "How often this replica became the leader");
        let losses =
            counter("mainstay_election_losses", "How often this replica lost the Lease while leading");
        let failures = counter("mainstay_election_renew_failures", "Tries to renew that did not renew");
        let family = Family::<Labels, Histogram>::new_with_constructor(|| {
            // 1 ms to 8 s: from a round trip in one rack to the deadline of a slow configuration.
            Histogram::new([
                0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 4.0, 8.0,
            ])
        });
        registry.register(
            "mainstay_election_renew_seconds",
            "Time from sending a renewal to its answer",
            family.clone(),
        );
        Self {
            master: gauge.get_or_create_owned(&labels),
            slow_path,
            terms,
            losses,
            failures,
            renew_seconds: family.get_or_create_owned(&labels),
        }
    }

    pub(super) fn renewed_in(&self, took: Duration) {
        self.renew_seconds.observe(took.as_secs_f64());
    }
}
