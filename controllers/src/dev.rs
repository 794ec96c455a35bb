//! `mainstay dev`: a demonstration on one terminal.
//!
//! The command starts an API server in this process (or the real programs, or uses an existing cluster),
//! installs the CRD, applies a sample WaitDeployment with a prerequisite that comes up some seconds later,
//! runs the manager in this process, and prints each step. Ctrl-C stops everything that the command started.

mod sample;
mod steps;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, ValueEnum, value_parser};
use kube::api::{Api, Patch, PatchParams};
use mainstay::client::connect::{self, ConnectError};
use mainstay::config::{ConfigError, ConfigSchema, ConfigSource, Loaded, LogFilter};
use mainstay::key::NamespacedName;
use mainstay::manager::{Manager, ManagerOptions};
use mainstay::program::{self, ConfigFlags};
use mainstay::reconcile::ReconcileError;
use mainstay_api::WaitDeployment;
use mainstay_devcluster::workloads::Controller;
use mainstay_devcluster::{ControlPlane, DevCluster, EmbeddedOptions, Options, Progress};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::register::{Sockets, register};
use sample::Sample;
use steps::Steps;

/// Configuration of `mainstay dev` without `--config`: no election, ports on loopback, probes of loopback
/// addresses allowed.
const CONFIGURATION: &str = include_str!("../../config/dev.yaml");

/// Longest time between the end of a child process by Ctrl-C and the arrival of the same signal in this
/// process.
const SIGNAL_LAG: Duration = Duration::from_millis(200);

/// The API server that `mainstay dev` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Server {
    /// An API server in this process, which starts at once.
    Embedded,
    /// The real programs, built with Go on the first start.
    Real,
}

/// Returns the definition of the command `mainstay dev` with its flags.
pub(crate) fn command() -> Command {
    let kubeconfig = Arg::new("kubeconfig")
        .long("kubeconfig")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Use the cluster this file names instead of starting one");
    let server = Arg::new("server")
        .long("server")
        .value_parser(value_parser!(Server))
        .default_value("embedded")
        .conflicts_with("kubeconfig")
        .help("The API server to start");
    let data = Arg::new("data")
        .long("data")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .conflicts_with_all(["kubeconfig", "server"])
        .help("Keep the cluster in this file, and go on with it at the next start");
    ConfigFlags::add_to(
        Command::new("dev")
            .about(
                "Start a control plane, apply a sample WaitDeployment, run the manager and print each step",
            )
            .arg(kubeconfig)
            .arg(server)
            .arg(data),
    )
}

/// Runs the command `mainstay dev` until Ctrl-C; `schema` is that of the program's configuration file.
pub(crate) fn run(matches: &ArgMatches, schema: &ConfigSchema) -> ExitCode {
    let (loaded, source) = match configuration(matches, schema) {
        Ok(found) => found,
        Err(problem) => return program::print_problems(problem, &mut std::io::stderr()).into(),
    };
    let kubeconfig = matches.get_one::<PathBuf>("kubeconfig").map(PathBuf::as_path);
    let server = matches.get_one("server").copied().unwrap_or(Server::Embedded);
    let data = matches.get_one::<PathBuf>("data").cloned();
    match start(loaded, source, kubeconfig, server, data) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let wrong_input = problem.downcast_ref::<ConnectError>().is_some();
            steps::print_error(&ReconcileError::from(problem).to_string());
            if wrong_input { program::Exit::WrongInput.into() } else { ExitCode::FAILURE }
        }
    }
}

/// Returns the configuration of `mainstay dev` at the start, and the file to follow for changes; `None`
/// without `--config`.
fn configuration(
    matches: &ArgMatches,
    schema: &ConfigSchema,
) -> Result<(Loaded, Option<ConfigSource>), ConfigError> {
    let flags = ConfigFlags::of(matches).unwrap_or_default();
    if flags.config.is_some() {
        return Ok((flags.load(schema)?, flags.source(schema)));
    }
    let mut overrides = flags.overrides();
    // The steps are printed on standard output; of the log, only warnings and errors add to them.
    overrides.log_level = overrides.log_level.or_else(|| "warn".parse::<LogFilter>().ok());
    Ok((schema.parse(CONFIGURATION, "config/dev.yaml", &overrides)?, None))
}

fn start(
    loaded: Loaded,
    source: Option<ConfigSource>,
    kubeconfig: Option<&Path>,
    server: Server,
    data: Option<PathBuf>,
) -> anyhow::Result<()> {
    let log = program::logging::init(&loaded.configuration.logging)?;
    let options =
        ManagerOptions { source, log: Some(Arc::new(log.clone())), ..ManagerOptions::replica("mainstay") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run_all(options, loaded, kubeconfig, server, data));
    runtime.shutdown_background();
    log.flush();
    result
}

