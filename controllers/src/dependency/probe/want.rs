//! Targets that objects wait for, and the verdicts on them.

use std::sync::Arc;
use std::time::Duration;

use mainstay::key::NamespacedName;
use mainstay_api::{Address, Host, PlannedDependency, ProbeCheck};

use super::ProbeResult;
use super::services::service_name;

/// A probe target: a check for the objects of one namespace. Objects that wait for the same target with the
/// same timeout share one probe.
///
/// The namespace always counts, even for a literal address: the policy may admit different addresses for
/// another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    namespace: Arc<str>,
    check: ProbeCheck,
}

/// One probe target that an object waits for, with the times and thresholds of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The probe target: a check and the namespace of the object.
    pub target: Target,
    /// Time from the start of one probe to the start of the next, before jitter. Of objects that share a
    /// target the shortest period counts.
    pub period: Duration,
    /// Longest duration of one probe, no more than the period. Objects with another timeout have a probe of
    /// their own: a long timeout must not delay the others, and a short one must not make them miss an
    /// answer.
    pub timeout: Duration,
    /// The rest of the initial delay, from the first [`watch`](super::Engine::watch) of this target to the
    /// first probe that counts for the object. Further calls ignore it.
    pub initial_delay: Duration,
    /// Number of successful probes in a row after which the target is [`Ready`](VerdictState::Ready); 0
    /// counts as 1.
    pub success_threshold: u32,
    /// Number of failed probes in a row after which a ready target is [`NotReady`](VerdictState::NotReady); 0
    /// counts as 1.
    pub failure_threshold: u32,
    /// Whether the target was ready before, as far as the object knows. It then stays pending until enough
    /// probes have failed in a row, even if this engine has never seen it ready. Otherwise the first
    /// failure makes it not ready.
    pub was_ready: bool,
}

/// The verdict on one [`Want`]: whether its target is ready. Equal for equal states: it holds no times and no
/// counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the target is ready, by its last probes and the thresholds of the want.
    pub state: VerdictState,
    /// The result of the last probe of the target, which may contradict the state while a threshold is not
    /// reached; `None` before the first probe.
    pub result: Option<ProbeResult>,
}

/// Whether a target is ready, by the thresholds of one [`Want`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictState {
    /// The results of the target do not decide yet whether it is ready.
    Pending,
    /// The target had enough successes in a row, and since then not enough failures.
    Ready,
    /// The target had no success yet, too few of them in a row, or enough failures in a row.
    NotReady,
    /// The probe policy denies the probe of the target.
    Denied,
}

// === impl Target ===

impl Target {
    /// Makes the probe target of a check by an object in `namespace`.
    pub fn new(namespace: &str, check: ProbeCheck) -> Self {
        Self { namespace: namespace.into(), check }
    }

    /// Returns the namespace of the waiting objects, in which names of Services are resolved.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn shared_namespace(&self) -> &Arc<str> {
        &self.namespace
    }

    /// Returns the Service that the target connects to by its host name, if a Service of this namespace and
    /// name exists.
    pub(crate) fn service(&self) -> Option<NamespacedName> {
        let Host::Name(host) = &self.address()?.host else { return None };
        let (name, namespace) = service_name(host, &self.namespace)?;
        Some(NamespacedName::namespaced(namespace, name))
    }

    /// Returns the host of the target without the port: namespace and name of a Service, or the host as
    /// written.
    pub(super) fn host(&self) -> Arc<str> {
        match (self.service(), self.address()) {
            (Some(service), _) => service.to_string().into(),
            (None, Some(address)) => address.host.to_string().into(),
            (None, None) => self.check.kind().into(),
        }
    }

    /// Returns the check of the probe target.
    pub fn check(&self) -> &ProbeCheck {
        &self.check
    }

    /// Returns the address that a probe of the target connects to; `None` for a `dns` check.
    pub fn address(&self) -> Option<&Address> {
        self.check.address()
    }
}

// === impl Want ===

impl Want {
    /// Makes the want of a dependency with its probe target. The initial delay began `closed_for` ago;
    /// `was_ready` as on the field.
    pub fn new(
        target: Target,
        dependency: &PlannedDependency,
        was_ready: bool,
        closed_for: Duration,
    ) -> Self {
        Self {
            target,
            period: dependency.period,
            timeout: dependency.timeout,
            initial_delay: dependency.initial_delay.saturating_sub(closed_for),
            success_threshold: dependency.success_threshold,
            failure_threshold: dependency.failure_threshold,
            was_ready,
        }
    }

    /// Returns whether both wants have the same target and timeout, and so share an entry.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        (&self.target, self.timeout) == (&other.target, other.timeout)
    }

    /// Returns whether both wants are equal apart from the rest of the initial delay.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        *self == Self { initial_delay: self.initial_delay, ..other.clone() }
    }
}
