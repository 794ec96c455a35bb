//! The command `run`: sets up logging, runtime and connection, runs the manager, and returns its outcome.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tracing::error;

use super::rbac::without_ports;
use super::{Exit, Failure, Output, Setup, logging};
use crate::client::connect::{self, ConnectError};
use crate::config::{ConfigSource, Loaded};
use crate::key::Chain;
use crate::manager::{BuildError, Manager, ManagerOptions, MissingRights, RegisterError};
use crate::reconcile::BoxError;

/// tokio's environment variable for the number of worker threads of a runtime.
const THREADS_VARIABLE: &str = "TOKIO_WORKER_THREADS";

/// The parsed arguments of the command `run`.
#[derive(Debug)]
pub(super) struct RunArgs {
    /// The configuration, with the origin of each value.
    pub(super) loaded: Loaded,
    /// The configuration file of `--config`, to reload it; `None` without the flag.
    pub(super) source: Option<ConfigSource>,
    /// Whether only the rights are to be reviewed.
    pub(super) preflight: bool,
    /// The path of the kubeconfig file, from `--kubeconfig`; `None` without the flag.
    pub(super) kubeconfig: Option<PathBuf>,
    /// The name of the kubeconfig context, from `--context`; `None` without the flag.
    pub(super) context: Option<String>,
}

/// Sets up logging and the runtime, and runs the manager until it ends.
pub(super) fn run(name: &'static str, version: &'static str, args: RunArgs, setup: Setup) -> Exit {
    let set_up =
        || -> Result<_, BoxError> { Ok((logging::init(&args.loaded.configuration.logging)?, runtime()?)) };
    let (log, runtime) = match set_up() {
        Ok(parts) => parts,
        Err(problem) => return Failure::other(Chain(&*problem)).print(&mut io::stderr()),
    };
    let options = ManagerOptions {
        version,
        source: args.source,
        log: Some(Arc::new(log.clone())),
        ..ManagerOptions::replica(name)
    };
    let result = runtime.block_on(async {
        let mut loaded = args.loaded;
        if args.preflight {
            // The ports may be those of a manager that runs beside this command.
            without_ports(&mut loaded.configuration);
        }
        let connection = connect::infer(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        let manager = Manager::new(options, loaded, connection)?;
        setup(&manager).await?;
        if args.preflight {
            return Ok(Some(manager.preflight().await?));
        }
        manager.run().await?;
        Ok::<_, BoxError>(None)
    });
    // Dropping the runtime would wait for a reconcile that blocks its thread; the manager has already given
    // up on it.
    runtime.shutdown_background();
    log.flush();
    match result {
        Ok(None) => Exit::Success,
        Ok(Some(missing)) => reviewed(&missing),
        Err(problem) if is_wrong_input(&*problem) => {
            Failure::wrong_input(Chain(&*problem)).print(&mut io::stderr())
        }
        Err(problem) => {
            error!(error = %Chain(&*problem), "the manager ended");
            Exit::Failure
        }
    }
}

/// Prints the missing rights, and returns a failure if ordinary work needs one of them.
fn reviewed(missing: &MissingRights) -> Exit {
    let text = if missing.is_empty() { "all rights are granted\n".to_owned() } else { missing.to_string() };
    let (out, err) = (&mut io::stdout().lock(), &mut io::stderr().lock());
    let printed = Output { command: Vec::new(), out, err }.print(&text);
    match printed {
        Ok(()) if missing.matters() => Exit::Failure,
        Ok(()) => Exit::Success,
        Err(failure) => failure.print(&mut io::stderr()),
    }
}

/// Builds the runtime of the reconciles. It has at least two threads, also on one CPU, because one reconcile
/// that blocks its thread must not stop all others and finally fail the liveness probe.
pub(super) fn runtime() -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // The variable takes precedence, even with the value 1.
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        builder.worker_threads(std::thread::available_parallelism().map_or(2, usize::from).max(2));
    }
    builder.enable_all().build()
}

/// Returns whether another command line or configuration would prevent this error of a manager; a retry would
/// not.
pub(super) fn is_wrong_input(problem: &(dyn Error + 'static)) -> bool {
    let connect = |error: &ConnectError| !matches!(error, ConnectError::Credentials { .. });
    if let Some(error) = problem.downcast_ref::<RegisterError>() {
        // The file can override every setting made in code.
        match error {
            RegisterError::Settings { .. } | RegisterError::RunsOnce { .. } => true,
            RegisterError::Connect { source, .. } => connect(source),
            _ => false,
        }
    } else if let Some(error) = problem.downcast_ref::<BuildError>() {
        match error {
            BuildError::NoLeaseNamespace | BuildError::NoPeerAddress | BuildError::Election(_) => true,
            BuildError::Connect(error) => connect(error),
            _ => false,
        }
    } else {
        problem.downcast_ref().is_some_and(connect)
    }
}

#[cfg(test)]
mod tests;
