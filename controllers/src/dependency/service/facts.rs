//! The addresses and ports of Services and EndpointSlices that probes need, decoded once per version.
//!
//! The task that runs all probes must not decode Services: their authors choose the size, and a few hundred
//! large Services would delay every probe.
//!
//! # Invariants
//! 1. The facts of a Service are extracted from each version before the store shows it, by an index
//!    function, which also sees all of an object that is too large to be kept. If two versions arrive
//!    together, the stored facts may be of the other version; a reader then decodes its own version, or
//!    fails.
//! 2. The facts of a slice are extracted at the first read of a version: most slices belong to Services
//!    that no probe reads.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use mainstay::cache::{Delta, DeltaHandler, ResourceVersion, Uid, View};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::{ServiceView, SliceView};
use crate::dependency::probe::{Endpoint, ServiceAnswer};

/// The facts of all objects of a store, by the uid of the object. Cheap to clone.
#[derive(Debug)]
pub(super) struct Facts<T>(Arc<Mutex<HashMap<Uid, Known<T>>>>);

/// A version, and its facts or its decode error.
type Known<T> = (ResourceVersion, Result<Arc<T>, Arc<str>>);

/// Facts that are extracted from an object.
pub(super) trait Fact: Send + Sync + 'static {
    /// The type that the object is decoded as.
    type Decoded: DeserializeOwned + Send + Sync + 'static;

    /// Extracts the facts.
    fn of(decoded: &Self::Decoded) -> Self;
}

#[derive(Debug)]
pub(super) struct ServiceFacts {
    form: Form,
    /// Allocated by the cluster from the Service network.
    cluster_addresses: Box<[IpAddr]>,
    /// The [`fingerprint`]s of external and load-balancer addresses, sorted. The author of the Service
    /// chooses these addresses and their number, so they are kept in four bytes each.
    fingerprints: Box<[u32]>,
    /// The TCP ports: number and name. The name may be empty if the Service has one port.
    ports: Box<[(u16, Box<str>)]>,
}

#[derive(Debug)]
enum Form {
    Cluster,
    Headless,
    External(Box<str>),
}

#[derive(Debug)]
pub(super) struct SliceFacts {
    /// The name of each port of the Service, and its number at the endpoints.
    ports: Box<[(Box<str>, Option<u16>)]>,
    /// One entry per address.
    endpoints: Box<[EndpointFacts]>,
}

#[derive(Debug)]
struct EndpointFacts {
    ip: IpAddr,
    is_ready: bool,
    is_pod: bool,
}

// === impl Facts ===

impl<T: Fact> Facts<T> {
    /// Extracts the facts of a version, and stores them.
    fn extract(&self, view: &View) -> Result<Arc<T>, Arc<str>> {
        let decoded = view.decode::<T::Decoded>();
        let facts = decoded.map(|decoded| Arc::new(T::of(&decoded)));
        let facts = facts.map_err(|error| Arc::from(error.to_string()));
        let meta = view.meta();
        self.0.lock().insert(meta.uid.clone(), (meta.resource_version.clone(), facts.clone()));
        facts
    }

    /// Returns the facts of a version: the stored ones, or new ones.
    pub(super) fn of(&self, view: &View) -> Result<Arc<T>, Arc<str>> {
        let meta = view.meta();
        let known = self.0.lock().get(&meta.uid).cloned();
        let known = known.filter(|(version, _)| *version == meta.resource_version);
        known.map_or_else(|| self.extract(view), |(_, facts)| facts)
    }
}

/// Removes the facts of deleted objects.
impl<T: Fact> DeltaHandler for Facts<T> {
    fn handle(&self, delta: &Delta<'_>) {
        if let (Some(gone), None) = (delta.old, delta.new) {
            self.0.lock().remove(&gone.meta().uid);
        }
    }

    fn name(&self) -> &'static str {
        "facts for probes"
    }
}

impl<T> Clone for Facts<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Facts<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

// === impl ServiceFacts ===

impl Fact for ServiceFacts {
    type Decoded = ServiceView;

