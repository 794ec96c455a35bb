//! The state of a target and its next probe, for `mainstay why`.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay::key::NamespacedName;
use tokio::time::Instant;

use super::entry::{Entry, Wait};
use super::slots::Slots;
use super::{ProbeResult, Target, VerdictState};

/// Most other objects with the same target in one description.
pub const MAX_NAMED: usize = 10;

/// One target of an object at one moment. Times are relative to this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The check.
    pub target: Target,
    /// The verdict with the thresholds of the object.
    pub state: VerdictState,
    /// The result of the last probe, even one before the initial delay of the object is over.
    pub result: Option<ProbeResult>,
    /// How long all probes have had this result.
    pub unchanged_for: Option<Duration>,
    /// Successes in a row, the last probe included; 0 after a failure.
    pub successes: u32,
    /// Failures in a row, the last probe included; 0 after a success.
    pub failures: u32,
    /// Time since the start of the last probe.
    pub began: Option<Duration>,
    /// The duration of the last probe; `None` while it is in flight.
    pub took: Option<Duration>,
    /// The next probe.
    pub next: NextProbe,
    /// From the start of one probe to the start of the next, before jitter. Longer than the period of the
    /// object if the policy has a longer minimum, shorter if another object has a shorter period.
    pub period: Duration,
    /// The number of other objects that wait for the same target.
    pub others: usize,
    /// The first [`MAX_NAMED`] of these objects.
    pub named: BTreeSet<NamespacedName>,
}

/// When a target is probed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextProbe {
    /// A probe is in flight.
    InFlight,
    /// After this time.
    In(Duration),
    /// A probe is due, but delayed by a limit.
    Delayed(StartLimit),
    /// Never, while the namespace has more targets than `probePolicy.maxTargetsPerNamespace`.
    OverTargetLimit,
}

/// A limit that delays the start of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartLimit {
    /// No free slot, or none that a target of this class or namespace may hold.
    InFlight,
    /// `probePolicy.maxPerSecond`.
    Rate,
    /// `probePolicy.maxPerSecondPerNamespace`.
    NamespaceRate,
    /// `probePolicy.maxPerSecondPerAddress`.
    AddressRate,
}

// === impl Entry ===

impl Entry {
    /// Describes the target for `request`, which waits for it by `wait`.
    pub(super) fn describe(
        &self,
        request: &NamespacedName,
        wait: &Wait,
        min_period: Duration,
        slots: &Slots,
        now: Instant,
    ) -> Description {
        let delayed_by = |due| slots.delayed_by(&self.due_probe(due), now);
        let next = match self.due() {
            None if self.admitted => NextProbe::InFlight,
            None => NextProbe::OverTargetLimit,
            Some(due) => match Some(due).filter(|due| *due <= now).and_then(delayed_by) {
                Some(limit) => NextProbe::Delayed(limit),
                None => NextProbe::In(due.duration_since(now)),
            },
        };
        let mut others: Vec<&NamespacedName> = self.waits.keys().map(|(other, _)| other).collect();
        others.dedup();
        others.retain(|other| *other != request);
        Description {
            target: self.target.clone(),
            state: self.verdict(wait).state,
            result: self.result.clone(),
            unchanged_for: self.since.map(|since| now.duration_since(since)),
            successes: self.streak.successes(),
            failures: self.streak.failures(),
            began: self.started.map(|started| now.duration_since(started)),
            took: self.took,
            next,
            period: self.period(min_period),
            others: others.len(),
            named: others.into_iter().take(MAX_NAMED).cloned().collect(),
        }
    }
}

// === impl StartLimit ===

impl StartLimit {
    pub(super) const ALL: [Self; 4] = [Self::InFlight, Self::Rate, Self::NamespaceRate, Self::AddressRate];

    /// Returns the value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Rate => "rate",
            Self::NamespaceRate => "namespace_rate",
            Self::AddressRate => "address_rate",
        }
    }
}
