//! Services in the cache: the addresses that a probe would connect to, and the number of ready endpoints.

mod facts;
mod ready;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec, ServiceStatus};
use k8s_openapi::api::discovery::v1::{Endpoint as EndpointOfSlice, EndpointPort, EndpointSlice};
use mainstay::cache::{Meta, Select, Store, Subscription};
use mainstay::key::NamespacedName;
use serde::Deserialize;
use tracing::warn;

use crate::dependency::probe::{Backends, ServiceAnswer, Services};
use facts::{Facts, ServiceFacts, SliceFacts, fingerprint};

pub use ready::Endpoints;

/// The label of an EndpointSlice with the name of its Service as the value.
pub(crate) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Name of the cache index of EndpointSlices by the name of their Service.
const BY_SERVICE: &str = "by-service";
/// Name of the cache index of Services by the addresses at which they accept connections.
const BY_ADDRESS: &str = "by-address";
/// The key in the index `by-address` under which Services that cannot be decoded are found.
const UNDECODABLE: &str = "undecodable";
/// Maximum number of keys in the index `by-address` for external and load-balancer addresses. A Service may
/// list any number of them.
const OTHER_KEYS: u32 = 1024;
/// Maximum number of Services that may list one address and port. Nodes forward a connection to one of them
/// only, so more have no use, and each makes every probe of the address more expensive.
const MAX_SHARERS: usize = 16;

/// Reads Services and EndpointSlices from the cache, and decodes only the fields that checks need.
#[derive(Debug)]
pub struct CachedServices {
    services: Store<ServiceView>,
    slices: Store<SliceView>,
    service_facts: Facts<ServiceFacts>,
    slice_facts: Facts<SliceFacts>,
    /// Subscriptions that remove the facts of deleted Services and EndpointSlices, until dropped.
    _removals: [Subscription; 2],
}

/// The part of a Service that checks need, as it is decoded from JSON.
#[derive(Debug, Deserialize)]
struct ServiceView {
    #[serde(default)]
    spec: ServiceSpec,
    #[serde(default)]
    status: ServiceStatus,
}

/// The part of an EndpointSlice that checks need, as it is decoded from JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SliceView {
    endpoints: Option<Vec<EndpointOfSlice>>,
    ports: Option<Vec<EndpointPort>>,
}

// === impl CachedServices ===

impl CachedServices {
    /// Makes a reader of Services and EndpointSlices in these stores, and adds its indexes to them.
    pub fn new(services: &Store<Service>, slices: &Store<EndpointSlice>) -> Self {
        let services = Store::<ServiceView>::new(services.untyped().clone());
        let (service_facts, slice_facts) = (Facts::<ServiceFacts>::default(), Facts::<SliceFacts>::default());
        let of_service = service_facts.clone();
        // Neither call can fail, since both handles are new and have no other index. Without an index
        // `backends` would fail, and the policy would deny every probe.
        drop(services.index_view(BY_ADDRESS, move |view| Ok(index_keys(of_service.of(view)))));
        // A label selector would miss a slice whose metadata is too large to be kept; an index function
        // sees it.
        let slices = slices.view::<SliceView>();
        drop(slices.index_view(BY_SERVICE, |view| {
            Ok(view.meta().labels.get(SERVICE_NAME_LABEL).map(str::to_owned).into_iter().collect())
        }));
        let removals = [
            services.untyped().subscribe(Box::new(service_facts.clone())),
            slices.untyped().subscribe(Box::new(slice_facts.clone())),
        ];
        Self { services, slices, service_facts, slice_facts, _removals: removals }
    }

    /// Returns the Pod selector of a Service; empty if the Service has none or cannot be read.
    pub fn selector(&self, service: &NamespacedName) -> BTreeMap<String, String> {
        let service = self.services.get(service).ok().flatten();
        service.and_then(|service| service.spec.selector.clone()).unwrap_or_default()
    }

    fn slices_of(&self, namespace: &str, name: &str) -> Result<Vec<Arc<SliceFacts>>, String> {
        let slices = self.slices.list(&Select::index(BY_SERVICE, name).within(namespace)).map_err(cause)?;
        // An unreadable slice makes the whole answer unknown, since a connection may go to its endpoints.
        let facts = slices.iter().map(|slice| self.slice_facts.of(slice.view()));
        facts.collect::<Result<_, _>>().map_err(cause)
    }

