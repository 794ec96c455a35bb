//! A multi-controller manager runtime for Kubernetes.
//!
//! One [`manager::Manager`] owns a shared cache, leader election through a Lease, probes, metrics and many
//! controllers, each with exactly one reconciler and a rate-limited queue of its own. The rooms below are in
//! reading order, top to bottom; imports point downwards only.

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
