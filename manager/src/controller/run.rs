//! The future of one controller: sources, sync, terms, end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, error_span, info, warn};

use super::directory::Wanted;
use super::port::{ControllerPort, Feed};
use super::worker::{WorkerContext, WorkerPool};
use super::{ControllerError, ControllerFuture, ControllerSettings, Environment, Wired};
use crate::client::Writer;
use crate::key::{Key, panic_text};
use crate::queue::{State, WorkQueue};
use crate::reconcile::ReconcileError;
use crate::watch::{SourceError, SourcesSynced};

/// The end of a source: a result, or a panic that was caught.
type Fed = std::thread::Result<Result<(), SourceError>>;
/// The end of the task of a source: an end of the source, or an abort.
type SourceEnded = Result<(task::Id, Fed), JoinError>;

/// The running parts of a controller; its end waits for all of them.
struct RunningParts<Q: Key> {
    name: Arc<str>,
    pool: WorkerPool<Q>,
    feeds: JoinSet<Fed>,
    /// The names of the sources that run.
    names: BTreeMap<task::Id, Arc<str>>,
    /// The first failure of a source.
    failure: Option<ControllerError>,
}

// === impl Wired ===

impl<Q: Key> Wired<Q> {
    /// Makes the future of the controller, and the port to reach it until it ends. Nothing runs before the first poll; keys
    /// and sources can be added at once.
    ///
    /// Its workers end with the term, so end the term first if running reconciles have to finish.
    pub(crate) fn open(
        mut self,
        name: Arc<str>,
        mut environment: Environment,
    ) -> (ControllerFuture, Weak<ControllerPort<Q>>) {
        let initial = environment.settings.borrow_and_update().clone();
        let queue = WorkQueue::new(&name, initial.queue, initial.workers, &environment.queue_metrics);
        queue.set_leading(false);
        let (feeds, added) = mpsc::unbounded_channel();
        let port = Arc::new(ControllerPort {
            name: Arc::clone(&name),
            needs_lease: environment.needs_lease,
            queue,
            settings: environment.settings.clone(),
            open: environment.term.subscribe(),
            synced: SourcesSynced::default(),
            primary: self.primary.clone(),
            metrics: environment.metrics.sources.clone(),
            feeds,
        });
        for source in self.sources.drain(..) {
            port.add_source(source);
        }
        let reach = Arc::downgrade(&port);
        let life = async move {
            // At level error, so that every line shows the controller, whatever the log level.
            let span = error_span!("controller", controller = &*name);
            live(port, added, self, environment).instrument(span).await
        };
        (Box::pin(life), reach)
    }
}

async fn live<Q: Key>(
    port: Arc<ControllerPort<Q>>,
    mut added: mpsc::UnboundedReceiver<Feed<Q>>,
    wired: Wired<Q>,
    environment: Environment,
) -> Result<(), ControllerError> {
    let Environment { mut settings, term, directory, metrics, queue_metrics, stop, removal, .. } =
        environment;
    let Wired { primary, pause, writes, reconciler, .. } = wired;
    removal.stage.send_modify(|stage| stage.living = true);
    let (name, queue) = (Arc::clone(&port.name), &port.queue);
    let _listed = directory.enter(Arc::clone(&name), Arc::clone(&port) as _);
    let counted = metrics.of(&name);
    let mut run_environment = environment.runs.signed(Writer::controller(&name), writes);
    let stopping = run_environment.stopping.child_token();
    run_environment.stopping = stopping.clone();
    let pool = WorkerPool::new(WorkerContext {
        name: Arc::clone(&name),
        primary,
        queue: queue.clone(),
        reconciler,
        run_environment: Arc::new(run_environment),
        settings: settings.clone(),
        term: term.clone(),
        metrics: counted.clone(),
        pause,
    });
    let (names, feeds) = (BTreeMap::new(), JoinSet::new());
    let mut work = RunningParts { name: Arc::clone(&name), pool, feeds, names, failure: None };
    let mut open = term.subscribe();
    // A controller that is disabled stays registered, and runs neither sources nor workers.
    let enabled = settings.borrow().enabled;
    if !enabled {
        queue.shut_down();
        info!("disabled by the configuration; its sources are not started");
    }
    // `warm` once every source has synced; `syncing` while a source has not. A source that is added later blocks no run.
    let (mut warm, mut syncing) = (false, enabled);
    let result = loop {
        let leading = warm && *open.borrow_and_update();
        queue.set_leading(leading);
        let ControllerSettings { workers, paused, .. } = *settings.borrow();
        work.pool.resize(if leading && !paused { workers } else { 0 });
        // Published after the change.
        counted.workers(workers);
        // Biased: at a stop, a source that ends is no failure. The failure of a source comes before its missing sync,
        // because the failure has the cause.
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            () = removal.leave.cancelled() => break Ok(()),
            Some(feed) = added.recv(), if enabled => {
                work.feed(feed, stop.clone());
                syncing = true;
            }
            Some(ended) = work.feeds.join_next_with_id() => {
                if let Some(error) = work.source_failure(ended) {
                    break Err(error);
                }
            }
            Some(source) = work.pool.failure() => {
                break Err(ControllerError::WorkerPanicked { controller: name, source });
            }
            sync = port.synced.wait(), if syncing => match sync {
                Ok(()) => {
                    info!("every source has synced");
                    (warm, syncing) = (true, false);
                }
                Err(source) => break Err(ControllerError::NeverSynced { controller: name, source }),
            },
            Ok(()) = open.changed() => debug!(leading = *open.borrow(), "term changed"),
            Ok(()) = settings.changed() => {
                let now = settings.borrow_and_update().clone();
                queue.reconfigure(now.queue, now.workers);
            }
        }
    };
    // The queue first: it refuses further adds of the sources, and workers take no more keys.
    queue.shut_down();
    stopping.cancel();
    stop.cancel();
    work.pool.resize(0);
    let in_time = tokio::select! {
        // Biased: an end at the last moment is in time.
        biased;
        () = work.ended() => true,
        () = removal.overdue() => false,
    };
    if !in_time {
        let late = work.late(queue);
        warn!(late = late.join(", "), "still running after the grace period of the removal; dropped");
        removal.stage.send_modify(|stage| stage.late = late);
        work.drop_all();
        // Work that blocks its thread cannot be dropped, so its end is waited for: two controllers must not run one key.
        work.ended().await;
    }
    let mut failure = work.failure.take();
    if removal.leave.is_cancelled() {
        counted.remove();
        queue.leave(&queue_metrics);
        // A source that fails during the removal does not end the manager.
        if let Some(failure) = failure.take() {
            error!(error = %ReconcileError::from(failure), "failed while being removed");
        }
        info!("removed");
    }
    removal.stage.send_modify(|stage| stage.living = false);
    result.and(failure.map_or(Ok(()), Err))
}

