//! A multi-controller manager runtime for Kubernetes.
//!
//! One [`manager::Manager`] owns a shared cache, leader election through a Lease, probes, metrics and many
//! controllers, each with exactly one reconciler and a rate-limited queue of its own. The rooms below are in
//! reading order, top to bottom; imports point downwards only.
//!
//! # Features
//!
//! `program`, on by default, adds [`program`]: command line, logs and the client of `inspect`. `dev` adds the
//! command `dev` to every program. `testing` adds [`testing`], for dev-dependencies only.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod prelude;

#[cfg(feature = "program")]
pub mod program;

#[cfg(feature = "testing")]
pub mod testing;

pub mod manager;

pub mod inspect;

pub mod config;

pub mod controller;
pub mod watch;

pub mod reconcile;

pub mod cache;

pub mod election;

pub mod client;

pub mod queue;

pub mod health;
pub mod key;
pub mod metrics;
pub mod rbac;
pub mod serve;
pub mod util;
