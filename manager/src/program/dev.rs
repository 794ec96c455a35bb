//! The command `dev`: the program on one terminal, with a cluster of its own.
//!
//! The command starts an API server in this process (or the real programs, or uses an existing cluster),
//! applies the definitions of the program and the samples, runs the manager in this process, and prints what
//! happens. Ctrl-C stops everything that the command started. With `--watch` the manager is a child
//! process, which is rebuilt and restarted after each save.

mod build;
mod objects;
mod server;
mod sources;
mod story;
mod watch;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};

use clap::{ArgMatches, Args, Command, FromArgMatches as _};
use futures_util::future::LocalBoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use mainstay_devcluster::{ControlPlane, DevCluster};

use super::flags::{ConfigFlags, add_args};
use super::run::{is_wrong_input, runtime};
use super::{Exit, Failure, Program, Setup, logging};
use crate::client::connect;
use crate::config::{ConfigSchema, ConfigSource, Loaded};
use crate::key::Chain;
use crate::manager::{Manager, ManagerOptions};
use crate::reconcile::BoxError;

use build::Build;
use objects::{Sample, WrongSamples};
use server::{Interrupts, Server};
use story::Narrator;
use watch::Parent;

pub use story::Story;

/// The configuration of `dev` without `--config`: no election, and ports on loopback that the system chooses,
/// so that two programs can run. A person waits for the next retry. The runtime logs only warnings, and no
/// failed reconcile, because the story has it; the colons keep the crates whose names begin like this one.
const CONFIGURATION: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
    leaderElection: {enabled: false}\nhealth: {bindAddress: \"127.0.0.1:0\"}\n\
    metrics: {bindAddress: \"127.0.0.1:0\"}\ninspect: {bindAddress: \"127.0.0.1:0\"}\n\
    shutdown: {gracePeriod: 5s}\n\
    logging: {format: Text, level: \"info,mainstay::=warn,mainstay::controller::worker=off\"}\n\
    controllers: {\"*\": {queue: {retry: {maxDelay: 30s}}}}\n";

/// The flags of the command `dev`.
#[derive(Args, Debug)]
struct DevFlags {
    #[command(flatten)]
    config: ConfigFlags,
    /// Use the cluster this file names instead of starting one
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The API server to start
    #[arg(long, value_enum, default_value = "embedded", conflicts_with = "kubeconfig")]
    server: Server,
    /// Keep the cluster in this file, and go on with it at the next start
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "server"])]
    data: Option<PathBuf>,
    /// Apply all YAML files of this folder [default: samples, if there is one]
    #[arg(long, value_name = "DIR")]
    samples: Option<PathBuf>,
    /// Build and restart the manager with cargo whenever a source file is saved
    #[arg(long)]
    watch: bool,
}

/// The parsed arguments of the command `dev`.
#[derive(Debug)]
pub(super) struct DevArgs {
    /// The configuration, with the origin of each value.
    loaded: Loaded,
    /// The configuration file of `--config`, to reload it; `None` without the flag.
    source: Option<ConfigSource>,
    samples: Vec<Sample>,
    /// How to build the program; `None` unless this process is to watch its sources.
    build: Option<Build>,
    /// The decisions of the process that watches the sources; `None` unless this process is its child.
    parent: Option<Parent>,
    flags: DevFlags,
}

/// The configuration and the function that a program adds to the command `dev`.
pub(super) struct Additions {
    /// The configuration without `--config`, as the text of a file.
    configuration: &'static str,
    begin: Begin,
}

type Begin = Box<dyn for<'a> FnOnce(&'a DevContext) -> LocalBoxFuture<'a, Result<(), BoxError>>>;

/// The running command `dev`, for the function of [`Program::on_dev`].
#[derive(derive_more::Debug)]
#[non_exhaustive]
pub struct DevContext {
    /// The manager. It has its controllers and does not run yet.
    pub manager: Manager,
    /// A client of the cluster.
    #[debug(skip)]
    pub client: kube::Client,
    /// The story, for lines of the program.
    pub story: Story,
    /// Whether the cluster ends with the command, so that its objects need not be deleted.
    pub owns_cluster: bool,
}

