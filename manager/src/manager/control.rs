//! The control thread: what must stay alive whatever the reconciles do.
//!
//! Elector, probes, metrics and signals run on a thread and a runtime of their own. A reconcile that blocks every
//! thread of the caller's runtime costs neither the Lease nor the answer of a probe.

use std::io;

use futures_util::future::BoxFuture;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::reconcile::BoxError;

/// Something to run on the control thread. Made there, because a client and a listener belong to the runtime they were
/// made in.
pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) start: Box<dyn FnOnce() -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

/// The running thread.
pub(super) struct ControlThread {
    /// Answers when the last job has ended.
    ended: oneshot::Receiver<()>,
    /// Jobs that failed, by name.
    pub(super) failures: mpsc::Receiver<(&'static str, BoxError)>,
}

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
    /// Starts the thread; it ends when all jobs have. With `signals`, the first SIGTERM or SIGINT cancels the token and
    /// the second ends the process at once.
    pub(super) fn spawn(jobs: Vec<Job>, signals: Option<CancellationToken>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        // One slot per job: each reports at most once, so nobody ever waits for room.
        let (report, failures) = mpsc::channel(jobs.len().max(1));
        std::thread::Builder::new().name("mainstay-control".to_owned()).spawn(move || {
            runtime.block_on(run(jobs, signals, &report));
            if end.send(()).is_err() {
                debug!("Nobody waited for the end of the control thread");
            }
        })?;
        Ok(Self { ended, failures })
    }

    /// Waits until the thread has done its last work.
    pub(super) async fn ended(self) {
        // An error means that the thread panicked: it has ended all the same.
        drop(self.ended.await);
    }
}

async fn run(
    jobs: Vec<Job>,
    signals: Option<CancellationToken>,
    report: &mpsc::Sender<(&'static str, BoxError)>,
) {
    let mut watching = JoinSet::new();
    if let Some(stop) = signals {
        watching.spawn(async move {
            if let Err(error) = watch_signals(stop).await {
                error!(%error, "Signals cannot be watched; stopping works by SIGKILL only");
            }
        });
    }
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

async fn watch_signals(stop: CancellationToken) -> io::Result<()> {
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
    info!(signal = first, "Stopping; a second signal ends the process at once");
    stop.cancel();
    let second = next().await;
    error!(signal = second, "Second signal, ending at once");
    std::process::exit(1);
}
