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

/// Counts recorded Events in the metric `mainstay_events_total`, and logs lost ones at most once per cause
/// and minute. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct EventCounts {
    family: Family<[(&'static str, &'static str); 1], Counter>,
    /// Filters that limit the log lines about lost Events, by cause. Not locked while a line is written.
    logged: Arc<Mutex<HashMap<&'static str, LogEvery>>>,
}

/// Values of the metric label `outcome` for lost occurrences of Events.
pub(super) mod cause {
    /// Cause of a lost Event: it has neither a reason nor an action, and the API requires both.
    pub(crate) const INVALID: &str = "invalid";
    /// Cause of a lost Event: the table of series is full, and the Event's namespace has its fair share of it
    /// or more.
    pub(crate) const FULL: &str = "full";
    /// Cause of a lost Event: it was recorded after the Event writer had stopped accepting Events.
    pub(crate) const STOPPED: &str = "stopped";
    /// Cause of a lost Event: the API server refused it, and a retry would not help.
    pub(crate) const REFUSED: &str = "refused";
    /// Cause of a lost Event: every attempt to write it failed.
    pub(crate) const GAVE_UP: &str = "gave_up";
    /// Cause of a lost Event: the flush at shutdown ended before it was written.
    pub(crate) const LATE: &str = "late";
}

// === impl EventCounts ===

impl EventCounts {
    pub(super) fn register(registry: &Registry) -> Self {
        let help = "Occurrences recorded as Events, by outcome: new, repeated; lost: invalid, full, stopped, \
                    refused, gave_up, late";
        Self { family: registry.family("mainstay_events", help, Family::default()), logged: Arc::default() }
    }

    /// Counts an occurrence of an Event that was not lost; `outcome` is `new` or `repeated`.
    pub(super) fn count(&self, outcome: &'static str) {
        self.family.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts and logs `lost` occurrences of Events; `event` describes the first of them.
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
