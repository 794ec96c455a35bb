//! The workers of one controller: they take keys, run the reconciler and return each key with its outcome.
//!
//! # Invariants
//! 1. A worker returns each key that it took with exactly one outcome.
//! 2. A smaller number of workers never cancels a run: a worker ends between two runs.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span, debug, error, error_span, trace};

use super::metrics::{Counted, OneController};
use super::term::{Term, Work};
use super::{ControllerSettings, NamedTasks, RunObserver};
use crate::key::{Key, KindId, panic_text};
use crate::queue::{Retried, Running, WorkQueue};
use crate::reconcile::{Context, DynReconciler, Outcome, ReconcileError, Retry, RunEnvironment};

/// A function that returns whether the object of a key is paused by annotation, so that the key is not
/// reconciled.
pub(super) type Pause<Q> = Arc<dyn Fn(&Q) -> bool + Send + Sync>;

/// The reason that the queue shows for a parked key with a paused object.
const PAUSED: &str = "paused by annotation mainstay.dev/paused";

/// The data that all workers of one controller share.
pub(super) struct WorkerContext<Q: Key> {
    pub(super) name: Arc<str>,
    /// The kind of the objects that the keys name, for the log.
    pub(super) primary: Option<KindId>,
    pub(super) queue: WorkQueue<Q>,
    pub(super) reconciler: Arc<dyn DynReconciler<Q>>,
    pub(super) run_environment: Arc<RunEnvironment>,
    pub(super) settings: watch::Receiver<ControllerSettings>,
    pub(super) term: Term,
    pub(super) metrics: OneController,
    pub(super) pause: Option<Pause<Q>>,
    pub(super) observer: Option<RunObserver>,
}

/// The workers of a controller. Their number can change while they run.
pub(super) struct WorkerPool<Q: Key> {
    worker_context: Arc<WorkerContext<Q>>,
    state_of_pool: Arc<PoolState>,
    /// The running workers; each fails only by a panic outside of a reconcile.
    pub(super) tasks: NamedTasks,
}

/// The wanted number of workers, and the numbers of those that run, each different: there are never more runs
/// at the same time than the largest number of workers that was wanted since the last of them began.
#[derive(Default)]
struct PoolState {
    /// The wanted number of workers; changed only under `present`. A worker ends if its own number is not
    /// below it.
    wanted: watch::Sender<usize>,
    present: Mutex<BTreeSet<usize>>,
}

// === impl WorkerPool ===

impl<Q: Key> WorkerPool<Q> {
    pub(super) fn new(worker_context: WorkerContext<Q>) -> Self {
        let (worker_context, state_of_pool) = (Arc::new(worker_context), Arc::default());
        Self { worker_context, state_of_pool, tasks: NamedTasks::default() }
    }

    /// Sets the number of workers of the controller. Surplus workers end after their present run.
    pub(super) fn resize(&mut self, wanted: usize) {
        for number in self.state_of_pool.hire(wanted) {
            let worker = work(Arc::clone(&self.worker_context), Arc::clone(&self.state_of_pool), number);
            self.tasks.spawn("worker".into(), worker.map(Ok).in_current_span());
        }
    }

    /// Waits until every worker of the controller has ended; call after `resize(0)`.
    pub(super) async fn ended(&mut self) {
        while self.tasks.failure().await.is_some() {}
    }
}

async fn work<Q: Key>(worker_context: Arc<WorkerContext<Q>>, state_of_pool: Arc<PoolState>, number: usize) {
    let mut wanted = state_of_pool.wanted.subscribe();
    let mut open = worker_context.term.subscribe();
    loop {
        if state_of_pool.may_leave(number) {
            return;
        }
        // Biased: a worker that has to end takes no more keys.
        let running = tokio::select! {
            biased;
            _ = wanted.wait_for(|wanted| number >= *wanted) => continue,
            running = worker_context.queue.get() => running,
        };
        let Some(running) = running else {
            state_of_pool.present.lock().remove(&number);
            return;
        };
        if let Some(permit) = worker_context.term.enter(Arc::clone(&worker_context.name)) {
            // A panic of user code outside of the reconcile, such as in the `Display` of an error, does not
            // end the worker. The guard of the key counts it as a failure.
            let run = AssertUnwindSafe(worker_context.run(running, permit)).catch_unwind();
            if let Err(panic) = run.await {
                worker_context.metrics.panics.inc();
                error!(
                    controller = &*worker_context.name,
                    panic = panic_text(&*panic),
                    "a run panicked after its reconcile"
                );
            }
        } else {
            // The term ended after `get`. Waits for the next one, instead of spinning on the same key.
            running.put_back();
            // The order does not matter: the loop checks both again.
            tokio::select! {
                _ = wanted.wait_for(|wanted| number >= *wanted) => {}
                _ = open.wait_for(|open| *open) => {}
            }
        }
    }
}

// === impl PoolState ===

impl PoolState {
    /// Sets the wanted number of workers and returns the numbers of the workers to start. A worker that
    /// should have ended and still runs simply stays.
    fn hire(&self, wanted: usize) -> Vec<usize> {
        let mut present = self.present.lock();
        self.wanted.send_if_modified(|now| std::mem::replace(now, wanted) != wanted);
        (0..wanted).filter(|number| present.insert(*number)).collect()
    }

