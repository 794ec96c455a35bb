//! The command `rbac`: the roles that the program needs, from a manager that is wired and never run.

use std::io;

use clap::Args;
use serde::Serialize;

use super::flags::{ConfigFlags, namespace};
use super::{Exit, Failure, Output, Setup};
use crate::config::{BindAddress, Loaded, ManagerConfiguration};
use crate::key::Chain;
use crate::manager::{Manager, ManagerOptions};
use crate::rbac::Rights;
use crate::reconcile::BoxError;

/// The flags of the command `rbac`.
#[derive(Args, Debug)]
pub(super) struct RbacFlags {
    #[command(flatten)]
    pub(super) config: ConfigFlags,
    /// Print for each rule the line of code that needs it, and the reason
    #[arg(long)]
    pub(super) explain: bool,
    /// Namespace of the manager, if leaderElection.namespace names none [default: the program's name with
    /// -system]
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub(super) namespace: Option<String>,
}

/// The parsed arguments of the command `rbac`.
#[derive(Debug)]
pub(super) struct RbacArgs {
    pub(super) wiring: Wiring,
    pub(super) explain: bool,
}

/// The configuration and the namespace with which a manager is wired.
#[derive(Debug)]
pub(super) struct Wiring {
    pub(super) loaded: Loaded,
    pub(super) namespace: String,
}

/// Prints the roles of the program, or their explanation.
pub(super) fn run(name: &'static str, args: RbacArgs, setup: Setup, output: &mut Output<'_>) -> Exit {
    let configuration = &args.wiring.loaded.configuration;
    let (served, own) =
        (configuration.cache.namespaces.clone(), lease_namespace(configuration, &args.wiring.namespace));
    let printed = wired(name, args.wiring, setup).and_then(|manager| {
        let rights = manager.rights_in(&own, &served);
        let text = if args.explain { rights.explain() } else { roles(&rights)? };
        output.print(&text)
    });
    printed.map_or_else(|failure| failure.print(output.err), |()| Exit::Success)
}

/// Wires a manager without ports and without a connection.
pub(super) fn wired(name: &'static str, wiring: Wiring, setup: Setup) -> Result<Manager, Failure> {
    let Wiring { mut loaded, namespace } = wiring;
    let configuration = &mut loaded.configuration;
    without_ports(configuration);
    // The file is in the Pods only.
    configuration.inspect.token_file = None;
    configuration.leader_election.namespace = lease_namespace(configuration, &namespace);
    let wired = async {
        // Nothing listens there: a request of `setup` fails at once.
        let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let manager = Manager::new(ManagerOptions::replica(name), loaded, nowhere)?;
        setup(&manager).await?;
        Ok::<_, BoxError>(manager)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error: io::Error| Failure::other(error))?;
    runtime.block_on(wired).map_err(|problem| {
        let why = "here the program is wired without a connection to an API server";
        Failure::other(format_args!("{}; {why}", Chain(&*problem)))
    })
}

/// Returns the namespace of the Lease for a manager in the namespace `own`.
pub(super) fn lease_namespace(configuration: &ManagerConfiguration, own: &str) -> String {
    let given = &configuration.leader_election.namespace;
    if given.is_empty() { own.to_owned() } else { given.clone() }
}

/// Switches all servers off, for a manager that is never run.
pub(super) fn without_ports(configuration: &mut ManagerConfiguration) {
    for address in [
        &mut configuration.health.bind_address,
        &mut configuration.metrics.bind_address,
        &mut configuration.inspect.bind_address,
    ] {
        *address = BindAddress::Off;
    }
}

/// Returns the roles as YAML documents.
fn roles(rights: &Rights) -> Result<String, Failure> {
    let cluster = rights.cluster_role().iter().map(yaml).collect::<Result<String, _>>()?;
    Ok(cluster + &rights.roles().iter().map(yaml).collect::<Result<String, _>>()?)
}

/// Returns an object as a YAML document.
pub(super) fn yaml(object: &impl Serialize) -> Result<String, Failure> {
    let document = serde_saphyr::to_string(object);
    let document =
        document.map_err(|error| Failure::other(format_args!("it cannot be written as YAML: {error}")))?;
    Ok(format!("---\n{document}"))
}
