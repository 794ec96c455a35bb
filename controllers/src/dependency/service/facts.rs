//! The addresses and ports of Services and their slices, which probes need, decoded once per version. The task that runs all
//! probes must not decode Services: authors choose their size, and a few hundred large ones would delay every probe.
//!
//! # Invariants
//! 1. The facts of a Service are taken out of each version before the store shows it, by the function of an index, which
//!    sees the whole of one that is too large to be kept. Where two versions arrive together the facts may be those of the
//!    other one; a reader then decodes its own version, or fails.
//! 2. The facts of a slice are taken out at the first read of each version: most slices belong to Services that no probe
//!    reads.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;

use mainstay::cache::{Delta, DeltaHandler, ResourceVersion, Uid, View};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::{ServiceView, SliceView};
use crate::dependency::probe::{Endpoint, ServiceAnswer};

/// The facts of all objects of a store. Cheap to clone.
#[derive(Debug)]
pub(super) struct Facts<T>(Arc<Mutex<HashMap<Uid, Known<T>>>>);

/// The version, and its facts or why it does not decode.
type Known<T> = (ResourceVersion, Result<Arc<T>, Arc<str>>);

/// Facts that are taken out of an object.
pub(super) trait Fact: Send + Sync + 'static {
    /// The type that the object is decoded as.
    type Decoded: DeserializeOwned + Send + Sync + 'static;

    fn of(decoded: &Self::Decoded) -> Self;
}

#[derive(Debug)]
pub(super) struct ServiceFacts {
    form: Form,
    /// Given out by the cluster, from a network of their own.
    cluster_addresses: Box<[IpAddr]>,
    /// The [`mark`]s of external ones and of those of load balancers, sorted: the author of the Service chooses them, and
    /// how many.
    marks: Box<[u32]>,
    /// Those of TCP: number, and the name, which is empty where there is one port alone.
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
    /// The name of the Service's port, and the number that the endpoints have for it.
    ports: Box<[(Box<str>, Option<u16>)]>,
    /// One for each address.
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
    /// Takes the facts out of a version, and remembers them.
    fn take_out(&self, view: &View) -> Result<Arc<T>, Arc<str>> {
        let decoded = view.decode::<T::Decoded>();
        let facts = decoded.map(|decoded| Arc::new(T::of(&decoded)));
        let facts = facts.map_err(|error| Arc::from(error.to_string()));
        let meta = view.meta();
        self.0.lock().insert(meta.uid.clone(), (meta.resource_version.clone(), facts.clone()));
        facts
    }

    /// Returns the facts of a version.
    pub(super) fn of(&self, view: &View) -> Result<Arc<T>, Arc<str>> {
        let meta = view.meta();
        let known = self.0.lock().get(&meta.uid).cloned();
        let known = known.filter(|(version, _)| *version == meta.resource_version);
        known.map_or_else(|| self.take_out(view), |(_, facts)| facts)
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
            // A headless Service has none; its field is "None".
            cluster_addresses: addresses(spec.cluster_ips.iter().chain(first)),
            marks: marks(spec.external_ips.iter().chain(ingress)),
            ports: ports.map(|port| (port.port, port.name.as_str().into())).collect(),
        }
    }
}

impl ServiceFacts {
    /// Returns the answer if it needs no endpoints; `None` for a headless Service.
    pub(super) fn judge(&self, port: u16) -> Option<ServiceAnswer> {
        match &self.form {
            Form::External(name) => Some(ServiceAnswer::External(name.to_string())),
            // Its name stands for the endpoints themselves, whatever ports it lists.
            Form::Headless => None,
            Form::Cluster if self.tcp_port(port).is_none() => Some(ServiceAnswer::NoPort),
            Form::Cluster => Some(ServiceAnswer::Cluster(self.cluster_addresses.to_vec())),
        }
    }

    /// Returns the name of the TCP port with this number: there is one at most.
    pub(super) fn tcp_port(&self, number: u16) -> Option<&str> {
        self.ports.iter().find(|(port, _)| *port == number).map(|(_, name)| &**name)
    }

    pub(super) fn cluster_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.cluster_addresses.iter().copied()
    }

    /// Returns the marks of all else that nodes pass on to its endpoints, but for node ports: those are ports of any
    /// address of a node.
    pub(super) fn marks(&self) -> impl Iterator<Item = u32> {
        self.marks.iter().copied()
    }

    /// Returns whether it lists an address of this mark.
    pub(super) fn lists(&self, mark: u32) -> bool {
        self.marks.binary_search(&mark).is_ok()
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
            // Names in a slice of type FQDN are passed over: they would have to be resolved by DNS.
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
    /// Returns each address that a connection to a port of the Service may be passed on to, with the port there: the one
    /// of this name. A slice without ports may be for all of them.
    pub(super) fn behind(&self, name: &str) -> impl Iterator<Item = Endpoint> {
        let port = match &*self.ports {
            [] => Some(None),
            // A port of a Service and that of a slice belong together by name.
            ports => ports.iter().find(|(of, _)| **of == *name).map(|(_, port)| *port),
        };
        let endpoints = self.endpoints.iter().filter(move |_| port.is_some());
        endpoints.map(move |found| Endpoint { ip: found.ip, port: port.flatten(), is_pod: found.is_pod })
    }

    pub(super) fn ready_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.endpoints.iter().filter(|endpoint| endpoint.is_ready).map(|endpoint| endpoint.ip)
    }
}

/// Returns what stands for an address: of four bytes all, of others a hash. Where two have one mark, a probe of either has
/// to be allowed for the endpoints of both.
pub(super) fn mark(ip: IpAddr) -> u32 {
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

fn marks<'a>(texts: impl Iterator<Item = &'a String>) -> Box<[u32]> {
    let mut marks: Vec<_> = texts.filter_map(|text| text.parse().ok()).map(mark).collect();
    marks.sort_unstable();
    marks.dedup();
    marks.into()
}

fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Box<[IpAddr]> {
    texts.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
