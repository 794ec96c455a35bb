//! The controllers built into mainstay.
//!
//! Two controllers share one custom resource. [`wait_deployment`] creates a Deployment once its dependencies
//! are ready; [`status_mirror`] copies that Deployment's status to the WaitDeployment. Their decisions are
//! pure functions ([`wait_deployment::gate`], [`status_mirror::mirror`], [`deployment`]). [`dependency`]
//! checks the dependencies.
//!
//! # Features
//!
//! `dev`, on by default, adds the commands `dev` and `cluster` to the program.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "dev")]
mod dev;
mod program;
mod scaffold;

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
