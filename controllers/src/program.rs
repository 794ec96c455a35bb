//! The program `mainstay`: its CRDs, controllers, configuration sections and commands.

#[cfg(test)]
mod tests;

use mainstay::config::ConfigSchema;
use mainstay::program::{Program, Sizes};

use crate::register::{CONTROLLERS, Sockets, register};
use crate::scaffold;
use crate::settings::{PROBE_POLICY, ProbePolicy, WAIT_DEPLOYMENT, WaitDeploymentSettings};
use crate::why;

/// Returns the program `mainstay`, ready to run its command line.
pub fn program() -> Program {
    program_with(Sockets::default())
}

/// Returns the schema of the configuration file of the program `mainstay`.
pub fn config_schema() -> ConfigSchema {
    program().schema().clone()
}

/// Returns the program `mainstay` with another access to the network for its probes, for tests.
pub fn program_with(sockets: Sockets) -> Program {
    let about = "A manager for WaitDeployments: Deployments that start once their prerequisites answer";
    let program = Program::new("mainstay", env!("CARGO_PKG_VERSION"), about)
        .crds([mainstay_api::crd::crd()])
        // docs/decisions/sizes.md explains these values, and when to raise them.
        .sizes(Sizes { cpu: "50m", memory: "128Mi", memory_limit: "256Mi" })
        .manifest("resources_role.yaml", include_str!("program/resources_role.yaml"))
        .controllers(CONTROLLERS)
        .section::<ProbePolicy>(PROBE_POLICY)
        .section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT)
        .setup(|manager| Ok(register(manager, sockets)?))
        .page_command(why::command())
        .command(scaffold::new_command(), scaffold::run_new)
        .command(scaffold::add_command(), scaffold::run_add);
    #[cfg(feature = "dev")]
    let program = program
        .dev_configuration(crate::dev::CONFIGURATION)
        .on_dev(crate::dev::begin)
        .command(mainstay_devcluster::command::command(), |matches| {
            mainstay_devcluster::command::run(matches, &["cluster"])
        });
    program
}
