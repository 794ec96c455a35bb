//! The command `run`: logs, runtime, connection and manager, and the exit code of their end.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tracing::error;

use super::{Exit, Failure, Setup, logging};
use crate::client::connect::{self, ConnectError};
use crate::config::{Loaded, ConfigSource};
use crate::key::Chain;
use crate::manager::{BuildError, ClusterError, Manager, ManagerOptions, RegisterError};
use crate::reconcile::BoxError;

/// tokio's own variable for the number of a runtime's threads.
const THREADS_VARIABLE: &str = "TOKIO_WORKER_THREADS";

/// Arguments of `run`.
#[derive(Debug)]
pub(super) struct RunArgs {
    /// File and flags, resolved, with the origin of each value.
    pub(super) loaded: Loaded,
    /// The file of `--config`, to read it again.
    pub(super) source: Option<ConfigSource>,
    /// The file of `--kubeconfig`.
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of `--context`.
    pub(super) context: Option<String>,
}

/// Runs the manager until it ends.
pub(super) fn run(name: &'static str, version: &'static str, args: RunArgs, setup: Setup) -> Exit {
    let set_up =
        || -> Result<_, BoxError> { Ok((logging::init(&args.loaded.configuration.logging)?, runtime()?)) };
    let (log, runtime) = match set_up() {
        Ok(begun) => begun,
        Err(problem) => return Failure::other(Chain(&*problem)).print(&mut io::stderr()),
    };
    let options = ManagerOptions {
        version,
        source: args.source,
        log: Some(Arc::new(log.clone())),
        ..ManagerOptions::replica(name)
    };
    let result = runtime.block_on(async {
        let connection = connect::infer(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        let manager = Manager::new(options, args.loaded, connection)?;
        setup(&manager).await?;
        manager.run().await?;
        Ok::<(), BoxError>(())
    });
    // Not dropped: that would wait for a reconcile that blocks its thread, after the manager has named it as late.
    runtime.shutdown_background();
    log.flush();
    match result {
        Ok(()) => Exit::Success,
        Err(problem) if is_wrong_input(&*problem) => {
            Failure::wrong_input(Chain(&*problem)).print(&mut io::stderr())
        }
        Err(problem) => {
            error!(error = %Chain(&*problem), "the manager ended");
            Exit::Failure
        }
    }
}

/// Builds the runtime of the reconciles. It has at least two threads, also on one CPU: one reconcile that blocks its
/// thread must not stop all the others, and in the end fail the liveness probe.
fn runtime() -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // A number in the variable holds, one included.
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        builder.worker_threads(std::thread::available_parallelism().map_or(2, usize::from).max(2));
    }
    builder.enable_all().build()
}

/// Whether another command line or configuration mends it, rather than another try.
fn is_wrong_input(problem: &(dyn Error + 'static)) -> bool {
    if let Some(refused) = problem.downcast_ref::<RegisterError>() {
        // The file has the last word on every setting.
        return matches!(refused, RegisterError::Settings { .. } | RegisterError::RunsOnce { .. });
    }
    let connect = match problem.downcast_ref::<BuildError>() {
        Some(BuildError::NoLeaseNamespace | BuildError::NoPeerAddress | BuildError::Election(_)) => {
            return true;
        }
        Some(BuildError::Connect(connect)) => Some(connect),
        _ => problem.downcast_ref::<ConnectError>(),
    };
    let connect = match problem.downcast_ref::<ClusterError>() {
        Some(ClusterError::Connect { source, .. }) => Some(source),
        _ => connect,
    };
    connect.is_some_and(|connect| !matches!(connect, ConnectError::Credentials { .. }))
}

#[cfg(test)]
mod tests;
