//! `mainstay dev`: the whole story on one terminal.
//!
//! Starts a control plane of one's own (or uses a cluster the user has), installs the CRD, applies a sample
//! WaitDeployment whose prerequisite comes up some seconds later, runs the manager in this process, and prints what
//! happens. Ctrl-C stops everything that was started here.

mod sample;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use kube::api::{Api, Patch, PatchParams};
use mainstay::client::connect::{self, ConnectError};
use mainstay::config::{ConfigError, ConfigSchema, Loaded, LogFilter, Overrides, Source};
use mainstay::key::NamespacedName;
use mainstay::manager::{Manager, ManagerOptions};
use mainstay::program::{self, ConfigFlags};
use mainstay::reconcile::ReconcileError;
use mainstay_api::WaitDeployment;
use mainstay_devcluster::{DevCluster, Options, Progress};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::register::{Sockets, register};
use sample::Sample;
use story::Story;

/// Settings of `dev` unless a file is given: no election, ports on loopback, prerequisites on this machine.
const CONFIGURATION: &str = include_str!("../../config/dev.yaml");

/// How much later than the programs it started this process may hear of the same Ctrl-C.
const SIGNAL_LAG: Duration = Duration::from_millis(200);

/// Describes the command.
pub(crate) fn command() -> Command {
    let kubeconfig = Arg::new("kubeconfig")
        .long("kubeconfig")
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Use the cluster this file names instead of starting one");
    ConfigFlags::add_to(
        Command::new("dev")
            .about(
                "Start a control plane, apply a sample WaitDeployment, run the manager and print each step",
            )
            .arg(kubeconfig),
    )
}

/// Runs the command until Ctrl-C. The schema is that of the program.
pub(crate) fn run(matches: &ArgMatches, schema: &ConfigSchema) -> ExitCode {
    let (loaded, source) = match configuration(matches, schema) {
        Ok(found) => found,
        Err(problem) => return program::refuse(&problem, &mut std::io::stderr()).into(),
    };
    match start(loaded, source, matches.get_one::<PathBuf>("kubeconfig").map(PathBuf::as_path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let wrong_input = problem.downcast_ref::<ConnectError>().is_some();
            story::complain(&ReconcileError::from(problem).to_string());
            if wrong_input { program::Exit::WrongInput.into() } else { ExitCode::FAILURE }
        }
    }
}

/// What holds at the start, and the file to follow if there is one.
fn configuration(
    matches: &ArgMatches,
    schema: &ConfigSchema,
) -> Result<(Loaded, Option<Source>), ConfigError> {
    let Ok(flags) = ConfigFlags::of(matches) else {
        return Ok((schema.from_overrides(&Overrides::default())?, None));
    };
    if flags.config.is_some() {
        return Ok((flags.load(schema)?, flags.source(schema)));
    }
    let mut overrides = flags.overrides();
    // The story is told on standard output; of the log only what it does not tell is of interest beside it.
    overrides.log_level = overrides.log_level.or_else(|| "warn".parse::<LogFilter>().ok());
    Ok((schema.parse(CONFIGURATION, "config/dev.yaml", &overrides)?, None))
}

fn start(loaded: Loaded, source: Option<Source>, kubeconfig: Option<&Path>) -> anyhow::Result<()> {
    let log = program::logging::init(&loaded.configuration.logging)?;
    let options =
        ManagerOptions { source, log: Some(Arc::new(log.clone())), ..ManagerOptions::replica("mainstay") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(tell(options, loaded, kubeconfig));
    runtime.shutdown_background();
    log.flush();
    result
}

async fn tell(options: ManagerOptions, loaded: Loaded, kubeconfig: Option<&Path>) -> anyhow::Result<()> {
    let story = Story::begin();
    let cluster = match kubeconfig {
        Some(_) => None,
        None => Some(interruptible(own_cluster(&story)).await?),
    };
    let path = cluster.as_ref().map(DevCluster::kubeconfig_path).or(kubeconfig).context("no kubeconfig")?;
    let result = tell_on(&story, options, loaded, path, cluster.as_ref()).await;
    if let Some(cluster) = cluster {
        story.say("stopping the control plane");
        cluster.stop().await;
    }
    result
}

/// A step before the manager runs and listens to signals itself: Ctrl-C drops it, and with it what it has started.
async fn interruptible<T>(step: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    // Biased: what a step says after an interrupt is of no interest.
    let problem = tokio::select! {
        biased;
        _ = interrupts.recv() => anyhow::bail!("interrupted"),
        result = step => match result {
            Ok(done) => return Ok(done),
            Err(problem) => problem,
        },
    };
    // A terminal interrupts the programs of the step as well, and their end may be seen before our own signal.
    match timeout(SIGNAL_LAG, interrupts.recv()).await {
        Ok(_) => anyhow::bail!("interrupted"),
        Err(_elapsed) => Err(problem),
    }
}

async fn own_cluster(story: &Story) -> anyhow::Result<DevCluster> {
    story
        .say("starting a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok");
    let hear = story.clone();
    let options = Options {
        crds: vec![serde_json::to_value(mainstay_api::crd::crd())?],
        progress: Progress::new(move |line| hear.say(line)),
        ..Options::default()
    };
    Ok(DevCluster::start(options).await?)
}

async fn tell_on(
    story: &Story,
    options: ManagerOptions,
    loaded: Loaded,
    kubeconfig: &Path,
    cluster: Option<&DevCluster>,
) -> anyhow::Result<()> {
    let connection = connect::infer(Some(kubeconfig), None).await?;
    let client = kube::Client::try_from(connection.clone())?;
    story.say(&format!(
        "the cluster is ready; to look with kubectl: export KUBECONFIG={}",
        kubeconfig.display()
    ));
    if let Some(cluster) = cluster {
        story.say(&format!("if you have no kubectl: {}", cluster.kubectl().display()));
    }
    interruptible(install_crd(&client)).await?;
    story.say("the CRD waitdeployments.apps.mainstay.dev is installed");

    let mut sample = Sample::reserve()?;
    let manager = Manager::new(options, loaded, connection)?;
    register(&manager, Sockets::default())?;
    let key = NamespacedName::namespaced(sample::NAMESPACE, sample::NAME);
    manager.register(story::controller(&manager, story, key))?;

    let objects = Api::<WaitDeployment>::namespaced(client, sample::NAMESPACE);
    let apply = PatchParams::apply("mainstay-dev").force();
    interruptible(async { Ok(objects.patch(sample::NAME, &apply, &Patch::Apply(sample.manifest())).await?) })
        .await?;
    story.say(&format!(
        "applied WaitDeployment {}/{}: two replicas, once {} answers",
        sample::NAMESPACE,
        sample::NAME,
        sample.address()
    ));
    if let Some(address) = manager.inspect_addr() {
        story.say(&format!(
            "the manager's controllers and queues: curl http://{address}/debug/controllers (also /debug/caches, /debug/leader)"
        ));
    }
    // Biased: the manager's end is the end; the prerequisite only comes up beside it.
    let result = tokio::select! {
        biased;
        result = manager.run() => result,
        result = sample.come_up(story) => match result {
            Err(problem) => return Err(problem.into()),
            Ok(never) => match never {},
        },
    };
    if cluster.is_none() {
        objects.delete(sample::NAME, &kube::api::DeleteParams::default()).await?;
        story.say("deleted the sample; the CRD stays in your cluster");
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
    // Asked a few times a second: this happens once per start and takes well under a second.
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
