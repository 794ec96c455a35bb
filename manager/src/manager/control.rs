//! The control thread, which a blocked reconcile cannot delay.
//!
//! The elector, probes, metrics and signals run on a thread and a runtime of their own, so that a reconcile
//! that blocks every thread of the caller's runtime costs neither the Lease nor the answer to a probe. The
//! thread also has the timers of the stop, because the timers of a runtime without a free thread do not fire.

use std::io;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, error, info};

use crate::controller::{Failure, NamedTasks};
use crate::reconcile::BoxError;

/// A named future for the control thread, such as a server. Made on that thread, because a client and a
/// listener belong to the runtime in which they were made.
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) start: Box<dyn FnOnce() -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

/// The running control thread, which runs servers, the election and timers apart from reconciles. It ends
/// once all jobs have ended and this value is dropped; until then it watches signals.
pub(super) struct ControlThread {
    /// Resolves when the last job of the control thread has ended.
    jobs_ended: oneshot::Receiver<()>,
    pub(super) timers: Timers,
    _end_on_drop: DropGuard,
    /// Receives the failures of jobs on the control thread, with the name of the job.
    pub(super) failures: mpsc::Receiver<Failure>,
}

/// Timers that run on the control thread. Cheap to clone.
#[derive(Clone)]
pub(super) struct Timers(pub(super) Handle);

// === impl Job ===

impl Job {
    pub(super) fn new<F>(name: &'static str, start: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self { name, start: Box::new(move || Box::pin(start())) }
    }
}

// === impl ControlThread ===

impl ControlThread {
    /// Starts the control thread with these jobs. With `signals`, the first SIGTERM or SIGINT cancels the
    /// token and the second ends the process at once.
    pub(super) fn spawn(jobs: Vec<Job>, signals: Option<CancellationToken>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let timers = Timers(runtime.handle().clone());
        let (tell, jobs_ended) = oneshot::channel();
        let end = CancellationToken::new();
        let end_on_drop = end.clone().drop_guard();
        // One slot per job: each sends at most one failure, so that no send waits.
        let (report, failures) = mpsc::channel(jobs.len().max(1));
        // Here and not on the thread: a signal that comes before the thread runs would kill the process.
        let signals = signals.and_then(|stop| {
            let _inside = runtime.enter();
            let unwatched =
                |error: &_| error!(%error, "signals cannot be watched; only SIGKILL stops this process");
            watch_signals(stop).inspect_err(unwatched).ok()
        });
        std::thread::Builder::new().name("mainstay-control".to_owned()).spawn(move || {
            runtime.block_on(async {
                // Ends with this future, after all jobs.
                let mut watching = JoinSet::new();
                if let Some(signals) = signals {
                    watching.spawn(signals);
                }
                run(jobs, &report).await;
                if tell.send(()).is_err() {
                    debug!("the end of the control thread was not awaited");
                }
                end.cancelled().await;
            });
        })?;
        Ok(Self { jobs_ended, failures, timers, _end_on_drop: end_on_drop })
    }

    /// Waits until the last job of the control thread has ended.
    pub(super) async fn jobs_ended(&mut self) {
        // An error means that the thread panicked, so that its jobs have ended too.
        drop((&mut self.jobs_ended).await);
    }
}

// === impl Timers ===

impl Timers {
    /// Waits for a future until the deadline, also while the caller's runtime has no free thread for its own
    /// timers. Returns `None` if the future was not ready in time.
    pub(super) async fn until<T>(&self, deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
        let mut alarm = JoinSet::new();
        alarm.spawn_on(async move { sleep_until(deadline).await }, &self.0);
        let over = async {
            // If the thread has panicked, the timers of the caller's runtime are used.
            if !matches!(alarm.join_next().await, Some(Ok(()))) {
                sleep_until(deadline).await;
            }
        };
        // Biased: a future that is ready at the deadline is in time.
        tokio::select! {
            biased;
            done = future => Some(done),
            () = over => None,
        }
    }
}

async fn run(jobs: Vec<Job>, report: &mpsc::Sender<Failure>) {
    let mut running = NamedTasks::default();
    for job in jobs {
        running.spawn(job.name.into(), (job.start)());
    }
    while let Some(failure) = running.failure().await {
        // Fails only if the manager was dropped.
        drop(report.send(failure).await);
    }
}

/// Watches SIGTERM and SIGINT from this call on, within a runtime; the returned future acts on them.
fn watch_signals(stop: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let mut next = async || {
            // Order does not matter: both ask for the same.
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let first = next().await;
        info!(signal = first, "stopping; a second signal ends the process at once");
        stop.cancel();
        let second = next().await;
        error!(signal = second, "second signal, ending at once");
        std::process::exit(1);
    })
}