/// The parts of a program that the command `dev` uses.
pub(super) struct Parts {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) crds: Vec<CustomResourceDefinition>,
    pub(super) setup: Setup,
    pub(super) additions: Additions,
}

// === impl Program ===

impl Program {
    /// Sets the configuration of the command `dev` without `--config`, as the text of a file. By default it
    /// has no election and free ports on loopback. Only with feature `dev`.
    pub fn dev_configuration(mut self, text: &'static str) -> Self {
        self.dev.configuration = text;
        self
    }

    /// Sets a function for the command `dev`, in place of an earlier one. It is called after
    /// [`Program::setup`], before the manager runs, and may register further controllers, apply objects and
    /// add lines to the story. Only with feature `dev`.
    ///
    /// ```no_run
    /// # use mainstay::program::Program;
    /// # let program = Program::new("greeter", "1.0.0", "Says hello to ConfigMaps");
    /// program.on_dev(async |dev| {
    ///     dev.story.print("greet it: kubectl create configmap hi --from-literal=a=b");
    ///     Ok(())
    /// })
    /// # .main();
    /// ```
    pub fn on_dev(mut self, begin: impl AsyncFnOnce(&DevContext) -> Result<(), BoxError> + 'static) -> Self {
        self.dev.begin = Box::new(move |dev| Box::pin(begin(dev)));
        self
    }

    /// Parses the arguments of the command `dev`.
    pub(super) fn dev(&self, matches: &ArgMatches) -> Result<DevArgs, Failure> {
        let mut flags = DevFlags::from_arg_matches(matches)?;
        if flags.kubeconfig.is_none() {
            // No other replica can be in a cluster of this command.
            flags.config.leader_elect.get_or_insert(false);
        }
        let (loaded, source) = self.dev.configured(&flags.config, &self.schema)?;
        let samples = objects::read(flags.samples.as_deref()).map_err(|problem| failure(&problem.into()))?;
        let parent = watch::parent();
        let build = (flags.watch && parent.is_none()).then(Build::of_this_program).transpose();
        let build = build.map_err(Failure::wrong_input)?;
        Ok(DevArgs { loaded, source, samples, build, parent, flags })
    }
}

/// Returns the definition of the command `dev`.
pub(super) fn command() -> Command {
    let about = "Start a cluster on this machine, apply samples, run the manager and print what happens";
    add_args::<DevFlags>(Command::new("dev").about(about))
}

/// Runs the command `dev` until Ctrl-C.
pub(super) fn run(parts: Parts, args: DevArgs) -> Exit {
    start(parts, args).map_or_else(|problem| failure(&problem).print(&mut io::stderr()), |()| Exit::Success)
}

fn start(parts: Parts, mut args: DevArgs) -> Result<(), BoxError> {
    let log = logging::init(&args.loaded.configuration.logging)?;
    let runtime = runtime()?;
    let options = ManagerOptions {
        version: parts.version,
        source: args.source.take(),
        log: Some(Arc::new(log.clone())),
        ..ManagerOptions::replica(parts.name)
    };
    let result = runtime.block_on(on_cluster(parts, args, options));
    // Dropping the runtime would wait for a reconcile that blocks its thread.
    runtime.shutdown_background();
    log.flush();
    result
}

/// Starts a cluster unless one is given, runs the manager on it, or the process that does, and ends the
/// cluster.
async fn on_cluster(parts: Parts, args: DevArgs, options: ManagerOptions) -> Result<(), BoxError> {
    let DevArgs { loaded, samples, build, parent, flags, .. } = args;
    let mut interrupts = Interrupts::listen()?;
    let story = Story::begun(parent.as_ref().map_or(Duration::ZERO, |parent| parent.elapsed));
    let is_child = parent.is_some();
    let owns_cluster = flags.kubeconfig.is_none();
    if is_child {
        watch::end_with_parent(interrupts.parent.clone());
    }
    let given = parent.map(|parent| parent.cluster).or(flags.kubeconfig);
    let (cluster, kubeconfig) = if let Some(kubeconfig) = given {
        (None, kubeconfig)
    } else {
        let starting = async { Ok(server::start(flags.server, flags.data, &story).await?) };
        let cluster = interrupts.or(Box::pin(starting)).await?;
        let kubeconfig = cluster.kubeconfig_path().to_owned();
        (Some(cluster), kubeconfig)
    };
    let connection = connect::infer(Some(&kubeconfig), None).await?;
    if !is_child {
        announce(&story, &kubeconfig, cluster.as_ref());
    }
    let result = if let Some(build) = build {
        let samples = flags.samples.unwrap_or_else(|| objects::DEFAULT_FOLDER.into());
        let others = iter::once(samples).chain(flags.config.config);
        watch::run(&build, others, &kubeconfig, &story, &mut interrupts).await
    } else {
        let session = Session { story: story.clone(), connection, owns_cluster };
        session.run(parts, options, loaded, &samples, &mut interrupts).await
    };
    if let Some(cluster) = cluster {
        story.print("stopping the control plane");
        cluster.stop().await;
    }
    result
}

