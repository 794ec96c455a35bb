//! The workers of one controller, and what they make of each outcome.
//!
//! # Invariants
//! 1. A worker that has taken a key gives it back with exactly one outcome.
//! 2. Fewer workers wanted never cancels a run: a worker leaves between two runs.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span, debug, error, error_span};

use super::ControllerSettings;
use super::metrics::{Counted, OneController};
use super::term::{Term, Work};
use crate::key::{Key, KindId, panic_text};
use crate::queue::{Retried, Running, WorkQueue};
use crate::reconcile::{Context, DynReconciler, Outcome, ReconcileError, Retry, Surroundings};

/// Whether a person wants the object of a key left alone.
pub(super) type Pause<Q> = Arc<dyn Fn(&Q) -> bool + Send + Sync>;

/// What the queue says of a key whose object is paused.
const PAUSED: &str = "paused by annotation mainstay.dev/paused";

/// What every worker of one controller works with.
pub(super) struct Workplace<Q: Key> {
    pub(super) name: Arc<str>,
    /// The kind whose objects the queue is keyed by, for the log.
    pub(super) primary: Option<KindId>,
    pub(super) queue: WorkQueue<Q>,
    pub(super) reconciler: Arc<dyn DynReconciler<Q>>,
    pub(super) surroundings: Arc<Surroundings>,
    pub(super) settings: watch::Receiver<ControllerSettings>,
    pub(super) term: Term,
    pub(super) metrics: OneController,
    pub(super) pause: Option<Pause<Q>>,
}

/// A number of workers that changes while they work.
pub(super) struct Crew<Q: Key> {
    workplace: Arc<Workplace<Q>>,
    roster: Arc<Roster>,
    tasks: JoinSet<()>,
    /// The first panic of a worker that nobody has been told of.
    panic: Option<JoinError>,
}

/// Who works. A worker has a number, and no two present ones have the same: the number of runs at the same time
/// never exceeds the largest number of workers that was wanted since the last of them began.
#[derive(Default)]
struct Roster {
    /// How many are wanted; changed only under `present`. A worker whose number is not below it leaves.
    wanted: watch::Sender<usize>,
    present: Mutex<BTreeSet<usize>>,
}

/// How one run ended.
enum Ended {
    With(Outcome),
    Panic(String),
    /// It had this long.
    Timeout(Duration),
    /// The Lease was lost: the run was dropped and counts for nothing.
    Interrupted,
}

// === impl Crew ===

impl<Q: Key> Crew<Q> {
    pub(super) fn new(workplace: Workplace<Q>) -> Self {
        let (workplace, roster) = (Arc::new(workplace), Arc::default());
        Self { workplace, roster, tasks: JoinSet::new(), panic: None }
    }

    /// Makes it this many workers. Surplus ones leave after their present run.
    pub(super) fn resize(&mut self, wanted: usize) {
        // Reap those who left, so that the set does not grow with every change.
        while let Some(ended) = self.tasks.try_join_next() {
            // A panic is `failure`'s to tell, whoever reaps it.
            self.panic = self.panic.take().or(ended.err());
        }
        for number in self.roster.hire(wanted) {
            let worker = work(Arc::clone(&self.workplace), Arc::clone(&self.roster), number);
            self.tasks.spawn(worker.in_current_span());
        }
    }

    /// Waits for a worker to panic. Ends with `None` when there is none, so that a `select!` passes it over.
    ///
    /// # Cancel safety
    /// A worker that has ended is taken only when this returns or goes on.
    pub(super) async fn failure(&mut self) -> Option<JoinError> {
        if let Some(panic) = self.panic.take() {
            return Some(panic);
        }
        loop {
            if let Err(failure) = self.tasks.join_next().await? {
                return Some(failure);
            }
        }
    }

    /// Waits until every worker has left; call after `resize(0)`.
    pub(super) async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Drops every run at its next await. Its key goes back, unless the queue still counts it as failed.
    pub(super) fn drop_all(&mut self) {
        self.tasks.abort_all();
    }
}

async fn work<Q: Key>(workplace: Arc<Workplace<Q>>, roster: Arc<Roster>, number: usize) {
    let mut wanted = roster.wanted.subscribe();
    let mut open = workplace.term.subscribe();
    loop {
        if roster.may_leave(number) {
            return;
        }
        // Biased: one who is to leave takes no more work.
        let running = tokio::select! {
            biased;
            _ = wanted.wait_for(|wanted| number >= *wanted) => continue,
            running = workplace.queue.get() => running,
        };
        let Some(running) = running else {
            roster.leave(number);
            return;
        };
        if let Some(permit) = workplace.term.enter(Arc::clone(&workplace.name)) {
            // Whatever of the user's panics outside the reconcile itself, such as the `Display` of an error, must not
            // take the worker along. The key's guard counts it as a failure.
            let run = AssertUnwindSafe(workplace.run(running, permit)).catch_unwind();
            if let Err(panic) = run.await {
                workplace.metrics.panics.inc();
                error!(
                    controller = &*workplace.name,
                    panic = panic_text(&*panic),
                    "a run panicked after its reconcile"
                );
            }
        } else {
            // The term ended between `get` and here. Wait for the next one, not to spin on the same key.
            running.put_back();
            // Order does not matter: whatever it was, the loop looks at both again.
            tokio::select! {
                _ = wanted.wait_for(|wanted| number >= *wanted) => {}
                _ = open.wait_for(|open| *open) => {}
            }
        }
    }
}

