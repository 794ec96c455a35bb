//! The controllers built into mainstay.
//!
//! Two controllers share one custom resource. [`wait_deployment`] creates a Deployment once its prerequisite answers;
//! [`status_mirror`] shows that Deployment's status on the WaitDeployment. What they decide stands in pure rooms
//! ([`gate`], [`deployment`], [`mirror`]); what they wait for is found out by [`probe`], beside the reconciles.

#[cfg(feature = "dev")]
mod dev;
mod program;

pub mod register;

pub mod status_mirror;
pub mod wait_deployment;

pub mod gate;
pub mod mirror;
pub mod status;

pub mod cycles;
pub mod dependencies;
pub mod deployment;
pub mod probe;
pub mod resources;
pub mod services;
pub mod surroundings;

pub mod settings;

pub mod why;

pub mod reasons;

pub use program::{config_schema, program, program_with};
pub use register::{CONTROLLERS, Sockets, register};