/// Prints how to use the cluster.
fn announce(story: &Story, kubeconfig: &Path, cluster: Option<&DevCluster>) {
    let path = kubeconfig.display();
    story.print(format_args!("the cluster is ready; for kubectl: export KUBECONFIG={path}"));
    if let Some(kubectl) = cluster.and_then(DevCluster::as_real).map(ControlPlane::kubectl) {
        story.print(format_args!("if you have no kubectl: {}", kubectl.display()));
    }
}

/// One run of the manager on a cluster.
struct Session {
    story: Story,
    connection: kube::Config,
    owns_cluster: bool,
}

// === impl Session ===

impl Session {
    async fn run(
        self,
        parts: Parts,
        options: ManagerOptions,
        loaded: Loaded,
        samples: &[Sample],
        interrupts: &mut Interrupts,
    ) -> Result<(), BoxError> {
        let Self { story, connection, owns_cluster } = self;
        let Parts { name, crds, setup, additions, .. } = parts;
        let client = kube::Client::try_from(connection.clone())?;
        let field_manager = format!("{name}-dev");
        interrupts.or(objects::install(&client, &field_manager, &crds, &story)).await?;
        let manager = Manager::new(options, loaded, connection)?;
        let narrator = Narrator::start(story.clone(), name, &crds);
        narrator.follow_runs(&manager);
        interrupts.or(setup(&manager)).await?;
        let _subscriptions = narrator.follow_stores(&manager);
        let dev = DevContext { manager, client, story, owns_cluster };
        interrupts.or((additions.begin)(&dev)).await?;
        interrupts.or(objects::apply(&dev.client, &field_manager, samples, &dev.story)).await?;
        if let Some(address) = dev.manager.inspect_addr() {
            dev.story.print(format_args!(
                "controllers and queues: {name} inspect controllers --address {address} (see inspect --help)"
            ));
        }
        let mut running = pin!(dev.manager.run());
        // Biased: an end that the parent asks for does not change the result.
        tokio::select! {
            biased;
            ended = &mut running => return Ok(ended?),
            () = interrupts.parent.cancelled() => dev.manager.stop(),
        }
        Ok(running.await?)
    }
}

// === impl Additions ===

impl Default for Additions {
    fn default() -> Self {
        Self { configuration: CONFIGURATION, begin: Box::new(|_| Box::pin(async { Ok(()) })) }
    }
}

impl Additions {
    /// Returns the configuration at the start, and the file to follow for changes; `None` without `--config`.
    fn configured(
        &self,
        flags: &ConfigFlags,
        schema: &ConfigSchema,
    ) -> Result<(Loaded, Option<ConfigSource>), Failure> {
        if flags.config.is_some() {
            return Ok((flags.load(schema)?, flags.source(schema)));
        }
        Ok((schema.parse(self.configuration, "the configuration of dev", &flags.overrides())?, None))
    }
}

/// Returns the outcome of the command for its error.
fn failure(problem: &BoxError) -> Failure {
    if let Some(WrongSamples(problems)) = problem.downcast_ref() {
        return Failure::wrong_input(problems.join("\nerror: "));
    }
    let chain = Chain(&**problem);
    if is_wrong_input(&**problem) { Failure::wrong_input(chain) } else { Failure::other(chain) }
}
