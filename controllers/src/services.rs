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
            if !spec.has_tcp_port(address.port()) {
                continue;
            }
            let found: &mut Behind = found.get_or_insert_default();
            found.is_cluster_address |= spec.cluster_addresses().any(|one| one.to_canonical() == ip);
            let namespace = service.meta().namespace().unwrap_or_default();
            let select = Select::namespace(namespace).label(SERVICE_NAME_LABEL, service.meta().name());
            for slice in self.slices.list(&select)? {
                // One that cannot be read hides where connections go: then nobody knows.
                found.endpoints.extend(slice.decode()?.all());
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
        if !self.has_tcp_port(port) {
            return Some(ServiceAnswer::NoPort);
        }
        Some(ServiceAnswer::Cluster(self.cluster_addresses().collect()))
    }

    fn has_tcp_port(&self, port: u16) -> bool {
        let is_tcp = |entry: &PortView| entry.protocol.is_empty() || entry.protocol == "TCP";
        self.ports.iter().any(|entry| entry.port == port && is_tcp(entry))
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
    use mainstay::key::KindId;
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
    fn whatever_leads_to_a_service_leads_to_its_endpoints() {
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "clusterIP": "10.96.0.7",
                "clusterIPs": ["10.96.0.7", "fd12::7"],
                "externalIPs": ["203.0.113.9"],
                "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}],
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.10"}, {"hostname": "lb.example.com"}]}},
        });
        let slice = |name: &str, endpoints: Value| {
            let labels = json!({SERVICE_NAME_LABEL: "web"});
            let metadata = json!({"name": name, "namespace": "shop", "labels": labels});
            json!({"metadata": metadata, "ports": [{"port": 8080}], "endpoints": endpoints})
        };
        let whole = slice("whole", json!([{"addresses": ["10.1.0.1"], "conditions": {"ready": false}}]));
        let services = |slices: Vec<Value>| {
            let services = Store::<Service>::from_values(&KindId::of::<Service>(), [service.clone()]);
            CachedServices::new(&services, &Store::from_values(&KindId::of::<EndpointSlice>(), slices))
        };
        let found = services(vec![whole.clone()]);
        let behind = |address: &str| found.behind(address.parse().unwrap()).unwrap();
        let endpoint = Endpoint { ip: "10.1.0.1".parse().unwrap(), port: Some(8080), is_pod: false };
        for (ip, is_cluster_address) in [
            ("10.96.0.7", true),
            ("[fd12::7]", true),
            ("[::ffff:10.96.0.7]", true),
            ("203.0.113.9", false),
            ("203.0.113.10", false),
        ] {
            let expected = Behind { is_cluster_address, endpoints: vec![endpoint] };
            assert_eq!(behind(&format!("{ip}:80")), Some(expected), "{ip}");
        }
        for other in ["10.96.0.7:81", "10.96.0.7:53", "10.96.0.8:80", "10.1.0.1:8080"] {
            assert_eq!(behind(other), None, "{other}");
        }
        let veiled = services(vec![whole, slice("veiled", json!("of a later version"))]);
        veiled.behind("10.96.0.7:80".parse().unwrap()).unwrap_err();
    }

    #[test]
    fn a_service_that_cannot_be_decoded_may_have_any_address() {
        let service =
            |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        let odd = service("odd", json!({"externalIPs": "of a later version"}));
        let plain = service("web", json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}));
        for (services, is_told) in [(vec![plain.clone()], true), (vec![plain, odd], false)] {
            let services = Store::<Service>::from_values(&KindId::of::<Service>(), services);
            let slices = Store::from_values(&KindId::of::<EndpointSlice>(), []);
            let found = CachedServices::new(&services, &slices);
            for address in ["10.96.0.7:80", "203.0.113.9:80"] {
                assert_eq!(found.behind(address.parse().unwrap()).is_ok(), is_told, "{address}");
            }
        }
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
