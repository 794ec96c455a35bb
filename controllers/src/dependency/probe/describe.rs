//! The state of a target and its next probe, for `mainstay why`.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay::key::NamespacedName;

use super::{ProbeResult, Target, VerdictState};

/// Most objects with the same target that are named.
pub const MAX_NAMED: usize = 10;

/// One target of an object at one moment. Times are relative to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The check.
    pub target: Target,
    /// The judgement, thresholds applied.
    pub state: VerdictState,
    /// How the last probe ended, also one that does not count for this object because of its delay.
    pub result: Option<ProbeResult>,
    /// For how long every probe has ended so.
    pub unchanged_for: Option<Duration>,
    /// Successes in a row at the end; 0 after a failure.
    pub successes: u32,
    /// Failures in a row at the end; 0 after a success.
    pub failures: u32,
    /// How long ago the last probe began.
    pub began: Option<Duration>,
    /// How long the last probe took; `None` while it lasts.
    pub took: Option<Duration>,
    /// The next probe.
    pub next: NextProbe,
    /// From the start of one probe to the start of the next, before jitter: longer than what the object asks
    /// for if the policy has a longer one, shorter if another object asks for that.
    pub period: Duration,
    /// How many other objects wait for the same.
    pub others: usize,
    /// The first [`MAX_NAMED`] of them.
    pub named: BTreeSet<NamespacedName>,
}

/// When a target is probed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextProbe {
    /// It is being probed.
    InFlight,
    /// In so long.
    In(Duration),
    /// It is due, and delayed by a limit.
    Delayed(StartLimit),
    /// It has no place among the targets of its namespace, by `probePolicy.maxTargetsPerNamespace`.
    OverTargetLimit,
}

/// A limit that delays the start of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartLimit {
    /// All slots are held, or all that slow or untried targets or the namespace may hold.
    InFlight,
    /// `probePolicy.maxPerSecond`.
    Rate,
    /// `probePolicy.maxPerSecondPerNamespace`.
    NamespaceRate,
    /// `probePolicy.maxPerSecondPerAddress`.
    AddressRate,
}

// === impl StartLimit ===

impl StartLimit {
    pub(super) const ALL: [Self; 4] = [Self::InFlight, Self::Rate, Self::NamespaceRate, Self::AddressRate];

    /// Returns one word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Rate => "rate",
            Self::NamespaceRate => "namespace_rate",
            Self::AddressRate => "address_rate",
        }
    }
}
