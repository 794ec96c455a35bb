//! A binary in one call: the commands every manager has, around the controllers of this one.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use futures_util::future::LocalBoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use tokio::runtime::Runtime;
use tracing::error;

use super::{BuildError, ClusterError, Manager, ManagerOptions, RegisterError};
use crate::cli::{self, Exit, Parsed, RunArgs};
use crate::client::connect::{self, ConnectError};
use crate::key::Chain;
use crate::reconcile::BoxError;

/// tokio's own variable for the number of a runtime's threads.
const THREADS_VARIABLE: &str = "TOKIO_WORKER_THREADS";

type Setup = Box<dyn for<'a> FnOnce(&'a Manager) -> LocalBoxFuture<'a, Result<(), BoxError>>>;
type Own = Box<dyn FnOnce(&ArgMatches) -> ExitCode>;

/// A binary with the commands `run`, `crd`, `config`, `version`, and what it adds.
///
/// ```no_run
/// use mainstay::manager::Program;
///
/// fn main() -> std::process::ExitCode {
///     Program::new("greeter", env!("CARGO_PKG_VERSION"), "Says hello to ConfigMaps")
///         .controllers(["greeter"])
///         .setup(|manager| {
///             // manager.register(...)?;
/// #           let _ = manager;
///             Ok(())
///         })
///         .main()
/// }
/// ```
#[must_use = "a program does nothing until `main` is called"]
pub struct Program {
    name: &'static str,
    version: &'static str,
    cli: cli::Program,
    setup: Setup,
    own: BTreeMap<String, Own>,
}

// === impl Program ===

impl Program {
    /// Names the binary and its version as they stand in help texts, metrics, Events and user agents.
    pub fn new(name: &'static str, version: &'static str, about: &'static str) -> Self {
        let cli = cli::Program::new(name, version, about);
        Self { name, version, cli, setup: Box::new(|_| Box::pin(async { Ok(()) })), own: BTreeMap::new() }
    }

    /// Sets the CRDs that the command `crd` prints.
    pub fn crds(mut self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.cli = self.cli.crds(crds);
        self
    }

    /// Sets the names of the controllers: the only ones a configuration file may name.
    pub fn controllers(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.cli = self.cli.controllers(names);
        self
    }

    /// Sets what registers the controllers, when `run` has built the manager.
    pub fn setup(self, setup: impl FnOnce(&Manager) -> Result<(), BoxError> + 'static) -> Self {
        self.setup_async(async move |manager: &Manager| setup(manager))
    }

    /// As [`Program::setup`], for what has to be waited for, such as the connection to a further cluster. The manager does
    /// not run meanwhile: no probe is answered.
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use mainstay::client::infer;
    /// use mainstay::manager::Program;
    ///
    /// fn main() -> std::process::ExitCode {
    ///     Program::new("copier", env!("CARGO_PKG_VERSION"), "Copies ConfigMaps to the edge")
    ///         .setup_async(async |manager| {
    ///             let connection = infer(Some(Path::new("/etc/copier/edge.kubeconfig")), None).await?;
    ///             let _edge = manager.cluster("edge", connection)?;
    ///             Ok(())
    ///         })
    ///         .main()
    /// }
    /// ```
    pub fn setup_async(
        mut self,
        setup: impl AsyncFnOnce(&Manager) -> Result<(), BoxError> + 'static,
    ) -> Self {
        self.setup = Box::new(move |manager| Box::pin(setup(manager)));
        self
    }

    /// Adds a command of the binary's own.
    pub fn command(mut self, command: Command, run: impl FnOnce(&ArgMatches) -> ExitCode + 'static) -> Self {
        self.own.insert(command.get_name().to_owned(), Box::new(run));
        self.cli = self.cli.extra(command);
        self
    }

    /// Adds a command that asks a running manager for a [page](Manager::page) of this program's own.
    pub fn question(mut self, question: cli::Question) -> Self {
        self.cli = self.cli.question(question);
        self
    }

