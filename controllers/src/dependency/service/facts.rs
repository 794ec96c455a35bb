//! The addresses and ports of Services and EndpointSlices that checks need, decoded once per version.
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
//!    that no check reads.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::discovery::v1::EndpointPort;
use mainstay::cache::{Delta, DeltaHandler, ResourceVersion, Uid, View};
use mainstay_api::plan::PortReference;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ServiceView, SliceView};
use crate::dependency::probe::{Endpoint, ServiceAnswer};

/// The decoded facts of all objects of a store, such as addresses and ports, by the uid of the object. Cheap
/// to clone.
#[derive(Clone, Debug)]
pub(super) struct Facts<T>(Arc<Mutex<HashMap<Uid, Known<T>>>>);

/// The resourceVersion of an object, with the facts decoded from this version or the decode error.
type Known<T> = (ResourceVersion, Result<Arc<T>, Arc<str>>);

#[derive(Clone, Debug, Deserialize)]
#[serde(from = "ServiceView")]
pub(super) struct ServiceFacts {
    form: Form,
    /// The cluster addresses of the Service, allocated by the cluster from the Service network.
    pub(super) cluster_addresses: Box<[IpAddr]>,
    /// The [`fingerprint`]s of all other addresses from which nodes forward to the endpoints of the Service,
    /// external and load-balancer addresses, sorted. The author of the Service chooses these addresses and
    /// their number, so they are kept in four bytes each. Node ports are left out, since they exist at every
    /// address of every node.
    pub(super) fingerprints: Box<[u32]>,
    ports: Box<[PortFacts]>,
}

#[derive(Clone, Debug)]
pub(super) struct PortFacts {
    pub(super) number: u16,
    /// The name of the port; may be empty if the Service has one port.
    pub(super) name: Box<str>,
    is_tcp: bool,
}

#[derive(Clone, Debug)]
enum Form {
    Cluster,
    Headless,
    External(Box<str>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(from = "SliceView")]
pub(super) struct SliceFacts {
    /// The name of each port of the EndpointSlice, and its number at the endpoints.
    ports: Box<[(Box<str>, Option<u16>)]>,
    /// The endpoints of the EndpointSlice, one entry per address.
    endpoints: Box<[EndpointFacts]>,
}

#[derive(Clone, Debug)]
struct EndpointFacts {
    /// The IP address of the endpoint; `None` in an EndpointSlice of type FQDN: DNS would have to resolve its
    /// names.
    ip: Option<IpAddr>,
    /// A hash that identifies the endpoint: of the uid of the object behind it, mostly a Pod; without one, of
    /// the first address.
    identity: u64,
    is_ready: bool,
    is_pod: bool,
}

// === impl Facts ===

impl<T: DeserializeOwned + Send + Sync + 'static> Facts<T> {
    /// Decodes the facts of one version of an object, and stores them.
    fn extract(&self, view: &View) -> Result<Arc<T>, Arc<str>> {
        let facts = view.decode::<T>().map_err(|error| Arc::from(error.to_string()));
        let meta = view.meta();
        self.0.lock().insert(meta.uid.clone(), (meta.resource_version.clone(), facts.clone()));
        facts
    }

    /// Returns the facts of one version of an object: the stored ones, or newly decoded ones.
    pub(super) fn of(&self, view: &View) -> Result<Arc<T>, Arc<str>> {
        let meta = view.meta();
        let known = self.0.lock().get(&meta.uid).cloned();
        let known = known.filter(|(version, _)| *version == meta.resource_version);
        known.map_or_else(|| self.extract(view), |(_, facts)| facts)
    }
}

/// Removes the stored facts of deleted objects.
impl<T: Send + Sync + 'static> DeltaHandler for Facts<T> {
    fn handle(&self, delta: &Delta<'_>) {
        if let (Some(gone), None) = (delta.old, delta.new) {
            self.0.lock().remove(&gone.meta().uid);
        }
    }

    fn name(&self) -> &'static str {
        "facts for probes"
    }
}

impl<T> Default for Facts<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

// === impl ServiceFacts ===

impl From<ServiceView> for ServiceFacts {
    fn from(ServiceView { spec, status }: ServiceView) -> Self {
        let form = if spec.type_.as_deref() == Some("ExternalName") {
            Form::External(spec.external_name.as_deref().unwrap_or_default().into())
        } else if spec.cluster_ip.as_deref() == Some("None") {
            Form::Headless
        } else {
            Form::Cluster
        };
        let own =
            spec.cluster_ips.as_deref().filter(|ips| !ips.is_empty()).unwrap_or(spec.cluster_ip.as_slice());
        let ingress = status.load_balancer.into_iter().filter_map(|balancer| balancer.ingress).flatten();
        let others = spec.external_ips.into_iter().flatten().chain(ingress.filter_map(|ingress| ingress.ip));
        let port = |port: ServicePort| {
            let is_tcp = port.protocol.is_none_or(|protocol| protocol == "TCP");
            let number = u16::try_from(port.port).ok()?;
            Some(PortFacts { number, name: port.name.unwrap_or_default().into(), is_tcp })
        };
        Self {
            form,
            // The field of a headless Service is "None", which is no address.
            cluster_addresses: own.iter().filter_map(|text| text.parse().ok()).collect(),
            fingerprints: fingerprints(others),
            ports: spec.ports.into_iter().flatten().filter_map(port).collect(),
        }
    }
}

