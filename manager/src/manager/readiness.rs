//! What the probes answer: whether this process is alive, and whether its caches can be relied on.
//!
//! Alive means that the runtime the reconciles run on still polls tasks; an outage of the API server never makes it
//! false, because a restart would not help. Ready means that every kind that was there at the start has been listed and
//! its watch has not been down for long; a standby replica is as ready as the leader. Each kind has a check of its own,
//! `/readyz/cache-KIND`, or `/readyz/cache-CLUSTER-KIND` in another cluster than the manager's own; that of a kind which
//! is not served, or not readable, answers to its name and to nobody else, so that one CRD which nobody has
//! installed, or which somebody has removed, does not take every replica out of service; [`Required`] says otherwise for
//! single kinds. A runnable that declares its
//! readiness has a check of its name, `/readyz/NAME`; that of one on the leader only answers to its name and to nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::clusters::Clusters;
use super::gates::Gates;
use crate::cache::{KindStatus, Required};
use crate::health::{Checks, Finding, Group};

/// How long the work runtime may go without polling its heartbeat before this process counts as stuck.
pub(super) const HEARTBEAT_LIMIT: Duration = Duration::from_secs(30);
/// How often the heartbeat beats: often enough that one late beat is not mistaken for a stuck runtime.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);

/// The moment the work runtime last polled a task of ours.
#[derive(Clone, Debug)]
pub(super) struct Heartbeat {
    began: Instant,
    /// Milliseconds after `began`. Relaxed: one writer, and a reader that is late by one value is late by a second.
    last: Arc<AtomicU64>,
}

// === impl Heartbeat ===

impl Heartbeat {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), last: Arc::default() }
    }

    /// Beats for as long as it is polled.
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

/// Adds the checks whose names are known beforehand.
pub(super) fn add_checks(checks: &Checks, heartbeat: &Heartbeat) {
    for group in [Group::Live, Group::Health] {
        let heartbeat = heartbeat.clone();
        checks.add(group, "runtime", move || heartbeat.check());
    }
}

/// Adds a check for each store and for each runnable that declares its readiness, as they come and go.
pub(super) fn survey(checks: &Checks, clusters: &Clusters, gates: &Gates, watch_down_limit: Duration) {
    let clusters = clusters.clone();
    checks.survey(Group::Ready, "caches", move || clusters.findings(watch_down_limit));
    let gates = gates.clone();
    checks.survey(Group::Ready, "runnables", move || gates.findings());
}

/// Judges one store of the manager's own cluster. Unless [`Required`] says otherwise, a kind that is not served holds up its
/// own controllers and nothing else.
pub(super) fn finding(status: &KindStatus, watch_down_limit: Duration) -> Finding {
    // Once settled it would have been listed, had it been there; an outage meanwhile does not make it required.
    // Of several namespaces one may be denied; an outage of the others is one all the same.
    judge(status, watch_down_limit, |_| {
        !status.settled || (status.synced && !status.absent) || outage(status, watch_down_limit).is_some()
    })
}

/// Judges one store of another cluster. What keeps it down keeps it down for every replica, so that it takes none of
/// them out of service; a replica that begins is not ready before it was tried, for as long as it is waited for at all.
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

/// Returns what `/readyz/NAME` calls a store.
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
        return Err(format!(
            "{kind} is no longer there to be watched, what was last known of it stays: {}",
            reason()
        ));
    }
    Ok(())
}

/// What to say of a watch that has worked and has been down for too long. Of those that are not there it is not said.
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
