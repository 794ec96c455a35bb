//! The controllers built into mainstay.
//!
//! Two controllers share one custom resource. [`wait_deployment`] creates a Deployment once its prerequisites are ready;
//! [`status_mirror`] shows that Deployment's status on the WaitDeployment. Their decisions are pure functions
//! ([`wait_deployment::gate`], [`status_mirror::mirror`], [`deployment`]). [`dependency`] finds out what is ready.

#[cfg(feature = "dev")]
mod dev;
mod program;

pub mod register;

pub mod status_mirror;
pub mod wait_deployment;
pub mod why;

pub mod dependency;
pub mod deployment;
pub mod status;

pub mod settings;

mod conditions;
pub mod reasons;
mod selector;

pub use program::{config_schema, program, program_with};
pub use register::{CONTROLLERS, Sockets, register};
