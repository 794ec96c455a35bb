//! The cluster of `dev`, and Ctrl-C before the manager runs.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use mainstay_devcluster::workloads::Controller;
use mainstay_devcluster::{DevCluster, DevClusterError, EmbeddedOptions, Options, Progress};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::story::Story;
use crate::reconcile::BoxError;

/// Longest time between the end of a child process by Ctrl-C and the arrival of the same signal in this
/// process.
const SIGNAL_LAG: Duration = Duration::from_millis(200);

/// The API server that `dev` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Server {
    /// An API server in this process, which starts at once.
    Embedded,
    /// The real programs, built with Go on the first start.
    Real,
}

/// The requests to end the command.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// Cancelled when the process that watches the sources ends this one, or has ended itself.
    pub(super) parent: CancellationToken,
}

/// Starts a cluster; an embedded one goes on in the file `data`, if there is one.
pub(super) async fn start(
    server: Server,
    data: Option<PathBuf>,
    story: &Story,
) -> Result<DevCluster, DevClusterError> {
    if server == Server::Embedded {
        story.print("starting an API server in this process");
        let controllers = Controller::ALL.into();
        return DevCluster::start_embedded(EmbeddedOptions {
            controllers,
            data,
            ..EmbeddedOptions::default()
        })
        .await;
    }
    story.print(
        "starting a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok",
    );
    let printer = story.clone();
    let progress = Progress::new(move |line| printer.print(line));
    DevCluster::start_real(Options { progress, ..Options::default() }).await
}

// === impl Interrupts ===

impl Interrupts {
    /// Starts to listen for signals. Must be called within a runtime.
    pub(super) fn listen() -> io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, parent: CancellationToken::new() })
    }

    /// Waits for a request to end the command.
    ///
    /// # Cancel safety
    /// No request is lost; call it again.
    pub(super) async fn requested(&mut self) {
        // The order does not matter: each of them ends the command.
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = self.parent.cancelled() => {}
        }
    }

    /// Runs a step before the manager runs and handles signals itself. A request to end drops the step and
    /// everything it started.
    pub(super) async fn or<T>(
        &mut self,
        step: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, BoxError> {
        // Biased: after an interrupt the result of the step does not matter.
        let problem = tokio::select! {
            biased;
            () = self.requested() => return Err("interrupted".into()),
            result = step => match result {
                Ok(done) => return Ok(done),
                Err(problem) => problem,
            },
        };
        // A terminal interrupts the child processes as well, and their end may arrive before this process's
        // own signal.
        match timeout(SIGNAL_LAG, self.requested()).await {
            Ok(()) => Err("interrupted".into()),
            Err(_elapsed) => Err(problem),
        }
    }
}