    fn of(service: &ServiceView) -> Self {
        let spec = &service.spec;
        let form = if spec.r#type == "ExternalName" {
            Form::External(spec.external_name.as_str().into())
        } else if spec.cluster_ip == "None" {
            Form::Headless
        } else {
            Form::Cluster
        };
        let first = std::iter::once(&spec.cluster_ip).filter(|_| spec.cluster_ips.is_empty());
        let ingress = service.status.load_balancer.ingress.iter().map(|ingress| &ingress.ip);
        let ports = spec.ports.iter().filter(|port| port.protocol.is_empty() || port.protocol == "TCP");
        Self {
            form,
            // The field of a headless Service is "None", which is no address.
            cluster_addresses: addresses(spec.cluster_ips.iter().chain(first)),
            fingerprints: fingerprints(spec.external_ips.iter().chain(ingress)),
            ports: ports.map(|port| (port.port, port.name.as_str().into())).collect(),
        }
    }
}

impl ServiceFacts {
    /// Returns the answer for a port, or `None` for a headless Service, whose answer is its endpoints.
    pub(super) fn answer(&self, port: u16) -> Option<ServiceAnswer> {
        match &self.form {
            Form::External(name) => Some(ServiceAnswer::External(name.to_string())),
            // A headless name resolves to the endpoints, so the ports of the Service do not matter.
            Form::Headless => None,
            Form::Cluster if self.tcp_port(port).is_none() => Some(ServiceAnswer::NoPort),
            Form::Cluster => Some(ServiceAnswer::Cluster(self.cluster_addresses.to_vec())),
        }
    }

    /// Returns the name of the TCP port with this number; the API allows one at most.
    pub(super) fn tcp_port(&self, number: u16) -> Option<&str> {
        self.ports.iter().find(|(port, _)| *port == number).map(|(_, name)| &**name)
    }

    pub(super) fn cluster_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.cluster_addresses.iter().copied()
    }

    /// Returns the fingerprints of all other addresses from which nodes forward to the endpoints. Node
    /// ports are left out, since they exist at every address of every node.
    pub(super) fn fingerprints(&self) -> impl Iterator<Item = u32> {
        self.fingerprints.iter().copied()
    }

    /// Returns whether the Service lists an external or load-balancer address with this fingerprint.
    pub(super) fn lists(&self, fingerprint: u32) -> bool {
        self.fingerprints.binary_search(&fingerprint).is_ok()
    }
}

// === impl SliceFacts ===

impl Fact for SliceFacts {
    type Decoded = SliceView;

    fn of(slice: &SliceView) -> Self {
        let name = |name: &Option<String>| name.as_deref().unwrap_or_default().into();
        let endpoints = slice.endpoints.iter().flatten().flat_map(|endpoint| {
            let is_pod = endpoint.target_ref.as_ref().is_some_and(|target| target.kind == "Pod");
            let is_ready = endpoint.is_ready();
            // Names in a slice of type FQDN are skipped: DNS would have to resolve them.
            let ips = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
            ips.map(move |ip| EndpointFacts { ip, is_ready, is_pod })
        });
        Self {
            ports: slice.ports.iter().flatten().map(|port| (name(&port.name), port.port)).collect(),
            endpoints: endpoints.collect(),
        }
    }
}

impl SliceFacts {
    /// Returns the endpoints to which a connection to the port of this name may be forwarded. A slice
    /// without ports may serve any port.
    pub(super) fn backends(&self, name: &str) -> impl Iterator<Item = Endpoint> {
        let port = match &*self.ports {
            [] => Some(None),
            ports => ports.iter().find(|(of, _)| **of == *name).map(|(_, port)| *port),
        };
        let endpoints = self.endpoints.iter().filter(move |_| port.is_some());
        endpoints.map(move |found| Endpoint { ip: found.ip, port: port.flatten(), is_pod: found.is_pod })
    }

    pub(super) fn ready_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.endpoints.iter().filter(|endpoint| endpoint.is_ready).map(|endpoint| endpoint.ip)
    }
}

/// Returns four bytes for an address: the address itself for IPv4, a hash for IPv6. If two addresses have
/// the same fingerprint, the policy checks a probe of either against the endpoints of both.
pub(super) fn fingerprint(ip: IpAddr) -> u32 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => {
            let mut hasher = DefaultHasher::new();
            ip.hash(&mut hasher);
            let [one, two, three, four, ..] = hasher.finish().to_le_bytes();
            u32::from_le_bytes([one, two, three, four])
        }
    }
}

fn fingerprints<'a>(texts: impl Iterator<Item = &'a String>) -> Box<[u32]> {
    let mut fingerprints: Vec<_> = texts.filter_map(|text| text.parse().ok()).map(fingerprint).collect();
    fingerprints.sort_unstable();
    fingerprints.dedup();
    fingerprints.into()
}

fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Box<[IpAddr]> {
    texts.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