    /// Removes a worker from the pool if its number is not wanted any more. Returns whether it was removed,
    /// and must end.
    fn may_leave(&self, number: usize) -> bool {
        let mut present = self.present.lock();
        let leaves = number >= *self.wanted.borrow();
        if leaves {
            present.remove(&number);
        }
        leaves
    }
}

// === impl WorkerContext ===

impl<Q: Key> WorkerContext<Q> {
    async fn run(&self, running: Running<Q>, permit: Work) {
        if self.pause.as_ref().is_some_and(|is_paused| is_paused(running.key())) {
            debug!(controller = &*self.name, key = %running.key(), "not reconciled, because it is paused");
            // The end of the pause is a strong add, which unparks the key; so is a deletion.
            running.park(PAUSED);
            return;
        }
        trace!(controller = &*self.name, key = %running.key(), "key taken by a worker");
        let limit = self.settings.borrow().reconcile_timeout;
        let deadline = if limit.is_zero() { None } else { Instant::now().checked_add(limit) };
        let cx = Context::new(Arc::clone(&self.run_environment), running.attempt(), running.cause().clone());
        let cx = cx.with_key(running.key()).within(permit.term(), deadline);
        let key = running.key().clone();
        // At level error, so that every line of the run shows the object, whatever the log level.
        let span = error_span!(
            parent: Span::none(),
            "reconcile",
            controller = &*self.name,
            controllerGroup = self.primary.as_ref().map(KindId::group),
            controllerKind = self.primary.as_ref().map(KindId::kind),
            namespace = key.namespace(),
            name = key.name(),
            reconcileID = %cx.reconcile_id(),
            attempt = cx.attempt(),
            cause = %cx.cause(),
        );
        async {
            debug!("reconciling");
            let outcome = {
                let _active = self.metrics.started();
                self.reconcile(&key, &cx, limit, &permit).await
            };
            self.conclude(running, outcome);
        }
        .instrument(span)
        .await;
        // The work ends here, after the key is back on the queue.
        drop(permit);
    }

    /// Calls the reconciler for a key and counts a panic or a timeout in the metrics. `None` if the Lease was
    /// lost: the run was dropped.
    async fn reconcile(&self, key: &Q, cx: &Context, limit: Duration, permit: &Work) -> Option<Outcome> {
        // The future is made inside `async`, so that a panic before its first await is caught too. It is
        // unwind safe, because the state of this run is not used after a panic.
        let run = AssertUnwindSafe(async { self.reconciler.reconcile(key, cx).await }).catch_unwind();
        let run = async {
            match cx.deadline() {
                Some(deadline) => timeout_at(deadline, run).await,
                None => Ok(run.await),
            }
        };
        // Biased: a run that has ended when the Lease is lost counts.
        tokio::select! {
            biased;
            ended = run => Some(match ended {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(panic)) => {
                    self.metrics.panics.inc();
                    Err(format!("panic: {}", panic_text(&*panic)).into())
                }
                Err(_elapsed) => {
                    self.metrics.timeouts.inc();
                    Err(format!("no outcome within reconcileTimeout {limit:?}").into())
                }
            }),
            () = permit.lost() => None,
        }
    }

    /// Returns the key to the queue after a reconcile, counts the outcome in the metrics and logs it. The
    /// table in the doc of `reconcile` describes this function.
    fn conclude(&self, running: Running<Q>, outcome: Option<Outcome>) {
        if let (Some(observer), Some(outcome)) = (&self.observer, &outcome) {
            observer(&self.name, running.key(), outcome);
        }
        match outcome {
            Some(Ok(action)) => {
                if let Some(delay) = action.requeue() {
                    self.metrics.count(Counted::requeue_after);
                    running.requeue_after(delay);
                } else {
                    self.metrics.count(Counted::success);
                    running.done();
                }
            }
            Some(Err(failure)) => self.failed(running, &failure),
            None => {
                debug!("dropped, because the Lease was lost");
                running.put_back();
            }
        }
    }

    fn failed(&self, running: Running<Q>, failure: &ReconcileError) {
        let error = failure.to_string();
        let retry = failure.retry();
        let retried = running.fail(&error, retry);
        let is_terminal = retry == Retry::Never;
        if is_terminal {
            self.metrics.terminal_errors.inc();
        }
        let is_conflict = !is_terminal && failure.is_conflict();
        // A single conflict is neither logged nor counted as an error; the one that parks the key is.
        let retry_is_expected = is_conflict && matches!(retried, Retried::After(_));
        self.metrics.count(if retry_is_expected { Counted::requeue } else { Counted::error });
        match retried {
            Retried::After(retry_after) if is_conflict => debug!(error, ?retry_after, "conflict, retrying"),
            Retried::After(retry_after) if is_terminal => error!(
                error,
                ?retry_after,
                "reconcile failed with a terminal error, but the object has changed meanwhile"
            ),
            Retried::After(retry_after) => error!(error, ?retry_after, "reconcile failed"),
            Retried::Parked if is_terminal => {
                error!(error, "reconcile failed with a terminal error; waiting for a change");
            }
            Retried::Parked => error!(error, "reconcile failed too often; parked until a change"),
        }
    }
}
