//! What the probes answer: whether this process is alive, and whether its caches can be relied on.
//!
//! Alive means that the runtime the reconciles run on still polls tasks; an outage of the API server never makes it
//! false, because a restart would not help. Ready means that every kind that was there at the start has been listed and
//! its watch has not been down for long; a standby replica is as ready as the leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::{Cache, KindStatus};
use crate::health::{Checks, Group};

/// How long the work runtime may go without polling its heartbeat before this process counts as stuck.
pub(super) const HEARTBEAT_LIMIT: Duration = Duration::from_secs(30);
/// How often the heartbeat beats: often enough that one late beat is not mistaken for a stuck runtime.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(1);
/// How long a watch may be down before its kind is not ready. Shorter outages are routine: a restart of one API server.
const WATCH_DOWN_LIMIT: Duration = Duration::from_mins(1);

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

/// Adds the checks that every manager has.
pub(super) fn add_checks(checks: &Checks, heartbeat: &Heartbeat, cache: &Cache) {
    for group in [Group::Live, Group::Health] {
        let heartbeat = heartbeat.clone();
        checks.add(group, "runtime", move || heartbeat.check());
    }
    let cache = cache.clone();
    checks.add(Group::Ready, "caches", move || caches(&cache));
}

/// Fails with the first kind that cannot be relied on. A kind that was never there is waited for by its own controllers
/// and by nobody else, so it does not count.
fn caches(cache: &Cache) -> Result<(), String> {
    let kinds = cache.kinds();
    let unready = kinds.iter().filter(|kind| kind.synced || !kind.absent);
    unready.map(kind_is_ready).find(Result::is_err).unwrap_or(Ok(()))
}

fn kind_is_ready(status: &KindStatus) -> Result<(), String> {
    let reason = || status.last_error.as_deref().unwrap_or("no answer yet");
    let kind = &status.kind;
    if !status.synced {
        return Err(format!("{kind} has not been listed: {}", reason()));
    }
    match status.down_since.map(|since| since.elapsed()) {
        Some(down) if down > WATCH_DOWN_LIMIT => {
            Err(format!("the watch of {kind} has been down for {} s: {}", down.as_secs(), reason()))
        }
        _ => Ok(()),
    }
}