async fn run_all(
    options: ManagerOptions,
    loaded: Loaded,
    kubeconfig: Option<&Path>,
    server: Server,
    data: Option<PathBuf>,
) -> anyhow::Result<()> {
    let steps = Steps::begin();
    let cluster = match kubeconfig {
        Some(_) => None,
        None => Some(interruptible(Box::pin(start_cluster(server, data, &steps))).await?),
    };
    let path = cluster.as_ref().map(DevCluster::kubeconfig_path).or(kubeconfig).context("no kubeconfig")?;
    let result = run_on(&steps, options, loaded, path, cluster.as_ref()).await;
    if let Some(cluster) = cluster {
        steps.print("stopping the control plane");
        cluster.stop().await;
    }
    result
}

/// Runs a step of `mainstay dev` before the manager runs and handles signals itself. Ctrl-C drops the step
/// and everything it started.
async fn interruptible<T>(step: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    // Biased: after an interrupt the result of the step does not matter.
    let problem = tokio::select! {
        biased;
        _ = interrupts.recv() => anyhow::bail!("interrupted"),
        result = step => match result {
            Ok(done) => return Ok(done),
            Err(problem) => problem,
        },
    };
    // A terminal interrupts the child processes as well, and their end may arrive before this process's own
    // signal.
    match timeout(SIGNAL_LAG, interrupts.recv()).await {
        Ok(_) => anyhow::bail!("interrupted"),
        Err(_elapsed) => Err(problem),
    }
}

/// Starts a cluster; an embedded one goes on in the file `data`, if there is one.
async fn start_cluster(server: Server, data: Option<PathBuf>, steps: &Steps) -> anyhow::Result<DevCluster> {
    if server == Server::Embedded {
        steps.print("starting an API server in this process");
        let controllers = Controller::ALL.into();
        let options = EmbeddedOptions { controllers, data, ..EmbeddedOptions::default() };
        return Ok(DevCluster::start_embedded(options).await?);
    }
    steps.print(
        "starting a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok",
    );
    let printer = steps.clone();
    let progress = Progress::new(move |line| printer.print(line));
    Ok(DevCluster::start_real(Options { progress, ..Options::default() }).await?)
}

async fn run_on(
    steps: &Steps,
    options: ManagerOptions,
    loaded: Loaded,
    kubeconfig: &Path,
    cluster: Option<&DevCluster>,
) -> anyhow::Result<()> {
    let connection = connect::infer(Some(kubeconfig), None).await?;
    let client = kube::Client::try_from(connection.clone())?;
    steps.print(&format!("the cluster is ready; for kubectl: export KUBECONFIG={}", kubeconfig.display()));
    if let Some(kubectl) = cluster.and_then(DevCluster::as_real).map(ControlPlane::kubectl) {
        steps.print(&format!("if you have no kubectl: {}", kubectl.display()));
    }
    interruptible(install_crd(&client)).await?;
    steps.print("the CRD waitdeployments.apps.mainstay.dev is installed");

    let sample = Sample::reserve()?;
    let manager = Manager::new(options, loaded, connection)?;
    register(&manager, Sockets::default())?;
    let key = NamespacedName::namespaced(sample::NAMESPACE, sample::NAME);
    manager.register(steps::controller(&manager, steps, key))?;

    let objects = Api::<WaitDeployment>::namespaced(client, sample::NAMESPACE);
    let apply = PatchParams::apply("mainstay-dev").force();
    interruptible(async { Ok(objects.patch(sample::NAME, &apply, &Patch::Apply(sample.manifest())).await?) })
        .await?;
    steps.print(&format!(
        "applied WaitDeployment {}/{}: two replicas, once {} answers",
        sample::NAMESPACE,
        sample::NAME,
        sample.address
    ));
    if let Some(address) = manager.inspect_addr() {
        steps.print(&format!(
            "the manager's controllers and queues: curl http://{address}/debug/controllers \
             (also /debug/caches, /debug/leader)"
        ));
    }
    // Biased: the command ends with the manager; the prerequisite runs beside it.
    let result = tokio::select! {
        biased;
        result = manager.run() => result,
        result = sample.listen_later(steps) => match result {
            Err(problem) => return Err(problem.into()),
            Ok(never) => match never {},
        },
    };
    if cluster.is_none() {
        objects.delete(sample::NAME, &kube::api::DeleteParams::default()).await?;
        steps.print("deleted the sample; the CRD stays in your cluster");
    }
    Ok(result?)
}

async fn install_crd(client: &kube::Client) -> anyhow::Result<()> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let crd = mainstay_api::crd::crd();
    let name = crd.metadata.name.clone().context("the CRD has no name")?;
    let apply = PatchParams::apply("mainstay-dev").force();
    crds.patch(&name, &apply, &Patch::Apply(&crd)).await.context("installing the CRD")?;
    // Polled ten times a second: the CRD is established well within a second, once per start.
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..300 {
        ticks.tick().await;
        let conditions =
            crds.get(&name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
    }
    anyhow::bail!("CRD {name} was not established within 30 s")
}
