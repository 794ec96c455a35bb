//! The control thread: what must stay alive whatever the reconciles do.
//!
//! Elector, probes, metrics and signals run on a thread and a runtime of their own. A reconcile that blocks every
//! thread of the caller's runtime costs neither the Lease nor the answer of a probe. It also keeps the time of the
//! stop: a runtime without a free thread fires no timer of its own.

use std::io;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, error, info};

use crate::reconcile::BoxError;

/// Something to run on the control thread. Made there, because a client and a listener belong to the runtime they were
/// made in.
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) start: Box<dyn FnOnce() -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

/// The running thread. It ends once all jobs have and this value is gone: signals are watched to the last.
pub(super) struct ControlThread {
    /// Answers when the last job has ended.
    jobs_ended: oneshot::Receiver<()>,
    pub(super) runtime: Handle,
    _end_on_drop: DropGuard,
    /// Jobs that failed, by name.
    pub(super) failures: mpsc::Receiver<(&'static str, BoxError)>,
}

/// Timers that run on the control thread. Cheap to clone.
#[derive(Clone)]
pub(super) struct Timers(Handle);

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
    /// Starts the thread. With `signals`, the first SIGTERM or SIGINT cancels the token and
    /// the second ends the process at once.
    pub(super) fn spawn(jobs: Vec<Job>, signals: Option<CancellationToken>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (tell, jobs_ended) = oneshot::channel();
        let end = CancellationToken::new();
        let end_on_drop = end.clone().drop_guard();
        // One slot per job: each reports at most once, so nobody ever waits for room.
        let (report, failures) = mpsc::channel(jobs.len().max(1));
        std::thread::Builder::new().name("mainstay-control".to_owned()).spawn(move || {
            runtime.block_on(async {
                // Ends with this future, as the last of all.
                let _watching = watch_signals(signals);
                run(jobs, &report).await;
                if tell.send(()).is_err() {
                    debug!("nobody waited for the end of the control thread");
                }
                end.cancelled().await;
            });
        })?;
        Ok(Self { jobs_ended, failures, runtime: handle, _end_on_drop: end_on_drop })
    }

    /// Waits until the last job has ended.
    pub(super) async fn jobs_ended(&mut self) {
        // An error means that the thread panicked: its jobs have ended all the same.
        drop((&mut self.jobs_ended).await);
    }

    /// Returns what gives up on futures in time.
    pub(super) fn timers(&self) -> Timers {
        Timers(self.runtime.clone())
    }
}

// === impl Timers ===

impl Timers {
    /// Waits for the future until then, even if the caller's runtime has no thread left to look at the clock. `None`
    /// if it was not ready in time.
    pub(super) async fn until<T>(&self, deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
        let mut alarm = JoinSet::new();
        alarm.spawn_on(async move { sleep_until(deadline).await }, &self.0);
        let over = async {
            // Without the thread, for it has panicked, the caller's own timers have to do.
            if !matches!(alarm.join_next().await, Some(Ok(()))) {
                sleep_until(deadline).await;
            }
        };
        // Biased: what is ready at the deadline is in time.
        tokio::select! {
            biased;
            done = future => Some(done),
            () = over => None,
        }
    }
}

async fn run(jobs: Vec<Job>, report: &mpsc::Sender<(&'static str, BoxError)>) {
    let mut running = JoinSet::new();
    for job in jobs {
        let name = job.name;
        let report = report.clone();
        // A task within the task, so that a panic of the job is reported like an error of it.
        let mut alone = JoinSet::new();
        alone.spawn((job.start)());
        running.spawn(async move {
            let failure = match alone.join_next().await {
                None | Some(Ok(Ok(()))) => return,
                Some(Ok(Err(error))) => error,
                Some(Err(panic)) => panic.into(),
            };
            // The only failure is that the manager is gone.
            drop(report.send((name, failure)).await);
        });
    }
    while running.join_next().await.is_some() {}
}

fn watch_signals(stop: Option<CancellationToken>) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    if let Some(stop) = stop {
        watching.spawn(async move {
            if let Err(error) = obey_signals(stop).await {
                error!(%error, "signals cannot be watched; stopping works by SIGKILL only");
            }
        });
    }
    watching
}

async fn obey_signals(stop: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
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
}
