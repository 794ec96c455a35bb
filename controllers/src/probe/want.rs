//! What is asked of the engine, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use mainstay::key::Request;
use mainstay_api::{Address, Host, PlannedDependency, ProbeCheck};

use super::ProbeResult;
use super::services::service_name;

/// What is probed. Requests of one namespace that wait for the same, and as long for an answer, share one probe.
///
/// The namespace always counts, even for a literal address: what the policy admits may differ between two.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    namespace: Arc<str>,
    check: ProbeCheck,
}

/// One target, and how the one who waits for it wants it judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// What is probed.
    pub target: Target,
    /// From the start of one probe to the start of the next, before jitter. Of those who share a target the shortest
    /// counts.
    pub period: Duration,
    /// Longest duration of one probe, no more than the period. Shared only with who asks for the same one: who has patience must not make the
    /// others see late, nor who has none make them miss an answer.
    pub timeout: Duration,
    /// What is left of the delay: from the first call that names this target to the first probe that counts. In further
    /// calls it says nothing.
    pub initial_delay: Duration,
    /// Successes in a row after which it is [`Ready`](VerdictState::Ready); 0 counts as 1.
    pub success_threshold: u32,
    /// Failures in a row after which what was ready is [`NotReady`](VerdictState::NotReady); 0 counts as 1.
    pub failure_threshold: u32,
    /// Whether it is watched for its loss: until as many probes have failed in a row as it takes, nothing is said
    /// against it, though this engine may never have seen it ready. Else the first failure tells.
    pub held: bool,
}

/// What is known of one [`Want`]. Equal for equal states: it holds no times and no counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The judgement, thresholds applied.
    pub state: VerdictState,
    /// How the last probe ended, which in a row that is shorter than the threshold speaks against the state; `None`
    /// before the first.
    pub result: Option<ProbeResult>,
}

/// Whether a target is there, judged by the thresholds of one [`Want`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictState {
    /// Nothing can be said yet.
    Pending,
    /// Enough successes in a row, and since then not enough failures.
    Ready,
    /// No success yet, too few of them in a row, or enough failures in a row.
    NotReady,
    /// The policy forbids to try.
    Denied,
}

// === impl Target ===

impl Target {
    /// Names what an object in `namespace` means by a check.
    pub fn new(namespace: &str, check: ProbeCheck) -> Self {
        Self { namespace: namespace.into(), check }
    }

    /// Returns the namespace of those who wait, in which names of Services are understood.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn shared_namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    /// Returns the Service that it connects to if there is one of this namespace and name.
    pub(crate) fn service(&self) -> Option<Request> {
        let Host::Name(host) = &self.address()?.host else { return None };
        let (name, namespace) = service_name(host, &self.namespace)?;
        Some(Request::namespaced(namespace, name))
    }

    /// Returns what is done.
    pub fn check(&self) -> &ProbeCheck {
        &self.check
    }

    /// Returns where it connects to; `None` for a look-up.
    pub fn address(&self) -> Option<&Address> {
        self.check.address()
    }
}

// === impl Want ===

impl Want {
    /// Asks for a check as a dependency has it, whose delay began so long ago; `held` as on the field.
    pub fn new(target: Target, dependency: &PlannedDependency, held: bool, closed_for: Duration) -> Self {
        Self {
            target,
            period: dependency.period,
            timeout: dependency.timeout,
            initial_delay: dependency.initial_delay.saturating_sub(closed_for),
            success_threshold: dependency.success_threshold,
            failure_threshold: dependency.failure_threshold,
            held,
        }
    }

    /// Returns whether it is what `other` asks for, whatever is left of the delay.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let Self { target, period, timeout, initial_delay: _, success_threshold, failure_threshold, held } =
            self;
        *target == other.target
            && *held == other.held
            && (*period, *timeout) == (other.period, other.timeout)
            && (*success_threshold, *failure_threshold) == (other.success_threshold, other.failure_threshold)
    }
}

// === impl Verdict ===

impl Verdict {
    /// What is known before the first probe that counts.
    pub(super) const PENDING: Self = Self { state: VerdictState::Pending, result: None };
}
