//! The life of one controller: sources, sync, terms, end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, error, error_span, info, warn};

use super::directory::Wanted;
use super::post::{Feed, Post};
use super::worker::{Crew, Workplace};
use super::{ControllerError, ControllerSettings, Environment, Life, Wired};
use crate::client::Writer;
use crate::key::{Key, panic_text};
use crate::queue::{State, WorkQueue};
use crate::reconcile::ReconcileError;
use crate::watch::{SourceError, SourcesSynced};

/// How a source ended: with a result, or a panic that was caught.
type Fed = std::thread::Result<Result<(), SourceError>>;
/// How its task ended: so, or aborted.
type SourceEnded = Result<(task::Id, Fed), JoinError>;

/// What of a controller runs, and is waited for at its end.
struct AtWork<Q: Key> {
    name: Arc<str>,
    crew: Crew<Q>,
    feeds: JoinSet<Fed>,
    /// What the sources call themselves that have not ended.
    names: BTreeMap<task::Id, Arc<str>>,
    /// The first failure of a source.
    failure: Option<ControllerError>,
}

// === impl Wired ===

impl<Q: Key> Wired<Q> {
    /// Puts the controller together: its life, and the means to reach it until that ends. Nothing runs before the life
    /// is polled; until then it takes keys and sources.
    ///
    /// Its workers end with the term, so the caller ends the term first if running reconciles are to finish.
    pub(crate) fn open(mut self, name: Arc<str>, mut environment: Environment) -> (Life, Weak<Post<Q>>) {
        let initial = environment.settings.borrow_and_update().clone();
        let queue = WorkQueue::new(&name, initial.queue, initial.workers, &environment.queue_metrics);
        queue.set_leading(false);
        let (feeds, added) = mpsc::unbounded_channel();
        let post = Arc::new(Post {
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
            post.add_source(source);
        }
        let reach = Arc::downgrade(&post);
        let life = async move {
            // An error's level: a line must name its controller wherever it is shown.
            let span = error_span!("controller", controller = &*name);
            live(post, added, self, environment).instrument(span).await
        };
        (Box::pin(life), reach)
    }
}

async fn live<Q: Key>(
    post: Arc<Post<Q>>,
    mut added: mpsc::UnboundedReceiver<Feed<Q>>,
    wired: Wired<Q>,
    environment: Environment,
) -> Result<(), ControllerError> {
    let Environment { mut settings, term, directory, metrics, queue_metrics, stop, departure, .. } =
        environment;
    let Wired { primary, pause, writes, reconciler, .. } = wired;
    departure.stage.send_modify(|stage| stage.living = true);
    let (name, queue) = (Arc::clone(&post.name), &post.queue);
    let _listed = directory.enter(Arc::clone(&name), Arc::clone(&post) as _);
    let counted = metrics.of(&name);
    let mut surroundings = environment.surroundings.signed(Writer::controller(&name), writes);
    let stopping = surroundings.stopping.child_token();
    surroundings.stopping = stopping.clone();
    let workplace = Workplace {
        name: Arc::clone(&name),
        primary,
        queue: queue.clone(),
        reconciler,
        surroundings: Arc::new(surroundings),
        settings: settings.clone(),
        term: term.clone(),
        metrics: counted.clone(),
        pause,
    };
    let crew = Crew::new(workplace);
    let mut work = AtWork {
        name: Arc::clone(&name),
        crew,
        feeds: JoinSet::new(),
        names: BTreeMap::new(),
        failure: None,
    };
    let mut open = term.subscribe();
    // A controller that is disabled stays registered, and runs neither sources nor workers.
    let enabled = settings.borrow().enabled;
    if !enabled {
        queue.shut_down();
        info!("disabled by the configuration; it starts with none of its sources");
    }
    // Whether every source has synced once, and whether one is waited for now: a source added later holds nobody up.
    let (mut warm, mut syncing) = (false, enabled);
    let result = loop {
        let leading = warm && *open.borrow_and_update();
        queue.set_leading(leading);
        let ControllerSettings { workers, paused, .. } = *settings.borrow();
        work.crew.resize(if leading && !paused { workers } else { 0 });
        // Told once it is so.
        counted.workers(workers);
        // Biased: when all is told to stop, a source that ends is no failure. A failed one before its missing sync,
        // which says less.
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            () = departure.leave.cancelled() => break Ok(()),
            Some(feed) = added.recv(), if enabled => {
                work.feed(feed, stop.clone());
                syncing = true;
            }
            Some(ended) = work.feeds.join_next_with_id() => {
                if let Some(error) = work.source_failure(ended) {
                    break Err(error);
                }
            }
            Some(source) = work.crew.failure() => {
                break Err(ControllerError::WorkerPanicked { controller: name, source });
            }
            sync = post.synced.wait(), if syncing => match sync {
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
    // The queue first: what sources still add is refused, and no worker takes another key.
    queue.shut_down();
    stopping.cancel();
    stop.cancel();
    work.crew.resize(0);
    let in_time = tokio::select! {
        // Biased: what ends at the last moment is in time.
        biased;
        () = work.ended() => true,
        () = departure.overdue() => false,
    };
    if !in_time {
        let late = work.late(queue);
        warn!(late = late.join(", "), "still running when the time for its removal was over; dropped");
        departure.stage.send_modify(|stage| stage.late = late);
        work.drop_all();
        // What blocks its thread cannot be dropped, and is still waited for: two controllers must not run one key.
        work.ended().await;
    }
    let mut failure = work.failure.take();
    if departure.leave.is_cancelled() {
        counted.remove();
        queue.leave(&queue_metrics);
        // A source that fails while it is told to go takes nobody along.
        if let Some(failure) = failure.take() {
            error!(error = %ReconcileError::from(failure), "failed while being removed");
        }
        info!("removed");
    }
    departure.stage.send_modify(|stage| stage.living = false);
    result.and(failure.map_or(Ok(()), Err))
}

// === impl AtWork ===

impl<Q: Key> AtWork<Q> {
    /// Starts a source.
    fn feed(&mut self, Feed { source, sink }: Feed<Q>, stop: CancellationToken) {
        // Caught here, so that the panic names its controller instead of vanishing into a JoinError. A source that
        // panics before it has made its future is caught as well.
        let name = Arc::clone(sink.source());
        let feed = AssertUnwindSafe(async move { source.run(sink, stop).await }).catch_unwind();
        let task = self.feeds.spawn(feed.in_current_span());
        self.names.insert(task.id(), name);
    }

    /// Waits until workers and sources have ended; call after they were told to.
    ///
    /// # Cancel safety
    /// Call it again: who has ended stays ended, and a failure is kept.
    async fn ended(&mut self) {
        self.crew.ended().await;
        while let Some(ended) = self.feeds.join_next_with_id().await {
            self.note(ended);
        }
    }

    /// Keeps the first failure.
    fn note(&mut self, ended: SourceEnded) {
        let failure = self.source_failure(ended);
        self.failure = self.failure.take().or(failure);
    }

    /// Names what has not ended: the keys that run, and the sources.
    fn late(&mut self, queue: &WorkQueue<Q>) -> Vec<String> {
        // Sources that have ended while the workers were waited for.
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
        self.crew.drop_all();
        self.feeds.abort_all();
    }

    /// What the task of a source says that has ended: nothing if all is well.
    fn source_failure(&mut self, ended: SourceEnded) -> Option<ControllerError> {
        let controller = Arc::clone(&self.name);
        let task = ended.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        let name = self.names.remove(&task).unwrap_or_default();
        match ended {
            // A panic was caught in the task, so a lost one is the runtime shutting down, or late and dropped.
            Ok((_, Ok(Ok(())))) | Err(_) => None,
            Ok((_, Ok(Err(source)))) => Some(ControllerError::Source { controller, source }),
            Ok((_, Err(panic))) => {
                let (name, message) = (name.to_string(), panic_text(&*panic).to_owned());
                Some(ControllerError::SourcePanicked { controller, name, message })
            }
        }
    }
}
