//! Services as the cache knows them: where a probe would get to, and how many endpoints are ready.

mod ready;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay::cache::{Meta, ReadError, Select, Store, View};
use mainstay::key::Request;
use serde::Deserialize;
use tracing::warn;

use crate::probe::{Behind, Endpoint, ServiceAnswer, Services};

pub use ready::Endpoints;

/// Which Service a slice belongs to.
pub(crate) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// The index of Services by the addresses that connections to them are made to.
const BY_ADDRESS: &str = "by-address";
/// Where those stand in it whose addresses cannot be read.
const VEILED: &str = "veiled";

/// Finds Services and their endpoints in two stores; reads only the few fields it names.
#[derive(Debug)]
pub struct CachedServices {
    services: Store<ServiceView>,
    slices: Store<SliceView>,
}

#[derive(Debug, Deserialize)]
struct ServiceView {
    #[serde(default)]
    spec: ServiceSpecView,
    #[serde(default)]
    status: ServiceStatusView,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceStatusView {
    load_balancer: LoadBalancerView,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LoadBalancerView {
    ingress: Vec<IngressView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IngressView {
    /// Empty where the load balancer has a name only, which DNS knows.
    ip: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceSpecView {
    r#type: String,
    /// The text `None` for a headless Service.
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    external_ips: Vec<String>,
    external_name: String,
    ports: Vec<PortView>,
    /// Absent where somebody else writes the slices.
    selector: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PortView {
    /// Empty where there is one port alone.
    name: String,
    port: u16,
    /// Empty means TCP.
    protocol: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SliceView {
    endpoints: Option<Vec<EndpointView>>,
    ports: Option<Vec<SlicePortView>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SlicePortView {
    /// That of the port of the Service.
    name: Option<String>,
    /// That of the endpoints.
    port: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EndpointView {
    addresses: Vec<String>,
    conditions: EndpointConditions,
    /// Mostly a Pod.
    target_ref: Option<TargetView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TargetView {
    kind: String,
    uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndpointConditions {
    /// Absent means ready, by the API's own rule.
    ready: Option<bool>,
}

// === impl CachedServices ===

impl CachedServices {
    /// Reads from these stores.
    pub fn new(services: &Store<Service>, slices: &Store<EndpointSlice>) -> Self {
        slices.kind_store().index_label(SERVICE_NAME_LABEL);
        let services = Store::<ServiceView>::new(services.kind_store().clone());
        // Cannot fail: the handle is new, and has no other index. Without it `behind` fails, and nothing is let through.
        drop(services.index_view(BY_ADDRESS, |view| Ok(places(view))));
        Self { services, slices: slices.view() }
    }

    /// Returns the labels of the Pods behind a Service; empty if they cannot be told.
    pub fn selector(&self, service: &Request) -> BTreeMap<String, String> {
        let service = self.services.get(service).ok().flatten();
        service.and_then(|service| service.spec.selector.clone()).unwrap_or_default()
    }

    fn headless(&self, namespace: &str, name: &str) -> Result<ServiceAnswer, ReadError> {
        let select = Select::namespace(namespace).label(SERVICE_NAME_LABEL, name);
        let mut ips = Vec::new();
        for slice in self.slices.list(&select)? {
            ips.extend(slice.decode()?.ready_addresses());
        }
        ips.sort_unstable();
        ips.dedup();
        Ok(ServiceAnswer::Headless(ips))
    }

    fn look_up(&self, namespace: &str, name: &str, port: u16) -> Result<ServiceAnswer, ReadError> {
        let Some(service) = self.services.get(&Request::namespaced(namespace, name))? else {
            return Ok(ServiceAnswer::NotFound);
        };
        match service.spec.judge(port) {
            Some(answer) => Ok(answer),
            None => self.headless(namespace, name),
        }
    }

    fn passed_on(&self, address: SocketAddr) -> Result<Option<Behind>, ReadError> {
        let ip = address.ip().to_canonical();
        let select = Select::index(BY_ADDRESS, ip.to_string());
        let mut found = None;
        for service in self.services.list(&select)? {
            let spec = &service.decode()?.spec;
            let Some(port) = spec.tcp_port(address.port()) else { continue };
            let found: &mut Behind = found.get_or_insert_default();
            found.is_cluster_address |= spec.cluster_addresses().any(|one| one.to_canonical() == ip);
            let namespace = service.meta().namespace().unwrap_or_default();
            let select = Select::namespace(namespace).label(SERVICE_NAME_LABEL, service.meta().name());
            for slice in self.slices.list(&select)? {
                // One that cannot be read hides where connections go: then nobody knows.
                found.endpoints.extend(slice.decode()?.behind(&port.name));
            }
        }
        Ok(found)
    }
}

impl Services for CachedServices {
    fn find(&self, namespace: &str, name: &str, port: u16) -> ServiceAnswer {
        self.look_up(namespace, name, port).unwrap_or_else(|error| ServiceAnswer::Unknown(error.to_string()))
    }

    fn behind(&self, address: SocketAddr) -> Result<Option<Behind>, String> {
        let veiled =
            self.services.list(&Select::index(BY_ADDRESS, VEILED)).map_err(|error| error.to_string())?;
        if !veiled.is_empty() {
            // Which one is nobody's business but its owner's: the log has the name.
            return Err("one of the Services cannot be decoded, and may have any address".to_owned());
        }
        self.passed_on(address).map_err(|error| error.to_string())
    }
}

/// Returns where a Service stands in the index by address.
fn places(service: &View) -> Vec<String> {
    match service.decode::<ServiceView>() {
        Ok(found) => found.addresses().map(|ip| ip.to_canonical().to_string()).collect(),
        Err(error) => {
            warn!(%error, "while this Service is there, no probe connects: it may stand for any address");
            vec![VEILED.to_owned()]
        }
    }
}

/// Returns the Service whose endpoints a slice lists.
pub fn service_of_slice(slice: &Meta) -> Option<Request> {
    let service = slice.labels.get(SERVICE_NAME_LABEL).filter(|name| !name.is_empty())?;
    Some(Request::new(slice.namespace(), service))
}

// === impl views ===

impl ServiceSpecView {
    /// Returns what can be said without endpoints; `None` for a headless Service.
    fn judge(&self, port: u16) -> Option<ServiceAnswer> {
        if self.r#type == "ExternalName" {
            return Some(ServiceAnswer::External(self.external_name.clone()));
        }
        if self.cluster_ip == "None" {
            // Its name stands for the endpoints themselves, whatever ports it lists.
            return None;
        }
        if self.tcp_port(port).is_none() {
            return Some(ServiceAnswer::NoPort);
        }
        Some(ServiceAnswer::Cluster(self.cluster_addresses().collect()))
    }

    /// There is one at most.
    fn tcp_port(&self, port: u16) -> Option<&PortView> {
        let is_tcp = |entry: &PortView| entry.protocol.is_empty() || entry.protocol == "TCP";
        self.ports.iter().find(|entry| entry.port == port && is_tcp(entry))
    }

    /// None of a headless Service, which says so in words.
    fn cluster_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let first = std::iter::once(&self.cluster_ip).filter(|_| self.cluster_ips.is_empty());
        self.cluster_ips.iter().chain(first).filter_map(|ip| ip.parse().ok())
    }
}

impl ServiceView {
    /// Returns all that nodes pass on to its endpoints, but for node ports: those are ports of any address of a node.
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let ingress = self.status.load_balancer.ingress.iter().map(|ingress| &ingress.ip);
        let others = self.spec.external_ips.iter().chain(ingress);
        self.spec.cluster_addresses().chain(others.filter_map(|ip| ip.parse().ok()))
    }
}

impl SlicePortView {
    /// A port of a Service and that of a slice belong together by name.
    fn is_named(&self, name: &str) -> bool {
        self.name.as_deref().unwrap_or_default() == name
    }
}

impl SliceView {
    fn ready(&self) -> impl Iterator<Item = &EndpointView> {
        self.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false))
    }

    /// Returns each address that a connection to a port of the Service may be passed on to, with the port there: the one
    /// of this name. A slice without ports may be for all of them.
    fn behind(&self, name: &str) -> impl Iterator<Item = Endpoint> {
        let mut ports = self.ports.iter().flatten().peekable();
        let port = match ports.peek() {
            None => Some(None),
            Some(_) => ports.find(|port| port.is_named(name)).map(|port| port.port),
        };
        let endpoints = self.endpoints.iter().flatten().filter(move |_| port.is_some());
        endpoints.flat_map(move |endpoint| {
            let is_pod = endpoint.target_ref.as_ref().is_some_and(|target| target.kind == "Pod");
            let ips = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
            ips.map(move |ip| Endpoint { ip, port: port.flatten(), is_pod })
        })
    }

    /// Names in a slice of type FQDN are passed over: they would have to be resolved by DNS.
    fn ready_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ready().flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok())
    }
}

#[cfg(test)]
mod tests;
