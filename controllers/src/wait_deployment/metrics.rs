//! Metrics of the gates. No label is the name or namespace of an object, so the number of series is bounded.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay::key::NamespacedName;
use mainstay::metrics::Registry;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;

use super::gate::{Decision, OpenedBy, Opening, StatusChange};
use crate::conditions::has_reason;
use crate::reasons::{self, condition};

/// Upper bounds of the histogram of the time for which gates were closed, in seconds: from a Service that is
/// ready already to a restore that takes a day.
const WAIT_BUCKETS: [f64; 11] =
    [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0];

/// The metric families about the gates of WaitDeployments.
#[derive(Clone, Debug)]
pub struct GateMetrics {
    gates: Family<Label, Gauge>,
    wait: Histogram,
    opened: Family<Label, Counter>,
    expired: Counter,
    /// The last state of the gate of each WaitDeployment. The gauges change only under this lock, so they
    /// equal the sums over the map.
    states: Arc<Mutex<HashMap<NamespacedName, &'static str>>>,
    /// Whether this replica leads; gates are counted only while it does.
    leading: watch::Receiver<bool>,
}

/// The only label of a metric family, with its value.
type Label = [(&'static str, &'static str); 1];

// === impl GateMetrics ===

impl GateMetrics {
    /// Registers the metric families about gates. Gates are counted only while `leading` is true.
    pub fn register(registry: &Registry, leading: watch::Receiver<bool>) -> Self {
        let metrics = Self {
            gates: registry.family(
                "mainstay_waitdeployment_gates",
                "WaitDeployments by the state of their gate, as this replica last saw it",
                Family::default(),
            ),
            wait: registry.family(
                "mainstay_waitdeployment_gate_wait_seconds",
                "Time a gate was closed before it opened",
                Histogram::new(WAIT_BUCKETS),
            ),
            opened: registry.family(
                "mainstay_waitdeployment_gate_opened",
                "Gates that opened, by cause",
                Family::default(),
            ),
            expired: registry.family(
                "mainstay_waitdeployment_gate_expired",
                "Gates whose deadline passed while they were closed",
                Counter::default(),
            ),
            states: Arc::default(),
            leading,
        };
        for state in Decision::STATES {
            metrics.gates.get_or_create(&[("state", state)]).set(0);
        }
        for by in [OpenedBy::Dependencies, OpenedBy::Deadline, OpenedBy::Spec] {
            drop(metrics.opened.get_or_create(&[("outcome", outcome_of(by))]));
        }
        metrics
    }

    /// Records the state of the gate of one WaitDeployment.
    pub(super) fn observe(&self, request: &NamespacedName, state: &'static str) {
        let mut states = self.states.lock();
        // The last runs of a term may end after `clear`, and their entries would stay.
        if !*self.leading.borrow() {
            return;
        }
        self.gates.get_or_create(&[("state", state)]).inc();
        self.decrement(states.insert(request.clone(), state));
    }

    /// Removes the gate of a WaitDeployment that is gone from the metrics.
    pub(super) fn forget(&self, request: &NamespacedName) {
        let mut states = self.states.lock();
        self.decrement(states.remove(request));
    }

    /// Removes all gates from the metrics once this replica leads no more: the new leader counts them, so a
    /// sum over the replicas counts each gate once.
    pub(crate) fn clear(&self) {
        let mut states = self.states.lock();
        // The next term has begun already, and its runs have recorded states.
        if *self.leading.borrow() {
            return;
        }
        states.clear();
        for state in Decision::STATES {
            self.gates.get_or_create(&[("state", state)]).set(0);
        }
    }

    /// Counts the opening of a gate and the expiry of its deadline, if the change of the status shows them.
    pub(super) fn count(&self, change: &StatusChange<'_>) {
        let StatusChange { object, after, .. } = *change;
        let opening = change.opening();
        if let Some(Opening { by, waited }) = opening {
            self.opened.get_or_create(&[("outcome", outcome_of(by))]).inc();
            self.wait.observe(waited.as_secs_f64());
        }
        let proceeds = opening.is_some_and(|opening| opening.by == OpenedBy::Deadline);
        let is_late = |ready| has_reason(ready, reasons::DEADLINE_EXCEEDED);
        let becomes_late =
            is_late(after.condition(condition::READY)) && !is_late(object.condition(condition::READY));
        if becomes_late || proceeds {
            self.expired.inc();
        }
    }

    fn decrement(&self, state: Option<&'static str>) {
        if let Some(state) = state {
            self.gates.get_or_create(&[("state", state)]).dec();
        }
    }
}

fn outcome_of(by: OpenedBy) -> &'static str {
    match by {
        OpenedBy::Dependencies => "ready",
        OpenedBy::Deadline => "deadline_proceed",
        OpenedBy::Spec => "spec",
    }
}

#[cfg(test)]
mod tests;
