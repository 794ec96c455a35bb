//! The future of one controller: sources, sync, terms, end.

use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, error_span, info, warn};

use super::directory::Wanted;
use super::port::{ControllerPort, Feed};
use super::worker::{WorkerContext, WorkerPool};
use super::{
    Controller, ControllerError, ControllerFuture, ControllerSettings, Environment, Failure, NamedTasks,
    Registration,
};
use crate::client::Writer;
use crate::key::Key;
use crate::queue::{State, WorkQueue};
use crate::reconcile::ReconcileError;
use crate::watch::SourcesSynced;

/// The running workers and sources of a controller; its end waits for all of them.
struct RunningParts<Q: Key> {
    pool: WorkerPool<Q>,
    sources: NamedTasks,
    /// The first failure of a source while the controller stops.
    failure: Option<Failure>,
}

// === impl Registration ===

impl<Q: Key> Registration<Q> {
    /// Makes the future that runs the controller, and the port to reach the controller until it ends. No
    /// source or worker runs before the first poll; keys and sources can be added at once.
    ///
    /// Its workers end with the term, so end the term first if running reconciles have to finish.
    pub(crate) fn open(
        mut self,
        mut environment: Environment,
    ) -> (ControllerFuture, Weak<ControllerPort<Q>>) {
        let name = Arc::clone(&self.controller.name);
        let initial = environment.settings.borrow_and_update().clone();
        let queue = WorkQueue::new(&name, initial.queue, initial.workers, &environment.queue_metrics);
        queue.set_leading(false);
        let (feeds, added) = mpsc::unbounded_channel();
        let port = Arc::new(ControllerPort {
            name: Arc::clone(&name),
            needs_lease: self.controller.needs_lease,
            queue,
            settings: environment.settings.clone(),
            open: environment.term.subscribe(),
            synced: SourcesSynced::default(),
            primary: self.controller.primary.clone(),
            panics: environment.metrics.source_panics.clone(),
            feeds,
        });
        for source in std::mem::take(&mut self.controller.sources) {
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
    registration: Registration<Q>,
    environment: Environment,
) -> Result<(), ControllerError> {
    let Environment {
        mut settings, term, directory, metrics, queue_metrics, stop, removal, observer, ..
    } = environment;
    let Registration { controller: Controller { primary, pause, writes, .. }, reconciler } = registration;
    removal.stage.send_modify(|stage| stage.living = true);
    let (name, queue) = (Arc::clone(&port.name), &port.queue);
    let lost = |(source, error): Failure| ControllerError::Source {
        controller: Arc::clone(&port.name),
        name: source,
        source: error,
    };
    let _listed = directory.enter(Arc::clone(&name), Arc::clone(&port) as _);
    let counted = metrics.of(&name);
    let mut run_environment = environment.runs.signed(Writer::controller(&name), Arc::new(writes));
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
        observer,
    });
    let mut work = RunningParts { pool, sources: NamedTasks::default(), failure: None };
    let mut open = term.subscribe();
    // A controller that is disabled stays registered, and runs neither sources nor workers.
    let enabled = settings.borrow().enabled;
    if !enabled {
        queue.shut_down();
        info!("disabled by the configuration; its sources are not started");
    }
    // `warm` once every source has synced; `syncing` while a source has not. A source that is added later
    // blocks no run.
    let (mut warm, mut syncing) = (false, enabled);
    let result = loop {
        let leading = warm && *open.borrow_and_update();
        queue.set_leading(leading);
        let ControllerSettings { workers, paused, .. } = *settings.borrow();
        work.pool.resize(if leading && !paused { workers } else { 0 });
        // Published after the change.
        counted.workers(workers);
        // Biased: at a stop, a source that ends is no failure. The failure of a source comes before its
        // missing sync, because the failure has the cause.
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            () = removal.leave.cancelled() => break Ok(()),
            Some(feed) = added.recv(), if enabled => {
                work.feed(feed, stop.clone());
                syncing = true;
            }
            Some(failure) = work.sources.failure() => break Err(lost(failure)),
            Some((_, source)) = work.pool.tasks.failure() => {
                break Err(ControllerError::WorkerPanicked { controller: name, source });
            }
            sync = port.synced.wait(), if syncing => match sync {
                Ok(()) => {
                    info!("every source has synced");
                    (warm, syncing) = (true, false);
                }
                Err(source) => break Err(lost((source, "it ended before it had synced".into()))),
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
        // Dropped at the next await. The key of each run returns to the queue, or counts as failed there.
        work.pool.tasks.abort_all();
        work.sources.abort_all();
        // Work that blocks its thread cannot be dropped, so its end is waited for: two controllers must not
        // run one key.
        work.ended().await;
    }
    let mut failure = work.failure.map(lost);
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
    /// Starts a source of the controller as a task that runs until `stop`.
    fn feed(&mut self, Feed { source, sink }: Feed<Q>, stop: CancellationToken) {
        let name = Arc::clone(sink.source());
        // Called in the task, so that a panic before the future is made is one of the task too.
        let run = async move { source.run(sink, stop).await };
        self.sources.spawn(name, run.in_current_span());
    }

    /// Waits until the workers and sources of the controller have ended; call it after they were stopped.
    ///
    /// # Cancel safety
    /// Call it again: ended parts stay ended, and a failure is kept.
    async fn ended(&mut self) {
        self.pool.ended().await;
        while let Some(failure) = self.sources.failure().await {
            self.failure.get_or_insert(failure);
        }
    }

    /// Returns the names of the keys and sources of the controller that still run.
    fn late(&mut self, queue: &WorkQueue<Q>) -> Vec<String> {
        // Sources may have ended during the wait for the workers.
        while let Some(Some(failure)) = self.sources.failure().now_or_never() {
            self.failure.get_or_insert(failure);
        }
        let mut late = Vec::new();
        let running = Wanted { states: vec![State::Running, State::Dirty], ..Wanted::default() };
        queue.visit(|snapshot| {
            if running.admits(&snapshot) {
                late.push(snapshot.key.to_string());
            }
        });
        late.extend(self.sources.names().map(|name| format!("source {name}")));
        late
    }
}