    /// Does what the command line asks for. Wrong input ends with code 2 and one line per mistake, failure with 1.
    pub fn main(mut self) -> ExitCode {
        match cli::parse(&self.cli) {
            Parsed::Done(exit) => exit.into(),
            Parsed::Run(args) => run(self.name, self.version, *args, self.setup).into(),
            Parsed::Extra(name, matches) => match self.own.remove(&name) {
                Some(own) => own(&matches),
                None => fail(&format!("command {name} has nothing to run")).into(),
            },
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("name", &self.name).finish_non_exhaustive()
    }
}

fn run(name: &'static str, version: &'static str, args: RunArgs, setup: Setup) -> Exit {
    let log = match cli::logging::init(&args.loaded.configuration.logging) {
        Ok(log) => log,
        Err(problem) => return fail(&Chain(&problem)),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(problem) => return fail(&Chain(&problem)),
    };
    let of_manager = Some(log.clone());
    let result = runtime.block_on(async {
        let connection = connect::infer(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        let options =
            ManagerOptions { version, source: args.source, log: of_manager, ..ManagerOptions::replica(name) };
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
            fail(&Chain(&*problem));
            Exit::WrongInput
        }
        Err(problem) => {
            error!(error = %Chain(&*problem), "the manager ended");
            Exit::Failure
        }
    }
}

/// The runtime of the reconciles. Never a single thread, which is what one CPU would give: one reconcile that blocks its
/// thread must not stop all the others, and in the end fail the liveness probe.
fn runtime() -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // Who has asked for a number gets it.
    if std::env::var_os(THREADS_VARIABLE).is_none() {
        builder.worker_threads(std::thread::available_parallelism().map_or(2, usize::from).max(2));
    }
    builder.enable_all().build()
}

/// Whether the way to mend it is another command line or configuration, rather than another try.
fn is_wrong_input(problem: &(dyn Error + 'static)) -> bool {
    if let Some(refused) = problem.downcast_ref::<RegisterError>() {
        // The file has the last word on every setting.
        return matches!(refused, RegisterError::Settings { .. } | RegisterError::RunsOnce { .. });
    }
    let connect = match problem.downcast_ref::<BuildError>() {
        Some(BuildError::NoLeaseNamespace | BuildError::Election(_)) => return true,
        Some(BuildError::Connect(connect)) => Some(connect),
        _ => problem.downcast_ref::<ConnectError>(),
    };
    let connect = match problem.downcast_ref::<ClusterError>() {
        Some(ClusterError::Connect { source, .. }) => Some(source),
        _ => connect,
    };
    connect.is_some_and(|connect| !matches!(connect, ConnectError::Credentials { .. }))
}

fn fail(problem: &dyn fmt::Display) -> Exit {
    // Nothing can be told if standard error is closed.
    drop(writeln!(std::io::stderr(), "error: {problem}"));
    Exit::Failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::SettingsProblem;

    #[test]
    fn settings_that_make_no_sense_are_wrong_input_and_a_name_that_is_taken_is_a_mistake_in_the_code() {
        let problem = |field: &str| SettingsProblem {
            field: field.to_owned(),
            value: "0".to_owned(),
            reason: "is too little".to_owned(),
        };
        let problems = vec![problem("workers"), problem("queue.retryShare")];
        let refused: BoxError = RegisterError::Settings { name: "web", problems }.into();
        assert!(is_wrong_input(&*refused));
        let lines = r#"controller "web": workers 0 is too little
controller "web": queue.retryShare 0 is too little"#;
        assert_eq!(Chain(&*refused).to_string(), lines);
        let proxy = || ConnectError::Proxy {
            server: Box::new("https://edge".parse().unwrap()),
            proxy: Box::new("http://proxy".parse().unwrap()),
        };
        let behind_a_proxy: BoxError =
            ClusterError::Connect { name: "edge".to_owned(), source: proxy() }.into();
        assert!(is_wrong_input(&*behind_a_proxy) && is_wrong_input(&proxy()), "of whichever cluster");
        let runs_once: BoxError = RegisterError::RunsOnce { name: "sweep" }.into();
        assert!(is_wrong_input(&*runs_once), "onLost: Exit mends it");
        let taken: BoxError = RegisterError::DuplicateName { name: "web" }.into();
        assert!(!is_wrong_input(&*taken));
    }
}
