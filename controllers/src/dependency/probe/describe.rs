//! The state of a target and its next probe, for `mainstay why`.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay::key::NamespacedName;
use tokio::time::Instant;

use super::entry::{Entry, Wait};
use super::slots::Slots;
use super::{ProbeResult, Target, VerdictState};

/// Maximum number of other objects with the same probe target that one description names.
pub const MAX_NAMED: usize = 10;

/// Describes one probe target of a waiting object at one moment. Times are relative to this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The probe target: a check and the namespace of its objects.
    pub target: Target,
    /// The verdict on the target, by the thresholds of the waiting object.
    pub state: VerdictState,
    /// The result of the last probe of the target, even one before the initial delay of the object is over;
    /// `None` before the first result.
    pub result: Option<ProbeResult>,
    /// How long all probes of the target have had this result; `None` without a result.
    pub unchanged_for: Option<Duration>,
    /// Number of successful probes of the target in a row, the last probe included; 0 after a failure.
    pub successes: u32,
    /// Number of failed probes of the target in a row, the last probe included; 0 after a success.
    pub failures: u32,
    /// Time since the start of the last probe of the target; `None` before the first probe.
    pub began: Option<Duration>,
    /// The duration of the last probe of the target; `None` while it is in flight.
    pub took: Option<Duration>,
    /// The time of the next probe of the target, or the reason why it is delayed.
    pub next: NextProbe,
    /// Time from the start of one probe of the target to the start of the next, before jitter. Longer than
    /// the period of the object if the policy has a longer minimum, shorter if another object has a shorter
    /// period.
    pub period: Duration,
    /// The number of other objects that wait for the same target.
    pub others: usize,
    /// The first [`MAX_NAMED`] of the other objects that wait for the same target.
    pub named: BTreeSet<NamespacedName>,
}

/// When a target is probed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextProbe {
    /// A probe of the target is in flight.
    InFlight,
    /// The target is probed next after this time.
    In(Duration),
    /// A probe of the target is due, but this limit delays its start.
    Delayed(StartLimit),
    /// The target is not probed, while its namespace has more targets than
    /// `probePolicy.maxTargetsPerNamespace`.
    OverTargetLimit,
}

/// A limit that delays the start of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartLimit {
    /// The limit of probes in flight: no slot is free, or none that a target of this class or namespace may
    /// hold.
    InFlight,
    /// The limit `probePolicy.maxPerSecond` of starts of all probes.
    Rate,
    /// The limit `probePolicy.maxPerSecondPerNamespace` of starts of probes for one namespace.
    NamespaceRate,
    /// The limit `probePolicy.maxPerSecondPerAddress` of starts of probes of one address by one namespace.
    AddressRate,
}

// === impl Entry ===

impl Entry {
    /// Describes the target for the object `request`, which waits for it by `wait`.
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

    /// Returns the limit as the value of the metric label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Rate => "rate",
            Self::NamespaceRate => "namespace_rate",
            Self::AddressRate => "address_rate",
        }
    }
}
