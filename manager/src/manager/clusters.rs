//! The clusters of one manager, their own one first: who runs what they have, and who waits for them.
//!
//! # Invariants
//! 1. A name is taken once. What belongs to a cluster is run once, also if the cluster comes while the manager runs.
//! 2. The manager's own cluster is waited for until it has answered, because nothing can be done without it. What is
//!    declared on another one, and whenever it is, is waited for until it was answered or has failed to be, and not for
//!    longer than [`PATIENCE`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::cluster::{Cluster, ClusterError};
use super::readiness;
use crate::client::EventWriter;
use crate::health::Finding;
use crate::util::resume_panic;

/// How long a store is waited for whose cluster neither answers nor fails: as long as opening a connection may take, so
/// that a server that swallows all packets is told like one that refuses them.
const PATIENCE: Duration = Duration::from_secs(30);

/// The clusters of one manager. Cheap to clone; all clones are the same clusters.
#[derive(Clone)]
pub(super) struct Clusters {
    shared: Arc<Shared>,
}

struct Shared {
    own: Cluster,
    state: Mutex<State>,
    /// Whether this replica's start waits for them no longer. Never false again. Relaxed: a probe that is late by a moment
    /// tells of that moment.
    started: AtomicBool,
    /// Permit = a cache waits to be run.
    caches: Notify,
    /// Permit = a writer waits to be run.
    writers: Notify,
}

#[derive(Default)]
struct State {
    /// Nothing that comes now would be run.
    closed: bool,
    /// Without the own one, in the order they came.
    others: Vec<Other>,
    /// Those whose caches nobody runs yet.
    idle: Vec<Cluster>,
    /// Those that nobody runs yet.
    writers: Vec<EventWriter>,
}

/// A cluster that the manager can do without.
#[derive(Clone)]
struct Other {
    cluster: Cluster,
    /// When the youngest store began of which the log has it that it was waited for in vain.
    told: Arc<Mutex<Option<Instant>>>,
}

// === impl Clusters ===

impl Clusters {
    pub(super) fn new((own, writer): (Cluster, EventWriter)) -> Self {
        let state = State { idle: vec![own.clone()], writers: vec![writer], ..State::default() };
        let shared = Shared {
            own,
            state: Mutex::new(state),
            started: AtomicBool::new(false),
            caches: Notify::new(),
            writers: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the manager's own one.
    pub(super) fn own(&self) -> &Cluster {
        &self.shared.own
    }

    /// Adds another one under a name that is not taken.
    pub(super) fn add(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<(Cluster, EventWriter), ClusterError>,
    ) -> Result<Cluster, ClusterError> {
        let may_come = |state: &State| {
            if state.closed {
                return Err(ClusterError::Stopped { name: name.to_owned() });
            }
            if state.others.iter().any(|other| other.cluster.name() == name) {
                return Err(ClusterError::DuplicateName { name: name.to_owned() });
            }
            Ok(())
        };
        may_come(&self.shared.state.lock())?;
        // Reads files and runs plug-ins: not under the lock.
        let (cluster, writer) = make()?;
        {
            let mut state = self.shared.state.lock();
            may_come(&state)?;
            state.others.push(Other { cluster: cluster.clone(), told: Arc::default() });
            state.idle.push(cluster.clone());
            state.writers.push(writer);
        }
        self.shared.caches.notify_one();
        self.shared.writers.notify_one();
        Ok(cluster)
    }

    /// Takes no more of them.
    pub(super) fn close(&self) {
        self.shared.state.lock().closed = true;
    }
}

/// What they have in common with the life of the manager.
impl Clusters {
    /// Keeps the caches of all of them true until told to stop, those that come meanwhile included. Returns when all
    /// tasks have ended.
    pub(super) async fn run_caches(self, stop: CancellationToken) {
        let take = || std::mem::take(&mut self.shared.state.lock().idle);
        let run = |cluster: Cluster, stop| async move { cluster.cache().run(stop).await };
        run_all(&self.shared.caches, take, run, stop).await;
    }

    /// Writes the Events of all of them until told to stop, and then for at most `flush`.
    pub(super) async fn run_writers(self, stop: CancellationToken, flush: Duration) {
        let take = || std::mem::take(&mut self.shared.state.lock().writers);
        let run = |writer: EventWriter, stop| writer.run(stop, flush);
        run_all(&self.shared.writers, take, run, stop).await;
    }

    /// Waits until every store that was declared so far has been listed, or is not to be waited for.
    ///
    /// # Cancel safety
    /// Nothing is lost, nor is anybody waited for longer if it is called again.
    pub(super) async fn settled(&self) {
        let others = self.others();
        let all = join_all(others.iter().map(Other::settled));
        tokio::join!(self.own().cache().settled(), all);
    }

    /// Notes that the start of this replica has waited for them: from now on none but its own makes it unready.
    pub(super) fn on_start(&self) {
        self.shared.started.store(true, Ordering::Relaxed);
    }

    /// Judges every store for readiness: how long its watch may be down is up to the caller.
    pub(super) fn findings(&self, watch_down_limit: Duration) -> Vec<Finding> {
        let starting = !self.shared.started.load(Ordering::Relaxed);
        let own = self.own().cache().kinds();
        let mut findings: Vec<_> =
            own.iter().map(|status| readiness::finding(status, watch_down_limit)).collect();
        for other in self.others() {
            let kinds = other.cluster.cache().kinds();
            findings.extend(kinds.iter().map(|status| {
                let silent = status.down_since.is_some_and(|since| since.elapsed() >= PATIENCE);
                readiness::finding_elsewhere(status, starting && !silent, watch_down_limit)
            }));
        }
        findings
    }

    fn others(&self) -> Vec<Other> {
        self.shared.state.lock().others.clone()
    }
}

// === impl Other ===

impl Other {
    /// Waits until every store declared so far was tried to be listed, as long as there is patience.
    async fn settled(&self) {
        self.cluster.cache().tried(PATIENCE).await;
        self.tell();
    }

    /// Says what was waited for in vain, once for each store.
    fn tell(&self) {
        let silent = self.cluster.cache().unanswered(PATIENCE);
        let youngest = silent.iter().map(|(_, since)| *since).max();
        let news = {
            let mut told = self.told.lock();
            let news = youngest > *told;
            *told = youngest.max(*told);
            news
        };
        if news {
            // A kind may have several stores.
            let kinds: BTreeSet<_> = silent.iter().map(|(kind, _)| kind.to_string()).collect();
            let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
            let cluster = self.cluster.name();
            warn!(cluster, kinds, "no answer for {PATIENCE:?}; only what watches them waits any longer");
        }
    }
}

/// Runs what there is and what comes until told to stop, and returns when all of it has ended. Resumes the panic of any
/// of it, which ends the manager.
async fn run_all<T, F>(
    arrived: &Notify,
    take: impl Fn() -> Vec<T>,
    run: impl Fn(T, CancellationToken) -> F,
    stop: CancellationToken,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    loop {
        for one in take() {
            running.spawn(run(one, stop.clone()));
        }
        // The stop first: what comes beside it would be run for nothing.
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = arrived.notified() => {}
            Some(ended) = running.join_next() => resume_panic(ended),
        }
    }
    while let Some(ended) = running.join_next().await {
        resume_panic(ended);
    }
}

#[cfg(test)]
mod tests;