impl ServiceFacts {
    /// Returns the addresses of the Service for a connection to `port`; `None` for a headless Service, which
    /// has its endpoints only.
    pub(super) fn answer(&self, port: u16) -> Option<ServiceAnswer> {
        match &self.form {
            Form::External(name) => Some(ServiceAnswer::External(name.to_string())),
            // A headless name resolves to the endpoints, so the ports of the Service do not matter.
            Form::Headless => None,
            Form::Cluster if self.tcp_port(port).is_none() => Some(ServiceAnswer::NoPort),
            Form::Cluster => Some(ServiceAnswer::Cluster(self.cluster_addresses.to_vec())),
        }
    }

    /// Returns the name of the Service's TCP port with this number; the API allows one at most.
    pub(super) fn tcp_port(&self, number: u16) -> Option<&str> {
        self.ports.iter().find(|port| port.is_tcp && port.number == number).map(|port| &*port.name)
    }

    /// Returns the port of the Service with this number or name, of any protocol.
    pub(super) fn port(&self, reference: &PortReference) -> Option<&PortFacts> {
        self.ports.iter().find(|port| match reference {
            PortReference::Number(number) => port.number == *number,
            PortReference::Name(name) => *port.name == **name,
        })
    }

    /// Returns the number of the Service's only port; `None` if it has none or several.
    pub(super) fn only_port(&self) -> Option<u16> {
        if let [only] = &*self.ports { Some(only.number) } else { None }
    }

    pub(super) fn is_external(&self) -> bool {
        matches!(self.form, Form::External(_))
    }

    /// Returns whether the Service lists an external or load-balancer address with this fingerprint.
    pub(super) fn lists(&self, fingerprint: u32) -> bool {
        self.fingerprints.binary_search(&fingerprint).is_ok()
    }
}

// === impl SliceFacts ===

impl From<SliceView> for SliceFacts {
    fn from(slice: SliceView) -> Self {
        let endpoints = slice.endpoints.iter().flatten().flat_map(|endpoint| {
            let target = endpoint.target_ref.as_ref();
            let uid = target.and_then(|target| target.uid.as_ref()).filter(|uid| !uid.is_empty());
            let facts = EndpointFacts {
                ip: None,
                identity: hash_of(&uid.or(endpoint.addresses.first())),
                // Absent means ready, by the definition of the API.
                is_ready: endpoint.conditions.as_ref().is_none_or(|found| found.ready != Some(false)),
                is_pod: target.is_some_and(|target| target.kind.as_deref() == Some("Pod")),
            };
            endpoint.addresses.iter().map(move |ip| EndpointFacts { ip: ip.parse().ok(), ..facts })
        });
        let endpoints = endpoints.collect();
        let port = |port: EndpointPort| {
            (port.name.unwrap_or_default().into(), port.port.and_then(|port| u16::try_from(port).ok()))
        };
        Self { ports: slice.ports.into_iter().flatten().map(port).collect(), endpoints }
    }
}

impl SliceFacts {
    /// Returns the endpoints of the EndpointSlice to which a connection to the port of this name may be
    /// forwarded. A slice without ports may serve any port.
    pub(super) fn backends(&self, name: &str) -> impl Iterator<Item = Endpoint> {
        let port = match &*self.ports {
            [] => Some(None),
            ports => ports.iter().find(|(of, _)| **of == *name).map(|(_, port)| *port),
        };
        let endpoints = self.endpoints.iter().filter(move |_| port.is_some());
        endpoints.filter_map(move |found| {
            Some(Endpoint { ip: found.ip?, port: port.flatten(), is_pod: found.is_pod })
        })
    }

    pub(super) fn ready_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.endpoints.iter().filter(|endpoint| endpoint.is_ready).filter_map(|endpoint| endpoint.ip)
    }

    /// Returns the identities of the ready endpoints of the EndpointSlice; with the name of a `port`, none if
    /// the slice does not list it.
    pub(super) fn ready(&self, port: Option<&str>) -> impl Iterator<Item = u64> {
        let serves = port.is_none_or(|port| self.ports.iter().any(|(name, _)| **name == *port));
        self.endpoints.iter().filter(move |found| serves && found.is_ready).map(|found| found.identity)
    }
}

/// Returns four bytes for an IP address: the address itself for IPv4, a hash for IPv6. If two addresses have
/// the same fingerprint, the policy checks a probe of either against the endpoints of both.
pub(super) fn fingerprint(ip: IpAddr) -> u32 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => {
            let [one, two, three, four, ..] = hash_of(&ip).to_le_bytes();
            u32::from_le_bytes([one, two, three, four])
        }
    }
}

fn fingerprints(texts: impl Iterator<Item = String>) -> Box<[u32]> {
    let fingerprints = texts.filter_map(|text| text.parse().ok()).map(fingerprint);
    fingerprints.collect::<BTreeSet<_>>().into_iter().collect()
}

fn hash_of(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests;
