//! The addresses and backends of Services, for probes.

use std::net::{IpAddr, SocketAddr};

/// Finds Services in the cache, without a request.
pub trait Services: Send + Sync + 'static {
    /// Returns the addresses of a Service for a TCP connection to `port`, or the reason why there are none.
    fn find(&self, namespace: &str, name: &str, port: u16) -> ServiceAnswer;

    /// Returns all endpoints, ready or not, to which a connection to `address` may be forwarded: those of the
    /// Service with this cluster address, or else those of all Services with this external or load-balancer
    /// address. `None` if no Service has the address and port.
    ///
    /// Fails with the cause while the cache cannot be read.
    fn backends(&self, address: SocketAddr) -> Result<Option<Backends>, String>;
}

/// The endpoints behind an address of Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backends {
    /// The namespace of the Service with this cluster address; `None` for an external or load-balancer
    /// address. The cluster allocates cluster addresses, while the author of a Service can list any other
    /// address.
    pub cluster_address_of: Option<String>,
    /// The endpoints to which a connection to the address may be forwarded.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint to which a connection to a Service may be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The IP address of the endpoint.
    pub ip: IpAddr,
    /// The port of the endpoint; `None` if its EndpointSlice names none, so it may be any.
    pub port: Option<u16>,
    /// Whether the EndpointSlice of the endpoint refers to a Pod.
    pub is_pod: bool,
}

/// The addresses of a Service, as found in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceAnswer {
    /// The cluster addresses of the Service.
    Cluster(Vec<IpAddr>),
    /// The addresses of the ready endpoints of a Service without a cluster address; may be empty.
    Headless(Vec<IpAddr>),
    /// The Service is an `ExternalName`; with the host name in its `externalName`.
    External(String),
    /// The Service exists without a TCP port of this number.
    NoPort,
    /// The Service does not exist.
    NotFound,
    /// The cache of Services cannot be read at present; with the cause.
    Unknown(String),
}

/// Parses a host name as that of a Service: `name`, `name.namespace`, `name.namespace.svc` or
/// `name.namespace.svc.cluster.local`. Returns name and namespace; without a namespace it is `own`. `None`
/// for any other host name.
pub(super) fn service_name<'a>(host: &'a str, own: &'a str) -> Option<(&'a str, &'a str)> {
    let mut labels = host.splitn(3, '.');
    let name = labels.next()?;
    let namespace = labels.next().unwrap_or(own);
    matches!(labels.next(), None | Some("svc" | "svc.cluster.local")).then_some((name, namespace))
}

#[cfg(test)]
mod tests;
