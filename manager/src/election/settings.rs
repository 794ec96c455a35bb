//! Settings of an elector: Lease, identity and timings. Validation refuses combinations that are not safe.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::LONGEST_LEASE;
use crate::key::is_dns_subdomain;
use crate::util::os::host_name;

/// Default of [`ElectionSettings::lease_duration`]: client-go's, used by every Kubernetes component.
pub const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);
/// Default of [`ElectionSettings::renew_deadline`]: client-go's, used by every Kubernetes component.
pub const DEFAULT_RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Default of [`ElectionSettings::retry_period`]: client-go's, used by every Kubernetes component.
pub const DEFAULT_RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Complete settings of one elector; [`ElectionSettings::validate`] lists the invalid ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// Name of this replica in the Lease. Two replicas with one identity would both lead; [`unique_identity`]
    /// makes one that is unique.
    pub identity: Arc<str>,
    /// Time that candidates wait after the last renewal of the Lease that they received: whole seconds, 1 s
    /// to 1 h inclusive.
    pub lease_duration: Duration,
    /// Time for which a leader tries to renew the Lease before it stops leading, counted from its first try.
    pub renew_deadline: Duration,
    /// Interval of a leader's renewals of the Lease; a candidate without a watch gets the Lease every 1 to
    /// 2.2 retry periods.
    pub retry_period: Duration,
    /// Action of a replica that lost the Lease.
    pub on_lost: OnLost,
}

/// Action of a replica once its leader-only work has ended after a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnLost {
    /// End the process after a loss of the Lease: a fresh process is the safest candidate.
    #[default]
    Exit,
    /// Become a candidate again after a loss of the Lease.
    Campaign,
}

/// One invalid setting of an elector: its path in the configuration, its value and the expected value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {value}: {expected}")]
pub struct Invalid {
    /// Path in the configuration file, such as `leaderElection.renewDeadline`. The path `identity` is not in
    /// the file.
    pub path: &'static str,
    /// The invalid value after parsing.
    pub value: String,
    /// The values that the setting may have, and how to correct it.
    pub expected: String,
}

// === impl ElectionSettings ===

impl ElectionSettings {
    /// Makes the settings of an elector with client-go's timings.
    pub fn new(
        namespace: impl Into<String>,
        lease_name: impl Into<String>,
        identity: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            lease_name: lease_name.into(),
            identity: identity.into(),
            lease_duration: DEFAULT_LEASE_DURATION,
            renew_deadline: DEFAULT_RENEW_DEADLINE,
            retry_period: DEFAULT_RETRY_PERIOD,
            on_lost: OnLost::default(),
        }
    }

    /// Returns all invalid settings of the elector; empty if the settings are valid.
    pub fn validate(&self) -> Vec<Invalid> {
        const RENEW: &str = "leaderElection.renewDeadline";
        let mut found = Vec::new();
        let mut refuse = |wrong: bool, path, value: &dyn fmt::Debug, expected: &str| {
            if wrong {
                let (value, expected) = (format!("{value:?}"), expected.to_owned());
                found.push(Invalid { path, value, expected });
            }
        };
        let name = "expected lower-case letters, digits, '-' and '.'";
        refuse(!is_dns_subdomain(&self.namespace), "leaderElection.namespace", &self.namespace, name);
        refuse(!is_dns_subdomain(&self.lease_name), "leaderElection.leaseName", &self.lease_name, name);
        let unique = "expected a name no other replica has";
        refuse(self.identity.trim().is_empty(), "identity", &self.identity, unique);

        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        let stored = (Duration::from_secs(1)..=LONGEST_LEASE).contains(&lease) && lease.subsec_nanos() == 0;
        let whole =
            format!("expected whole seconds from 1s to {LONGEST_LEASE:?}: the Lease stores no fractions");
        refuse(!stored, "leaderElection.leaseDuration", &lease, &whole);
        let short = retry < Duration::from_millis(1);
        refuse(short, "leaderElection.retryPeriod", &retry, "expected at least 1ms");
        // A retry waits up to 1.2 retry periods, so a shorter deadline leaves no second try (client-go's
        // rule).
        let tries = retry.saturating_mul(6) / 5;
        let second = format!("expected more than 1.2 x retryPeriod = {tries:?}, or there is no second try");
        refuse(renew <= tries, RENEW, &renew, &second);
        refuse(renew >= lease, RENEW, &renew, &format!("expected less than leaseDuration {lease:?}"));
        let (trying, writing) = (renew.saturating_add(retry), self.fence_after_send());
        let beyond = format!(
            "with retryPeriod {retry:?} the leader would try for {trying:?}, but may write only for \
             {writing:?}, 0.9 x leaseDuration {lease:?}; lower renewDeadline or retryPeriod, or raise \
             leaseDuration"
        );
        refuse(renew < lease && trying > writing, RENEW, &renew, &beyond);
        found
    }
}

/// Makes an identity that no other replica has, not even this one before a restart: `POD_RANDOM`, or
/// `HOST/RANDOM` if the name of the Pod is unknown. A host name may differ from the name of its Pod.
pub fn unique_identity(pod: Option<&str>) -> String {
    let random = fastrand::u128(..);
    match pod {
        Some(pod) => format!("{pod}_{random:032x}"),
        None => format!("{}/{random:032x}", host_name()),
    }
}

#[cfg(test)]
mod tests;
