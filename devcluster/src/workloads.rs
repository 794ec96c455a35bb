//! The controllers of a small cluster, clients of the API server that can be enabled one by one.
//!
//! The controllers read objects by lists and watches and write through the API like any client, so other
//! watchers see the same order of events as in a real cluster. Each controller is a pure function that maps
//! objects and the time to requests; a single task runs all of them.
//!
//! Differs from kube-controller-manager: there are no Events about scaling, all Pods run on one Node, and Pod
//! templates have other hashes.

mod aggregation;
mod api;
mod claim;
mod client;
mod cron_job;
mod deployment;
mod driver;
mod endpoints;
mod event;
mod garbage;
mod job;
mod namespace;
mod object;
mod pod;
mod replica_set;
mod resources;
mod time;
mod triggers;
mod view;
mod work;

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::store::{Clock, Shift};

pub use client::{Client, Event, Request, RequestError, Verb, Watch};
pub use pod::NODE;
pub use time::Time;

/// A controller that can be enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Empties namespaces that are being deleted.
    Namespaces,
    /// Gives each namespace its default `ServiceAccount` and the `ConfigMap` `kube-root-ca.crt`.
    NamespaceDefaults,
    /// Deletes objects without existing owners; carries out foreground deletion and orphaning.
    GarbageCollector,
    /// Rolls out Deployments.
    Deployments,
    /// Creates and deletes the Pods of `ReplicaSets`.
    ReplicaSets,
    /// Schedules Pods onto the Node [`NODE`] and reports them as running.
    Pods,
    /// Deletes Events an hour after their last write.
    EventExpiry,
    /// Runs Jobs to completion.
    Jobs,
    /// Creates Jobs by the schedules of `CronJobs`.
    CronJobs,
    /// Writes the addresses of the Pods of Services into `EndpointSlices`.
    EndpointSlices,
    /// Writes the addresses of the Pods of Services into Endpoints.
    Endpoints,
    /// Gives aggregated `ClusterRoles`, such as `view`, the rules of the roles that they select.
    ClusterRoles,
}

/// The settings of the controllers.
#[derive(Clone)]
pub struct Options {
    /// The controllers to run; all by default.
    pub controllers: BTreeSet<Controller>,
    /// The certificate of the API server in PEM, for `kube-root-ca.crt`.
    pub root_ca: String,
    /// The clock for timestamps in objects and for deadlines.
    pub clock: Clock,
}

/// The requests of one reconciliation, and the time of the next one.
#[derive(Debug, Default)]
struct Decision {
    requests: Vec<Request>,
    /// When to reconcile the item again without a change; `None` to wait for a change.
    again_at: Option<Timestamp>,
}

/// Runs the controllers until `stop` is cancelled.
///
/// # Cancel safety
/// A dropped call stops the controllers; a request in progress may or may not take effect.
pub async fn run(client: impl Client, options: Options, stop: CancellationToken) {
    let (_, controllers) = prepare(client, options, Shift::default());
    stop.run_until_cancelled(controllers).await;
}

/// Returns a handle that lets time pass for the controllers, and a future that runs them and never ends. The
/// clock of the options must be one of `shift`.
pub fn prepare(
    client: impl Client,
    options: Options,
    shift: Shift,
) -> (Time, impl Future<Output = ()> + Send) {
    let (time, advances) = Time::new(shift);
    (time, driver::Driver::new(client, options, advances).run())
}

// === impl Controller ===

impl Controller {
    /// All controllers, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Namespaces,
        Self::NamespaceDefaults,
        Self::GarbageCollector,
        Self::Deployments,
        Self::ReplicaSets,
        Self::Pods,
        Self::EventExpiry,
        Self::Jobs,
        Self::CronJobs,
        Self::EndpointSlices,
        Self::Endpoints,
        Self::ClusterRoles,
    ];
}

// === impl Options ===

impl Options {
    /// Returns settings with all controllers enabled. `root_ca` is in PEM.
    pub fn new(root_ca: impl Into<String>, clock: Clock) -> Self {
        Self { controllers: Controller::ALL.into(), root_ca: root_ca.into(), clock }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("controllers", &self.controllers).finish_non_exhaustive()
    }
}

// === impl Decision ===

impl From<Vec<Request>> for Decision {
    fn from(requests: Vec<Request>) -> Self {
        Self { requests, again_at: None }
    }
}

#[cfg(test)]
mod tests;
