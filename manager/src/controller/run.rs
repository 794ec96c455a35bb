//! The life of one controller: sources, sync, terms, end.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tracing::{Instrument as _, debug, info, info_span};

use super::directory::Insight;
use super::worker::{Crew, Workplace};
use super::{ControllerError, Environment};
use crate::key::Key;
use crate::queue::WorkQueue;
use crate::reconcile::DynReconciler;
use crate::watch::{Sink, Source, SourceError};

/// Runs a controller until it is stopped or one of its sources fails.
///
/// Its workers end with the term, so the caller ends the term first if running reconciles are to finish.
pub(super) async fn run<Q: Key>(
    name: &'static str,
    sources: Vec<Box<dyn Source<Q>>>,
    reconciler: Arc<dyn DynReconciler<Q>>,
    environment: Environment,
) -> Result<(), ControllerError> {
    let span = info_span!("controller", controller = name);
    live(name, sources, reconciler, environment).instrument(span).await
}

async fn live<Q: Key>(
    name: &'static str,
    sources: Vec<Box<dyn Source<Q>>>,
    reconciler: Arc<dyn DynReconciler<Q>>,
    environment: Environment,
) -> Result<(), ControllerError> {
    let Environment {
        mut settings,
        surroundings,
        needs_lease,
        term,
        directory,
        metrics,
        queue_metrics,
        stop,
    } = environment;
    let initial = settings.borrow_and_update().clone();
    let queue = WorkQueue::new(name, initial.queue, initial.workers, &queue_metrics);

    let (sinks, mut synced) = Sink::for_sources(&queue, sources.len());
    let _listed = directory.enter(Insight {
        name,
        needs_lease,
        queue: queue.clone(),
        settings: settings.clone(),
        open: term.subscribe(),
        synced: synced.clone(),
    });

    let mut feeds = JoinSet::new();
    for (source, sink) in sources.into_iter().zip(sinks) {
        // Caught here, so that the panic names its controller instead of vanishing into a JoinError.
        let feed = AssertUnwindSafe(source.run(sink, stop.clone())).catch_unwind();
        feeds.spawn(feed.in_current_span());
    }

    let counted = metrics.of(name);
    let workplace = Workplace {
        name,
        queue: queue.clone(),
        reconciler,
        surroundings: Arc::new(surroundings),
        settings: settings.clone(),
        term: term.clone(),
        metrics: counted.clone(),
    };
    let mut crew = Crew::new(workplace);
    let mut open = term.subscribe();
    let mut warm = false;
    let result = loop {
        let leading = warm && *open.borrow_and_update();
        queue.set_leading(leading);
        let workers = settings.borrow().workers;
        counted.workers(workers);
        crew.resize(if leading { workers } else { 0 });
        // Biased: when all is told to stop, a source that ends is no failure. A failed one before its missing sync,
        // which says less.
        tokio::select! {
            biased;
            () = stop.cancelled() => break Ok(()),
            Some(ended) = feeds.join_next() => {
                if let Some(error) = source_failure(name, ended) {
                    break Err(error);
                }
            }
            Some(source) = crew.failure() => {
                break Err(ControllerError::WorkerPanicked { controller: name, source });
            }
            sync = synced.wait(), if !warm => match sync {
                Ok(()) => {
                    info!("every source has synced");
                    warm = true;
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
    crew.resize(0);
    crew.ended().await;
    stop.cancel();
    while let Some(ended) = feeds.join_next().await {
        if let (Some(error), true) = (source_failure(name, ended), result.is_ok()) {
            return Err(error);
        }
    }
    result
}

/// What ended tasks of sources say: nothing if all is well.
fn source_failure(
    controller: &'static str,
    ended: Result<std::thread::Result<Result<(), SourceError>>, tokio::task::JoinError>,
) -> Option<ControllerError> {
    match ended {
        // A panic was caught in the task and nobody aborts these, so a lost one is the runtime shutting down.
        Ok(Ok(Ok(()))) | Err(_) => None,
        Ok(Ok(Err(source))) => Some(ControllerError::Source { controller, source }),
        Ok(Err(panic)) => {
            Some(ControllerError::SourcePanicked { controller, message: panic_message(&*panic).to_owned() })
        }
    }
}

/// Returns the text a panic was raised with, where it was a text.
pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a text")
}
