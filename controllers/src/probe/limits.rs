//! How much may be probed, and what is said about what has to wait for it.

use std::time::Duration;

use mainstay::config::ProbePolicy;

/// How much may be probed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most probes in flight.
    pub(super) in_flight: usize,
    /// Most probes begun per second.
    pub(super) per_second: u32,
    /// Most of them for one namespace.
    pub(super) per_second_per_namespace: u32,
    /// Most of those at one address.
    pub(super) per_second_per_address: u32,
    /// Most targets of one namespace.
    pub(super) targets_per_namespace: usize,
    /// The shortest period.
    pub(super) min_period: Duration,
}

/// What keeps a target that is due from being probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Held {
    /// As many probes are in flight as may be, of all or of those that take as long; or its namespace has its share.
    InFlight,
    /// `probePolicy.maxPerSecond`.
    Rate,
    /// `probePolicy.maxPerSecondPerNamespace`.
    NamespaceRate,
    /// `probePolicy.maxPerSecondPerAddress`.
    AddressRate,
}

// === impl Limits ===

impl Limits {
    /// Reads them from a policy.
    pub(super) fn new(in_flight: usize, policy: &ProbePolicy) -> Self {
        Self {
            in_flight,
            per_second: policy.max_per_second,
            per_second_per_namespace: policy.max_per_second_per_namespace,
            per_second_per_address: policy.max_per_second_per_address,
            targets_per_namespace: usize::try_from(policy.max_targets_per_namespace).unwrap_or(usize::MAX),
            min_period: policy.min_period,
        }
    }
}

// === impl Held ===

impl Held {
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
