//! Tells what became of recorded events: all of it as a metric, what was lost also in the log.
//!
//! Each cause is logged once and then at most once a minute, with the number of those in between.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::time::Instant;

use crate::metrics::{Paced, Registry};

/// Why an occurrence will not be seen at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It has neither reason nor action, and the API wants both.
    Invalid,
    /// Its object caused too many events lately.
    Limited,
    /// As many series as are remembered wait to be written.
    Full,
    /// It came after the writer had ended.
    Stopped,
    /// The server said no for good.
    Refused,
    /// The server could not be reached, or was too busy, at every try.
    GaveUp,
    /// It was not written when the flush at the end had to end.
    Late,
}

/// `mainstay_events_total`, and the log of what was lost. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct EventCounts {
    family: Family<Labels, Counter>,
    /// One per [`Cause`]. Never locked while something is logged.
    told: Arc<Mutex<[Paced; Cause::ALL.len()]>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

// === impl Cause ===

impl Cause {
    const ALL: [Self; 7] =
        [Self::Invalid, Self::Limited, Self::Full, Self::Stopped, Self::Refused, Self::GaveUp, Self::Late];

    fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Limited => "limited",
            Self::Full => "full",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::GaveUp => "gave_up",
            Self::Late => "late",
        }
    }
}

// === impl EventCounts ===

impl EventCounts {
    pub(super) fn register(registry: &Registry) -> Self {
        let family = Family::default();
        let help = "Occurrences recorded as Events, by outcome: new, repeated; lost: invalid, limited, full, stopped, \
                    refused, gave_up, late";
        registry.register("mainstay_events", help, family.clone());
        Self { family, told: Arc::default() }
    }

    pub(super) fn taken(&self, outcome: &'static str) {
        self.family.get_or_create(&Labels { outcome }).inc();
    }

    /// Counts `lost` occurrences; `what` names the event, or the first of them, for people.
    pub(super) fn lost(&self, cause: Cause, lost: u64, what: &dyn std::fmt::Display) {
        if lost == 0 {
            return;
        }
        self.family.get_or_create(&Labels { outcome: cause.as_str() }).inc_by(lost);
        let line = self.told.lock()[cause as usize].add(lost, Instant::now());
        let cause = cause.as_str();
        if let Some(lost) = line {
            tracing::warn!(cause, lost, event = %what, "events are lost");
        } else {
            tracing::debug!(cause, lost, event = %what, "event lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_place_of_its_own() {
        for (place, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place, "{cause:?}");
        }
    }
}
