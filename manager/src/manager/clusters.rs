//! The clusters of one manager: they run caches and writers of Events, and wait for first lists.
//!
//! # Invariants
//! 1. A name is taken once. The cache and the writer of a cluster run once, also if it is added while the
//!    manager runs.
//! 2. The wait for the manager's own cluster has no limit, because every controller needs it. The wait for a
//!    store of another cluster ends with its first list, a failure, or after [`PATIENCE`].

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

use super::cluster::Cluster;
use super::{RegisterError, readiness};
use crate::client::EventWriter;
use crate::health::Finding;
use crate::util::resume_panic;

/// Longest wait at the start for a store of another cluster that neither answers nor fails: as long as
/// opening a connection may take, so that a server that drops all packets counts like one that refuses them.
const PATIENCE: Duration = Duration::from_secs(30);

/// All clusters of one manager. Cheap to clone; all clones are the same clusters.
#[derive(Clone)]
pub(super) struct Clusters {
    shared: Arc<Shared>,
}

struct Shared {
    own: Cluster,
    state: Mutex<State>,
    /// Whether the start of this replica has ended its wait for the first lists of all clusters; never reset.
    /// Relaxed, because a probe may be late by a moment.
    started: AtomicBool,
    /// Has a permit while there is a cluster with a cache that does not run.
    caches: Notify,
    /// Has a permit while there is a writer of Events that does not run.
    writers: Notify,
}

#[derive(Default)]
struct State {
    /// Whether the manager has begun to stop, so that new clusters are refused.
    closed: bool,
    /// The clusters except the manager's own, in the order they were added.
    others: Vec<Other>,
    /// The clusters with a cache that does not run yet.
    idle: Vec<Cluster>,
    /// The writers of Events that do not run yet.
    writers: Vec<EventWriter>,
}

/// A cluster other than the manager's own.
#[derive(Clone)]
struct Other {
    cluster: Cluster,
    /// The start of the youngest store for which the log has reported that it did not answer in time; `None`
    /// before such a report.
    logged: Arc<Mutex<Option<Instant>>>,
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

    /// Returns the manager's own cluster.
    pub(super) fn own(&self) -> &Cluster {
        &self.shared.own
    }

    /// Returns the cluster of this name, the manager's own for `None`; `None` if there is no such cluster.
    pub(super) fn find(&self, name: Option<&str>) -> Option<Cluster> {
        let Some(name) = name else { return Some(self.own().clone()) };
        self.others().into_iter().map(|other| other.cluster.clone()).find(|cluster| cluster.name() == name)
    }

    /// Adds the cluster that `make` returns under this name, if the name is not taken and the manager is not
    /// stopping.
    pub(super) fn add(
        &self,
        name: &Arc<str>,
        make: impl FnOnce() -> Result<(Cluster, EventWriter), RegisterError>,
    ) -> Result<Cluster, RegisterError> {
        let may_come = |state: &State| {
            if state.closed {
                return Err(RegisterError::Stopped { name: Arc::clone(name) });
            }
            if state.others.iter().any(|other| other.cluster.name() == &**name) {
                return Err(RegisterError::DuplicateName { part: "cluster", name: Arc::clone(name) });
            }
            Ok(())
        };
        may_come(&self.shared.state.lock())?;
        // Without the lock, because it reads files and runs plug-ins.
        let (cluster, writer) = make()?;
        {
            let mut state = self.shared.state.lock();
            may_come(&state)?;
            state.others.push(Other { cluster: cluster.clone(), logged: Arc::default() });
            state.idle.push(cluster.clone());
            state.writers.push(writer);
        }
        self.shared.caches.notify_one();
        self.shared.writers.notify_one();
        Ok(cluster)
    }

    /// Refuses new clusters from now on.
    pub(super) fn close(&self) {
        self.shared.state.lock().closed = true;
    }
}

/// The tasks of all clusters that run with the manager.
impl Clusters {
    /// Runs the caches of all clusters, also of those added later, until `stop`. Returns when all tasks have
    /// ended.
    pub(super) async fn run_caches(self, stop: CancellationToken) {
        let take = || std::mem::take(&mut self.shared.state.lock().idle);
        let run = |cluster: Cluster, stop| async move { cluster.cache().run(stop).await };
        run_all(&self.shared.caches, take, run, stop).await;
    }

    /// Writes the recorded Events of all clusters until `stop`, and then for at most `flush` those that are
    /// left.
    pub(super) async fn run_writers(self, stop: CancellationToken, flush: Duration) {
        let take = || std::mem::take(&mut self.shared.state.lock().writers);
        let run = |writer: EventWriter, stop| writer.run(stop, flush);
        run_all(&self.shared.writers, take, run, stop).await;
    }

    /// Waits until every store that is declared now, in all clusters, has been listed, or the wait for it has
    /// ended.
    ///
    /// # Cancel safety
    /// Call it again; that does not lengthen the wait.
    pub(super) async fn settled(&self) {
        let others = self.others();
        let all = join_all(others.iter().map(Other::settled));
        tokio::join!(self.own().cache().settled(), all);
    }

    /// Ends the start, during which other clusters count for readiness too: from now on only the stores of
    /// the manager's own cluster make this replica unready.
    pub(super) fn on_start(&self) {
        self.shared.started.store(true, Ordering::Relaxed);
    }

    /// Returns the result of the readiness check of every store of all clusters. A watch counts as broken
    /// once it has been down for `watch_down_limit`.
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
    /// Waits until the first list of every store of this cluster declared now was tried, for at most
    /// [`PATIENCE`].
    async fn settled(&self) {
        self.cluster.cache().tried(PATIENCE).await;
        self.log_unanswered();
    }

    /// Logs the kinds of this cluster with stores that did not answer in time, once each.
    fn log_unanswered(&self) {
        let silent = self.cluster.cache().unanswered(PATIENCE);
        let youngest = silent.iter().map(|(_, since)| *since).max();
        let news = {
            let mut logged = self.logged.lock();
            let news = youngest > *logged;
            *logged = youngest.max(*logged);
            news
        };
        if news {
            // A kind may have several stores.
            let kinds: BTreeSet<_> = silent.iter().map(|(kind, _)| kind.to_string()).collect();
            let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
            let cluster = self.cluster.name();
            warn!(
                cluster,
                kinds, "no answer for {PATIENCE:?}; starting without these kinds, and their controllers wait"
            );
        }
    }
}

/// Runs a task for every item that `take` returns, also for those added later, until `stop`, and returns when
/// all tasks have ended. Resumes the panic of a task, which ends the manager.
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
        // Biased: after the stop, no item is started.
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
