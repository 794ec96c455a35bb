//! Which addresses a Service has, as far as a probe needs to know.

use std::net::{IpAddr, SocketAddr};

/// Finds Services in the cache; no request is made for it.
pub trait Services: Send + Sync + 'static {
    /// Looks up what connecting to `port` of a Service would reach.
    fn find(&self, namespace: &str, name: &str, port: u16) -> ServiceAnswer;

    /// Returns everything, ready or not, that a connection to an address may be passed on to: by the Service that has it as a
    /// cluster address, else by those that have it as an external one or as one of a load balancer. `None` if no Service
    /// has it with this port.
    ///
    /// Fails with the cause where the cache cannot tell.
    fn behind(&self, address: SocketAddr) -> Result<Option<Behind>, String>;
}

/// What there is behind an address of Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// The namespace of the Service that has it as a cluster address: those are given out by the cluster from a network of
    /// their own, while an author of a Service can list any other address in it.
    pub cluster_address_of: Option<String>,
    /// Where a connection may be passed on to.
    pub endpoints: Vec<Endpoint>,
}

/// Where a connection to a Service may be passed on to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Its port; `None` where the slice names none.
    pub port: Option<u16>,
    /// Whether the slice says that it is a Pod.
    pub is_pod: bool,
}

/// What is known of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAnswer {
    /// Its cluster addresses.
    Cluster(Vec<IpAddr>),
    /// The addresses of the ready endpoints of a Service without a cluster address; may be empty.
    Headless(Vec<IpAddr>),
    /// It is another name for a host outside.
    External(String),
    /// It exists, and no TCP port of it has this number.
    NoPort,
    /// It does not exist.
    NotFound,
    /// The cache cannot tell at present; with the cause.
    Unknown(String),
}

/// Knows no Service: for a process that is connected to no cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServices;

impl Services for NoServices {
    fn find(&self, _: &str, _: &str, _: u16) -> ServiceAnswer {
        ServiceAnswer::NotFound
    }

    fn behind(&self, _: SocketAddr) -> Result<Option<Behind>, String> {
        Ok(None)
    }
}

/// Reads a host name as that of a Service: `name`, `name.namespace`, `name.namespace.svc` or
/// `name.namespace.svc.cluster.local`. Returns name and namespace; the first form means `own`.
pub(super) fn service_name<'a>(host: &'a str, own: &'a str) -> Option<(&'a str, &'a str)> {
    let mut labels = host.splitn(3, '.');
    let name = labels.next()?;
    let namespace = labels.next().unwrap_or(own);
    matches!(labels.next(), None | Some("svc" | "svc.cluster.local")).then_some((name, namespace))
}

#[cfg(test)]
mod tests;
