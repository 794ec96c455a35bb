//! The answers of the probes: whether this process is alive, and whether its caches are current.
//!
//! Alive: the runtime of the reconciles still polls tasks. An outage of the API server does not change that, because a
//! restart would not help.
//!
//! Ready: every kind that was served at the start has been listed, and its watch has not been down for long. A standby
//! replica is as ready as the leader. Each kind has a check `/readyz/cache-KIND`, or `/readyz/cache-CLUSTER-KIND` for
//! another cluster than the manager's own. The check of a kind that is not served, or not readable, does not count for
//! `/readyz`, so that a missing CRD does not make every replica unready; [`Required`] changes that for single kinds. A
//! runnable that declares its readiness has a check `/readyz/NAME`, which counts unless it runs on the leader only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::clusters::Clusters;
use super::readiness_list::ReadinessList;
use crate::cache::{KindStatus, Required};
use crate::health::{Checks, Finding, Group};

/// Time without a heartbeat after which the work runtime counts as stuck.
pub(super) const HEARTBEAT_LIMIT: Duration = Duration::from_secs(30);
/// Period of the heartbeat, short enough that one late beat is no stuck runtime.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);

/// The time at which the work runtime last polled the heartbeat.
#[derive(Clone, Debug)]
pub(super) struct Heartbeat {
    began: Instant,
    /// Milliseconds after `began`. Relaxed: there is one writer, and a reader may be late by one beat.
    last: Arc<AtomicU64>,
}

// === impl Heartbeat ===

impl Heartbeat {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), last: Arc::default() }
    }

    /// Beats while it is polled.
    pub(super) async fn beat(self) {
        let mut ticks = tokio::time::interval(HEARTBEAT_PERIOD);
        loop {
            ticks.tick().await;
            let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.last.store(since, Ordering::Relaxed);
        }
    }

    fn check(&self) -> Result<(), String> {
        let silent =
            self.began.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)));
        if silent <= HEARTBEAT_LIMIT {
            return Ok(());
        }
        Err(format!("no task was polled for {silent:?}; a reconcile may be blocking its thread"))
    }
}

/// Adds the checks with fixed names.
pub(super) fn add_checks(checks: &Checks, heartbeat: &Heartbeat) {
    for group in [Group::Live, Group::Health] {
        let heartbeat = heartbeat.clone();
        checks.add(group, "runtime", move || heartbeat.check());
    }
}

/// Adds the checks of stores and of runnables that declare their readiness, which change while the manager runs.
pub(super) fn survey(
    checks: &Checks,
    clusters: &Clusters,
    readiness_list: &ReadinessList,
    watch_down_limit: Duration,
) {
    let clusters = clusters.clone();
    checks.survey(Group::Ready, "caches", move || clusters.findings(watch_down_limit));
    let readiness_list = readiness_list.clone();
    checks.survey(Group::Ready, "runnables", move || readiness_list.findings());
}

/// Returns the readiness of a store of the manager's own cluster. Unless [`Required`] sets another rule, a kind that is not
/// served delays its own controllers only.
pub(super) fn finding(status: &KindStatus, watch_down_limit: Duration) -> Finding {
    // A kind that was not listed by the time its store has settled was not served; a later outage does not change that.
    // Access to one of several namespaces may be denied; an outage of the others counts nevertheless.
    judge(status, watch_down_limit, |_| {
        !status.settled || (status.synced && !status.absent) || outage(status, watch_down_limit).is_some()
    })
}

/// Returns the readiness of a store of another cluster. An outage there hits every replica, so it makes none unready; only a
/// starting replica is unready until the first list was tried.
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

/// Returns the name of the check of a store.
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

/// Returns the message about a watch that worked and has been down for too long; `None` for a kind that is not served.
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
