//! The metric of recorded Events, and the log lines about lost ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::Instant;

use crate::metrics::Registry;
use crate::util::LogEvery;

/// `mainstay_events_total`, and one log line per cause and minute. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct EventCounts {
    family: Family<[(&'static str, &'static str); 1], Counter>,
    /// Filters of the log lines, by outcome. Not locked while a line is written.
    logged: Arc<Mutex<HashMap<&'static str, LogEvery>>>,
}

/// Values of the metric's label `outcome` for lost occurrences.
pub(super) mod cause {
    /// The occurrence has neither a reason nor an action, and the API requires both.
    pub(crate) const INVALID: &str = "invalid";
    /// The table is full, and the occurrence's namespace has its fair share of it or more.
    pub(crate) const FULL: &str = "full";
    /// The occurrence was recorded after the writer had ended.
    pub(crate) const STOPPED: &str = "stopped";
    /// The API server refused the Event; a retry would not help.
    pub(crate) const REFUSED: &str = "refused";
    /// Every attempt to write the Event failed.
    pub(crate) const GAVE_UP: &str = "gave_up";
    /// The flush at shutdown ended before the Event was written.
    pub(crate) const LATE: &str = "late";
}

// === impl EventCounts ===

impl EventCounts {
    pub(super) fn register(registry: &Registry) -> Self {
        let help = "Occurrences recorded as Events, by outcome: new, repeated; lost: invalid, full, stopped, \
                    refused, gave_up, late";
        Self { family: registry.family("mainstay_events", help, Family::default()), logged: Arc::default() }
    }

    /// Counts an occurrence that was added to the table.
    pub(super) fn count(&self, outcome: &'static str) {
        self.family.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts `lost` occurrences; `event` describes the first of them.
    pub(super) fn count_lost(&self, cause: &'static str, lost: u64, event: &dyn fmt::Display) {
        if lost == 0 {
            return;
        }
        self.family.get_or_create(&[("outcome", cause)]).inc_by(lost);
        let line = self.logged.lock().entry(cause).or_default().add(lost, Instant::now());
        if let Some(lost) = line {
            tracing::warn!(cause, lost, %event, "events are lost");
        } else {
            tracing::debug!(cause, lost, %event, "event lost");
        }
    }
}
