//! The binary's description: its CRDs, its controllers, its commands.

#[cfg(test)]
mod tests;

use mainstay::config::ConfigSchema;
use mainstay::program::Program;

use crate::register::{CONTROLLERS, Sockets, register};
use crate::settings::{PROBE_POLICY, ProbePolicy, WAIT_DEPLOYMENT, WaitDeploymentSettings};
use crate::why;

/// Returns the binary `mainstay`, ready to do what its command line asks for.
pub fn program() -> Program {
    program_with(Sockets::default())
}

/// Returns the keys that the configuration file of the binary may have.
pub fn config_schema() -> ConfigSchema {
    program().schema().clone()
}

/// Returns the binary with other ways to the network for its probes: what tests run.
pub fn program_with(sockets: Sockets) -> Program {
    let about = "A manager for WaitDeployments: Deployments that start once their prerequisites answer";
    let program = Program::new("mainstay", env!("CARGO_PKG_VERSION"), about)
        .crds([mainstay_api::crd::crd()])
        .controllers(CONTROLLERS)
        .section::<ProbePolicy>(PROBE_POLICY)
        .section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT)
        .setup(|manager| Ok(register(manager, sockets)?))
        .question(why::question());
    #[cfg(feature = "dev")]
    let schema = program.schema().clone();
    #[cfg(feature = "dev")]
    let program = program.command(crate::dev::command(), move |matches| crate::dev::run(matches, &schema));
    program
}
