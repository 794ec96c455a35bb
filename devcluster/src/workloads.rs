//! The controllers of a small cluster, each switchable: ordinary clients beside the API server.
//!
//! They see objects through lists and watches and write through the API like any client, so other watchers
//! see the same order of events as in a real cluster. The decision of each controller is a pure function from
//! objects and the time to requests; one task feeds them all.
//!
//! Differs from kube-controller-manager: there are no Events about scaling, one Node takes all Pods, and
//! hashes of Pod templates are others.

mod api;
mod claim;
mod client;
mod deployment;
mod driver;
mod endpoints;
mod garbage;
mod namespace;
mod object;
mod pod;
mod replica_set;
mod resources;
mod triggers;
mod view;
mod work;

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::store::Clock;

pub use client::{Client, Event, Request, RequestError, Verb, Watch};
pub use pod::NODE;

/// A controller that can be switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Empties namespaces that are being deleted.
    Namespaces,
    /// Gives each namespace its default `ServiceAccount` and the `ConfigMap` `kube-root-ca.crt`.
    NamespaceDefaults,
    /// Deletes objects without owners; foreground deletion and orphaning.
    GarbageCollector,
    /// Rolls out Deployments.
    Deployments,
    /// Creates and deletes the Pods of `ReplicaSets`.
    ReplicaSets,
    /// Schedules Pods onto the Node [`NODE`] and reports them as running.
    Pods,
    /// Lists the Pods of Services in `EndpointSlices`.
    EndpointSlices,
    /// Lists the Pods of Services in Endpoints.
    Endpoints,
}

/// Which controllers run, and with what.
#[derive(Clone)]
pub struct Options {
    /// The controllers to run; all by default.
    pub controllers: BTreeSet<Controller>,
    /// The certificate of the API server in PEM, for `kube-root-ca.crt`.
    pub root_ca: String,
    /// The clock of timestamps.
    pub clock: Clock,
}

/// The requests of one pass over an object, and when to look at it again without a change.
#[derive(Debug, Default)]
struct Decision {
    requests: Vec<Request>,
    again_at: Option<Timestamp>,
}

/// Runs the controllers until `stop` is cancelled.
///
/// # Cancel safety
/// A dropped call ends at the last completed request.
pub async fn run(client: impl Client, options: Options, stop: CancellationToken) {
    let driver = driver::Driver::new(client, options);
    stop.run_until_cancelled(driver.run()).await;
}

// === impl Controller ===

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 8] = [
        Self::Namespaces,
        Self::NamespaceDefaults,
        Self::GarbageCollector,
        Self::Deployments,
        Self::ReplicaSets,
        Self::Pods,
        Self::EndpointSlices,
        Self::Endpoints,
    ];
}

// === impl Options ===

impl Options {
    /// All controllers.
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
