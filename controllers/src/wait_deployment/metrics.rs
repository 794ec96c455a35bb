//! What the gates tell about themselves. Labels are bounded: never a name, never a namespace.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay::key::NamespacedName;
use mainstay::metrics::Registry;
use mainstay_api::Condition;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;

use super::gate::{Change, Decision, OpenedBy, Opening};
use crate::reasons::{self, condition};

/// From a Service that is ready already to a restore that takes a day, in seconds.
const WAIT_BUCKETS: [f64; 11] =
    [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0];

/// The families of one controller.
#[derive(Clone, Debug)]
pub struct GateMetrics {
    gates: Family<Label, Gauge>,
    wait: Histogram,
    opened: Family<Label, Counter>,
    expired: Counter,
    /// In which state each object was last seen. The gauges change under its lock, so that they are its sums.
    states: Arc<Mutex<HashMap<NamespacedName, &'static str>>>,
    /// Whether this replica leads.
    leading: watch::Receiver<bool>,
}

/// The one label of a family, with its value.
type Label = [(&'static str, &'static str); 1];

// === impl GateMetrics ===

impl GateMetrics {
    /// Registers the families. Gates are counted while `leading`.
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
                "Gates that opened, by what opened them",
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

    /// Notes the state of one object.
    pub(super) fn observe(&self, request: &NamespacedName, state: &'static str) {
        let mut states = self.states.lock();
        // A term is over before its last reconciles are: what they see after `clear` would stay.
        if !*self.leading.borrow() {
            return;
        }
        self.gates.get_or_create(&[("state", state)]).inc();
        self.leave(states.insert(request.clone(), state));
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, request: &NamespacedName) {
        let mut states = self.states.lock();
        self.leave(states.remove(request));
    }

    /// Forgets all, once this replica leads no more: another one sees to them from now on, and a sum over the replicas
    /// counts each once.
    pub(crate) fn clear(&self) {
        let mut states = self.states.lock();
        // The next term has begun already: what its reconciles have seen stays.
        if *self.leading.borrow() {
            return;
        }
        states.clear();
        for state in Decision::STATES {
            self.gates.get_or_create(&[("state", state)]).set(0);
        }
    }

    /// Counts what has happened to one gate.
    pub(super) fn count(&self, change: &Change<'_>) {
        let Change { object, after, .. } = *change;
        let opening = change.opening();
        if let Some(Opening { by, waited }) = opening {
            self.opened.get_or_create(&[("outcome", outcome_of(by))]).inc();
            self.wait.observe(waited.as_secs_f64());
        }
        let proceeds = opening.is_some_and(|opening| opening.by == OpenedBy::Deadline);
        let is_late = |ready: Option<&Condition>| {
            ready.is_some_and(|ready| ready.reason.as_deref() == Some(reasons::DEADLINE_EXCEEDED))
        };
        let becomes_late =
            is_late(after.condition(condition::READY)) && !is_late(object.condition(condition::READY));
        if becomes_late || proceeds {
            self.expired.inc();
        }
    }

    fn leave(&self, state: Option<&'static str>) {
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