    fn facts_of(&self, namespace: &str, name: &str) -> Result<Option<Arc<ServiceFacts>>, String> {
        let found = self.services.entry(&NamespacedName::namespaced(namespace, name)).map_err(cause)?;
        found.map(|service| self.service_facts.of(service.view()).map_err(cause)).transpose()
    }

    fn look_up(&self, namespace: &str, name: &str, port: u16) -> Result<ServiceAnswer, String> {
        let Some(facts) = self.facts_of(namespace, name)? else { return Ok(ServiceAnswer::NotFound) };
        if let Some(answer) = facts.answer(port) {
            return Ok(answer);
        }
        let slices = self.slices_of(namespace, name)?;
        let ips: BTreeSet<_> = slices.iter().flat_map(|slice| slice.ready_addresses()).collect();
        Ok(ServiceAnswer::Headless(ips.into_iter().collect()))
    }

    /// Returns the endpoints of the Services with an IP address: as a cluster address, which at most one
    /// Service has, or as an external or load-balancer address, which any number of Services may list. `None`
    /// if no Service has the address and port.
    fn backends_as(
        &self,
        ip: IpAddr,
        port: u16,
        is_cluster_address: bool,
    ) -> Result<Option<Backends>, String> {
        let key = if is_cluster_address { cluster_address_key(ip) } else { other_key(fingerprint(ip)) };
        let mut found: Option<Backends> = None;
        let mut sharers = 0;
        for service in self.services.list(&Select::index(BY_ADDRESS, key)).map_err(cause)? {
            let facts = self.service_facts.of(service.view()).map_err(cause)?;
            if !is_cluster_address && !facts.lists(fingerprint(ip)) {
                continue;
            }
            let Some(port) = facts.tcp_port(port) else { continue };
            sharers += 1;
            if sharers > MAX_SHARERS {
                return Err(format!("more than {MAX_SHARERS} Services list the address with this port"));
            }
            let namespace = service.meta().namespace().unwrap_or_default();
            let found = found.get_or_insert_default();
            found.cluster_address_of = is_cluster_address.then(|| namespace.to_owned());
            for slice in self.slices_of(namespace, service.meta().name())? {
                found.endpoints.extend(slice.backends(port));
            }
        }
        Ok(found)
    }
}

impl Services for CachedServices {
    fn find(&self, namespace: &str, name: &str, port: u16) -> ServiceAnswer {
        self.look_up(namespace, name, port).unwrap_or_else(ServiceAnswer::Unknown)
    }

    fn backends(&self, address: SocketAddr) -> Result<Option<Backends>, String> {
        let undecodable = self.services.list(&Select::index(BY_ADDRESS, UNDECODABLE)).map_err(cause)?;
        if !undecodable.is_empty() {
            // The author of another Service may read this text, so only the log names the Service.
            return Err("a Service cannot be decoded, and may have any address".to_owned());
        }
        let (ip, port) = (address.ip().to_canonical(), address.port());
        // A node forwards a connection to a cluster address to its own Service, even if other Services list
        // the address.
        let own = self.backends_as(ip, port, true)?;
        if own.is_some() { Ok(own) } else { self.backends_as(ip, port, false) }
    }
}

/// Returns the keys under which a Service is found in the index `by-address`.
fn index_keys(facts: Result<Arc<ServiceFacts>, Arc<str>>) -> Vec<String> {
    match facts {
        Ok(facts) => {
            let own = facts.cluster_addresses.iter().map(|ip| cluster_address_key(ip.to_canonical()));
            let others = facts.fingerprints.iter().copied().map(other_key);
            own.chain(others).collect::<BTreeSet<_>>().into_iter().collect()
        }
        Err(error) => {
            warn!(%error, "a Service cannot be decoded and may have any address; probes do not connect");
            vec![UNDECODABLE.to_owned()]
        }
    }
}

fn cause(error: impl Display) -> String {
    error.to_string()
}

fn cluster_address_key(ip: IpAddr) -> String {
    format!("cluster {ip}")
}

/// Returns the index key of an external or load-balancer address. Several addresses share a key, so a Service
/// has at most [`OTHER_KEYS`] keys for any number of addresses.
fn other_key(fingerprint: u32) -> String {
    format!("other {}", fingerprint % OTHER_KEYS)
}

/// Returns the Service that an EndpointSlice belongs to by its label; `None` without the label.
pub fn service_of_slice(slice: &Meta) -> Option<NamespacedName> {
    let service = slice.labels.get(SERVICE_NAME_LABEL).filter(|name| !name.is_empty())?;
    Some(NamespacedName::new(slice.namespace(), service))
}

#[cfg(test)]
mod tests;