// === impl Roster ===

impl Roster {
    /// Wants this many workers and returns the numbers of those who are missing. One who was told to leave but has
    /// not gone yet simply stays.
    fn hire(&self, wanted: usize) -> Vec<usize> {
        let mut present = self.present.lock();
        self.wanted.send_if_modified(|now| std::mem::replace(now, wanted) != wanted);
        (0..wanted).filter(|number| present.insert(*number)).collect()
    }

    /// Strikes a worker off if it is not wanted any more, and says so.
    fn may_leave(&self, number: usize) -> bool {
        let mut present = self.present.lock();
        let leaves = number >= *self.wanted.borrow();
        if leaves {
            present.remove(&number);
        }
        leaves
    }

    fn leave(&self, number: usize) {
        self.present.lock().remove(&number);
    }
}

// === impl Workplace ===

impl<Q: Key> Workplace<Q> {
    async fn run(&self, running: Running<Q>, permit: Work) {
        if self.pause.as_ref().is_some_and(|is_paused| is_paused(running.key())) {
            debug!(controller = &*self.name, key = %running.key(), "left alone, since it is paused");
            // The end of the pause is a strong add, which takes it out again; so does a deletion.
            running.park(PAUSED);
            return;
        }
        let limit = self.settings.borrow().reconcile_timeout;
        let deadline = if limit.is_zero() { None } else { Instant::now().checked_add(limit) };
        let cx = Context::new(Arc::clone(&self.surroundings), running.attempt(), running.cause().clone())
            .with_key(running.key())
            .with_term(permit.term())
            .with_deadline(deadline);
        let key = running.key().clone();
        // An error's level, for a line that says what went wrong must name its object wherever it is shown.
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
            let ended = {
                let _active = self.metrics.started();
                self.reconcile(&key, &cx, limit, &permit).await
            };
            self.conclude(running, ended);
        }
        .instrument(span)
        .await;
        // The work has ended only now that the key is back on the queue.
        drop(permit);
    }

    async fn reconcile(&self, key: &Q, cx: &Context, limit: Duration, permit: &Work) -> Ended {
        // The future is built inside `async`, so that a panic before its first await is caught as well. Asserting
        // unwind safety: after a panic nothing of this run is used again.
        let run = AssertUnwindSafe(async { self.reconciler.reconcile(key, cx).await }).catch_unwind();
        let run = async {
            match cx.deadline() {
                Some(deadline) => timeout_at(deadline, run).await,
                None => Ok(run.await),
            }
        };
        // Biased: a run that is over when the Lease goes has still happened.
        tokio::select! {
            biased;
            ended = run => match ended {
                Ok(Ok(outcome)) => Ended::With(outcome),
                Ok(Err(panic)) => Ended::Panic(panic_text(&*panic).to_owned()),
                Err(_elapsed) => Ended::Timeout(limit),
            },
            () = permit.lost() => Ended::Interrupted,
        }
    }

    /// Gives the key back, counts and logs. The table in the doc of `reconcile` is this function.
    fn conclude(&self, running: Running<Q>, ended: Ended) {
        match ended {
            Ended::With(Ok(action)) => {
                if let Some(delay) = action.requeue() {
                    self.metrics.count(Counted::requeue_after);
                    running.requeue_after(delay);
                } else {
                    self.metrics.count(Counted::success);
                    running.done();
                }
            }
            Ended::With(Err(error)) => self.failed(running, &error),
            Ended::Panic(message) => {
                self.metrics.panics.inc();
                self.metrics.count(Counted::error);
                let message = format!("panic: {message}");
                log_failure(&message, running.retry(&message));
            }
            Ended::Timeout(limit) => {
                self.metrics.timeouts.inc();
                self.metrics.count(Counted::error);
                let message = format!("no outcome within reconcileTimeout {limit:?}");
                log_failure(&message, running.retry(&message));
            }
            Ended::Interrupted => {
                debug!("dropped, since the Lease was lost");
                running.put_back();
            }
        }
    }

    fn failed(&self, running: Running<Q>, failure: &ReconcileError) {
        let message = failure.to_string();
        let retried = match failure.retry() {
            Retry::Backoff => running.retry(&message),
            Retry::NotBefore(wait) => running.retry_not_before(&message, wait),
            Retry::After(wait) => running.retry_after(&message, wait),
            Retry::Never => return self.failed_for_good(running, &message),
        };
        match retried {
            Retried::After(delay) if failure.is_conflict() => {
                self.metrics.count(Counted::requeue);
                debug!(error = message, retry_after = ?delay, "conflict, trying again");
            }
            // One conflict is no news; so many that the key is given up are.
            _ => {
                self.metrics.count(Counted::error);
                log_failure(&message, retried);
            }
        }
    }

    fn failed_for_good(&self, running: Running<Q>, message: &str) {
        self.metrics.count(Counted::error);
        self.metrics.terminal_errors.inc();
        match running.terminal(message) {
            Retried::Parked => error!(error = message, "reconcile failed for good; waiting for a change"),
            Retried::After(delay) => {
                error!(error = message, retry_after = ?delay, "reconcile failed for good, but something has changed meanwhile");
            }
        }
    }
}

fn log_failure(message: &str, retried: Retried) {
    match retried {
        Retried::After(delay) => error!(error = message, retry_after = ?delay, "reconcile failed"),
        Retried::Parked => {
            error!(error = message, "reconcile failed too often; parked until something changes");
        }
    }
}
