//! The operator: its kinds, its controllers and its configuration.

pub mod api;
pub mod controllers;
pub mod limits;

use kube::CustomResourceExt;
use mainstay::prelude::*;

use limits::Limits;

/// Returns the program with all that its commands need.
pub fn program() -> Program {
    Program::new("shop", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"))
        .crds([api::shop::Shop::crd()])
        .controllers(["shop"])
        .section::<Limits>("limits")
        .setup(setup)
}

/// Registers the controllers.
pub fn setup(manager: &Manager) -> Result<(), BoxError> {
    controllers::shop::setup(manager)?;
    Ok(())
}