// === impl RunningParts ===

impl<Q: Key> RunningParts<Q> {
    /// Starts a source.
    fn feed(&mut self, Feed { source, sink }: Feed<Q>, stop: CancellationToken) {
        // Caught here, so that the panic names its controller instead of vanishing into a JoinError. A source that
        // panics before it has made its future is caught as well.
        let name = Arc::clone(sink.source());
        let feed = AssertUnwindSafe(async move { source.run(sink, stop).await }).catch_unwind();
        let task = self.feeds.spawn(feed.in_current_span());
        self.names.insert(task.id(), name);
    }

    /// Waits until workers and sources have ended; call it after they were stopped.
    ///
    /// # Cancel safety
    /// Call it again: ended parts stay ended, and a failure is kept.
    async fn ended(&mut self) {
        self.pool.ended().await;
        while let Some(ended) = self.feeds.join_next_with_id().await {
            self.note(ended);
        }
    }

    /// Keeps the first failure.
    fn note(&mut self, ended: SourceEnded) {
        let failure = self.source_failure(ended);
        self.failure = self.failure.take().or(failure);
    }

    /// Returns the names of the parts that still run: keys and sources.
    fn late(&mut self, queue: &WorkQueue<Q>) -> Vec<String> {
        // Sources may have ended during the wait for the workers.
        while let Some(ended) = self.feeds.try_join_next_with_id() {
            self.note(ended);
        }
        let mut late = Vec::new();
        let running = Wanted { states: vec![State::Running, State::Dirty], ..Wanted::default() };
        queue.visit(|snapshot| {
            if running.admits(&snapshot) {
                late.push(snapshot.key.to_string());
            }
        });
        late.extend(self.names.values().map(|name| format!("source {name}")));
        late
    }

    /// Drops everything at its next await.
    fn drop_all(&mut self) {
        self.pool.drop_all();
        self.feeds.abort_all();
    }

    /// Returns the failure of a source whose task has ended; `None` if it ended in order.
    fn source_failure(&mut self, ended: SourceEnded) -> Option<ControllerError> {
        let controller = Arc::clone(&self.name);
        let task = ended.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        let name = self.names.remove(&task).unwrap_or_default();
        match ended {
            // Panics are caught in the task, so this task was aborted: it was late, or the runtime shuts down.
            Ok((_, Ok(Ok(())))) | Err(_) => None,
            Ok((_, Ok(Err(source)))) => Some(ControllerError::Source { controller, source }),
            Ok((_, Err(panic))) => {
                let (name, message) = (name.to_string(), panic_text(&*panic).to_owned());
                Some(ControllerError::SourcePanicked { controller, name, message })
            }
        }
    }
}
