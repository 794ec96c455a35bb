//! The answers of the probes: whether this process is alive, and whether its caches are current.
//!
//! Alive: the runtime of the reconciles still polls tasks. An outage of the API server does not change that,
//! because a restart would not help.
//!
//! Ready: every kind that was served at the start has been listed, and its watch has not been down for long.
//! A standby replica is as ready as the leader. Each kind has a check `/readyz/cache-KIND`, or
//! `/readyz/cache-CLUSTER-KIND` for another cluster than the manager's own. The check of a kind that is not
//! served, or not readable, does not count for `/readyz`, so that a missing CRD does not make every replica
//! unready; [`Required`] changes that for single kinds. A runnable that declares its readiness has a check
//! `/readyz/NAME`, which counts unless it runs on the leader only. `/readyz/rights`, which does not
//! count, fails while a right is missing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Shared;
use crate::cache::{KindStatus, Required};
use crate::health::{Finding, Group};

/// Time without a heartbeat after which the runtime of the reconciles counts as stuck.
pub(super) const HEARTBEAT_LIMIT: Duration = Duration::from_secs(30);
/// Period of the heartbeat of the reconciles' runtime, short enough that one late beat is no stuck runtime.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);

/// The time at which the runtime of the reconciles last polled the heartbeat task.
#[derive(Clone, Debug)]
pub(super) struct Heartbeat {
    last: Arc<Mutex<Instant>>,
}

// === impl Heartbeat ===

impl Heartbeat {
    pub(super) fn new() -> Self {
        Self { last: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Records the present time every second while it is polled, so that a stuck runtime is noticed.
    pub(super) async fn beat(self) {
        let mut ticks = tokio::time::interval(HEARTBEAT_PERIOD);
        loop {
            ticks.tick().await;
            *self.last.lock() = Instant::now();
        }
    }

    fn check(&self) -> Result<(), String> {
        let silent = self.last.lock().elapsed();
        if silent <= HEARTBEAT_LIMIT {
            return Ok(());
        }
        Err(format!("no task was polled for {silent:?}; a reconcile may be blocking its thread"))
    }
}

impl Shared {
    /// Adds health checks to the manager: those of the heartbeat, and those of stores and of runnables that
    /// declare their readiness, which change while the manager runs.
    pub(super) fn add_checks(&self, heartbeat: &Heartbeat) {
        for group in [Group::Live, Group::Health] {
            let heartbeat = heartbeat.clone();
            self.checks.add(group, "runtime", move || heartbeat.check());
        }
        let (clusters, watch_down_limit) = (self.clusters.clone(), self.options.watch_down_limit);
        self.checks.survey(Group::Ready, "caches", move || clusters.findings(watch_down_limit));
        if self.options.preflight {
            self.checks.survey(Group::Ready, "rights", self.rights_finding());
        }
        let readiness_list = self.readiness_list.clone();
        self.checks.survey(Group::Ready, "runnables", move || readiness_list.findings());
    }
}

/// Returns the result of the readiness check of a store of the manager's own cluster. Unless [`Required`]
/// sets another rule, a kind that is not served delays its own controllers only.
pub(super) fn finding(status: &KindStatus, watch_down_limit: Duration) -> Finding {
    // A kind that was not listed by the time its store has settled was not served; a later outage does not
    // change that. Access to one of several namespaces may be denied; an outage of the others counts
    // nevertheless.
    judge(status, watch_down_limit, |_| {
        !status.settled || (status.synced && !status.absent) || outage(status, watch_down_limit).is_some()
    })
}

/// Returns the result of the readiness check of a store of another cluster. An outage there hits every
/// replica, so it makes none unready; only a starting replica (`awaited`) is unready until the first list was
/// tried.
pub(super) fn finding_elsewhere(status: &KindStatus, awaited: bool, watch_down_limit: Duration) -> Finding {
    let unknown = !status.synced && status.last_error.is_none();
    judge(status, watch_down_limit, |outcome| outcome.is_ok() || (awaited && unknown))
}

fn judge(
    status: &KindStatus,
    watch_down_limit: Duration,
    while_served: impl FnOnce(&Result<(), String>) -> bool,
) -> Finding {
    let outcome = outcome(status, watch_down_limit);
    let counts = match status.required {
        Required::Always => true,
        Required::Never => false,
        Required::WhileServed => while_served(&outcome),
    };
    Finding { name: check_name(status), counts, outcome }
}

/// Returns the name of the readiness check of a store, such as `cache-Deployment.apps`.
pub(super) fn check_name(status: &KindStatus) -> String {
    match &status.cluster {
        Some(cluster) => format!("cache-{cluster}-{}", status.kind),
        None => format!("cache-{}", status.kind),
    }
}

fn outcome(status: &KindStatus, watch_down_limit: Duration) -> Result<(), String> {
    let reason = || status.last_error.as_deref().unwrap_or("no answer yet");
    let kind = &status.kind;
    if let Some(outage) = outage(status, watch_down_limit) {
        return Err(outage);
    }
    if !status.synced {
        return Err(format!("{kind} has not been listed: {}", reason()));
    }
    if status.absent {
        return Err(format!("{kind} cannot be watched any more, its cached objects stay: {}", reason()));
    }
    Ok(())
}

/// Returns the message about a watch of the kind that worked and has been down for too long; `None` without
/// such a watch, and for a kind that is not served.
fn outage(status: &KindStatus, watch_down_limit: Duration) -> Option<String> {
    let watches = status.parts.iter().filter(|part| part.lists > 0 && !part.working && !part.absent);
    let longest = watches.min_by_key(|part| part.since)?;
    let down = longest.since.elapsed();
    (down > watch_down_limit).then(|| {
        let place = longest.namespace.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
        let reason = longest.last_error.as_deref().unwrap_or("no answer yet");
        format!("the watch of {}{place} has been down for {} s: {reason}", status.kind, down.as_secs())
    })
}

#[cfg(test)]
mod tests;
