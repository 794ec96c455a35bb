//! Services as the cache knows them: where a probe would get to, and how many endpoints are ready.

mod ready;

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use mainstay::cache::{Meta, ReadError, Select, Store};
use mainstay::key::Request;
use serde::Deserialize;

use crate::probe::{Endpoint, ServiceAnswer, Services};

pub use ready::Endpoints;

/// Which Service a slice belongs to.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

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

#[derive(Debug, Deserialize)]
struct SliceView {
    #[serde(default)]
    endpoints: Option<Vec<EndpointView>>,
    #[serde(default)]
    ports: Option<Vec<SlicePortView>>,
}

#[derive(Debug, Deserialize)]
struct SlicePortView {
    /// That of the port of the Service.
    #[serde(default)]
    name: Option<String>,
    /// That of the endpoints.
    #[serde(default)]
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
        Self { services: services.view(), slices: slices.view() }
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
}

impl Services for CachedServices {
    fn find(&self, namespace: &str, name: &str, port: u16) -> ServiceAnswer {
        self.look_up(namespace, name, port).unwrap_or_else(|error| ServiceAnswer::Unknown(error.to_string()))
    }

    fn cluster_addresses(&self, namespace: &str, name: &str) -> Vec<IpAddr> {
        let found = self.services.get(&Request::namespaced(namespace, name)).ok().flatten();
        found.map_or_else(Vec::new, |service| service.spec.addresses())
    }

    fn endpoints(&self, namespace: &str, name: &str) -> Result<Vec<Endpoint>, String> {
        let select = Select::namespace(namespace).label(SERVICE_NAME_LABEL, name);
        let mut found = Vec::new();
        for slice in self.slices.list(&select).map_err(|error| error.to_string())? {
            // One that cannot be read hides where connections go: then nobody knows.
            found.extend(slice.decode().map_err(|error| error.to_string())?.all());
        }
        Ok(found)
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
        let is_tcp = |entry: &PortView| entry.protocol.is_empty() || entry.protocol == "TCP";
        if !self.ports.iter().any(|entry| entry.port == port && is_tcp(entry)) {
            return Some(ServiceAnswer::NoPort);
        }
        Some(ServiceAnswer::Cluster(self.addresses()))
    }
}

impl ServiceSpecView {
    /// None of a headless Service, which says so in words.
    fn addresses(&self) -> Vec<IpAddr> {
        let first = std::iter::once(&self.cluster_ip).filter(|_| self.cluster_ips.is_empty());
        self.cluster_ips.iter().chain(first).filter_map(|ip| ip.parse().ok()).collect()
    }
}

impl SliceView {
    fn ready(&self) -> impl Iterator<Item = &EndpointView> {
        self.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false))
    }

    /// Returns each address with each port.
    fn all(&self) -> Vec<Endpoint> {
        let ports: Vec<_> = self.ports.iter().flatten().map(|port| port.port).collect();
        let ports = if ports.is_empty() { vec![None] } else { ports };
        let mut all = Vec::new();
        for endpoint in self.endpoints.iter().flatten() {
            let is_pod = endpoint.target_ref.as_ref().is_some_and(|target| target.kind == "Pod");
            for ip in endpoint.addresses.iter().filter_map(|address| address.parse().ok()) {
                all.extend(ports.iter().map(|port| Endpoint { ip, port: *port, is_pod }));
            }
        }
        all
    }

    /// Names in a slice of type FQDN are passed over: they would have to be resolved by DNS.
    fn ready_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ready().flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judge(spec: &Value) -> Option<ServiceAnswer> {
        let view: ServiceView = serde_json::from_value(json!({"spec": spec})).unwrap();
        view.spec.judge(5432)
    }

    #[test]
    fn a_service_is_its_cluster_addresses_if_it_has_the_port() {
        let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 5432, "protocol": "TCP"}]);
        let both = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd12::7"], "ports": ports});
        let ips =
            |list: &[&str]| Some(ServiceAnswer::Cluster(list.iter().map(|ip| ip.parse().unwrap()).collect()));
        assert_eq!(judge(&both), ips(&["10.96.0.7", "fd12::7"]));
        assert_eq!(judge(&json!({"clusterIP": "10.96.0.7", "ports": ports})), ips(&["10.96.0.7"]));
        let udp = json!({"clusterIP": "10.96.0.7", "ports": [{"port": 5432, "protocol": "UDP"}]});
        assert_eq!(judge(&udp), Some(ServiceAnswer::NoPort));
        assert_eq!(judge(&json!({"clusterIP": "10.96.0.7"})), Some(ServiceAnswer::NoPort));
    }

    #[test]
    fn headless_and_external_services_are_told_apart() {
        assert_eq!(judge(&json!({"clusterIP": "None", "ports": []})), None);
        let outside = json!({"type": "ExternalName", "externalName": "db.example.com"});
        assert_eq!(judge(&outside), Some(ServiceAnswer::External("db.example.com".to_owned())));
    }

    #[test]
    fn only_ready_endpoints_with_addresses_count() {
        let slice = json!({"endpoints": [
            {"addresses": ["10.1.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.1.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.1.0.3"], "conditions": {}},
            {"addresses": ["db.example.com"]},
        ]});
        let slice: SliceView = serde_json::from_value(slice).unwrap();
        assert_eq!(slice.all().len(), 3, "ready or not, a connection may go there");
        let ready: Vec<_> = slice.ready_addresses().map(|ip| ip.to_string()).collect();
        assert_eq!(ready, ["10.1.0.1", "10.1.0.3"]);
        let ports = json!([{"port": 80}, {"name": "kubelet", "port": 10250}]);
        let pod = json!({"addresses": ["10.1.0.1"], "targetRef": {"kind": "Pod", "name": "a"}});
        let node = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false}});
        let slice: SliceView =
            serde_json::from_value(json!({"endpoints": [pod, node], "ports": ports})).unwrap();
        let all: Vec<_> = slice.all().iter().map(|e| (e.ip.to_string(), e.port, e.is_pod)).collect();
        let (pod, node) =
            (|port| ("10.1.0.1".to_owned(), port, true), |port| ("10.0.0.1".to_owned(), port, false));
        assert_eq!(all, [pod(Some(80)), pod(Some(10250)), node(Some(80)), node(Some(10250))]);
        let empty: SliceView = serde_json::from_value(json!({"endpoints": null})).unwrap();
        assert_eq!(empty.ready_addresses().count(), 0);
    }
}
