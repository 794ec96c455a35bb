//! The Endpoints of a Service: its addresses, in subsets with the same ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{addresses, common_labels, has_address, hostname, is_published, ports, target};
use crate::workloads::client::Request;
use crate::workloads::object::{Object as _, differ, is_subset};
use crate::workloads::resources;
use crate::workloads::view::Name;

/// The label of an Endpoints object with the name of its controller.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";

/// Returns the requests of a Service; `service` is `None` after its deletion, `endpoints` before their
/// creation. `pods` are those of its namespace.
pub(in crate::workloads) fn decide(
    name: &Name,
    service: Option<&Value>,
    pods: &[&Arc<Value>],
    endpoints: Option<&Value>,
) -> Vec<Request> {
    let resource = resources::endpoints();
    let Some(service) = service else {
        return endpoints.map(|gone| Request::delete(&resource, gone, json!({}))).into_iter().collect();
    };
    if !is_published(service) {
        return Vec::new();
    }
    let mut wanted = endpoints.cloned().unwrap_or_else(|| {
        let metadata = json!({"name": name.name, "namespace": name.namespace});
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata})
    });
    wanted["metadata"]["labels"] = labels(service);
    wanted["subsets"] = subsets(service, pods).into();
    match endpoints {
        None => vec![Request::create(&resource, wanted)],
        Some(present) if differ(&wanted, present) => vec![Request::update(&resource, wanted)],
        Some(_) => Vec::new(),
    }
}

fn labels(service: &Value) -> Value {
    let mut labels = common_labels(service);
    labels.insert(MANAGED_BY.to_owned(), "endpoint-controller".into());
    labels.into()
}

/// The addresses of one port, by IP address and uid of the Pod; each with its readiness.
type Addresses = BTreeMap<(String, String), (bool, Value)>;

fn subsets(service: &Value, pods: &[&Arc<Value>]) -> Vec<Value> {
    let always = service["spec"]["publishNotReadyAddresses"] == true;
    let selector = service.at("/spec/selector");
    let ipv6 = service.text("/spec/ipFamilies/0") == "IPv6";
    // By port as text. A headless Service without ports has one entry, with the port null.
    let mut by_port: BTreeMap<String, (Value, Addresses)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_subset(selector, pod.at("/metadata/labels")) && has_address(pod)) {
        if pod.is_deleting() && !always {
            continue;
        }
        let Some(ip) = addresses(pod, ipv6).next() else { continue };
        let mut address = json!({"ip": ip, "nodeName": pod["spec"]["nodeName"], "targetRef": target(pod)});
        if let Some(hostname) = hostname(pod, service) {
            address["hostname"] = hostname.into();
        }
        let ports = if service.list("/spec/ports").is_empty() && service["spec"]["clusterIP"] == "None" {
            vec![Value::Null]
        } else {
            ports(service, pod)
        };
        for port in ports {
            let (_, addresses) = by_port.entry(port.to_string()).or_insert_with(|| (port, Addresses::new()));
            let ready = always || pod.has_condition("Ready");
            addresses.insert((ip.clone(), pod.uid().to_owned()), (ready, address.clone()));
        }
    }
    // Ports with the same addresses and readiness share a subset.
    let mut by_addresses: BTreeMap<String, (Addresses, Vec<Value>)> = BTreeMap::new();
    for (port, addresses) in by_port.into_values() {
        let states: Vec<_> = addresses.iter().map(|(address, (ready, _))| (address, ready)).collect();
        let key = format!("{states:?}");
        let (_, ports) = by_addresses.entry(key).or_insert_with(|| (addresses, Vec::new()));
        ports.extend(Some(port).filter(|port| !port.is_null()).map(unnamed));
    }
    by_addresses.into_values().map(|(addresses, ports)| subset(addresses, ports)).collect()
}

/// Returns a port without its name if the name is empty.
fn unnamed(mut port: Value) -> Value {
    if port["name"] == "" {
        port.as_object_mut().map(|port| port.remove("name"));
    }
    port
}

fn subset(addresses: Addresses, ports: Vec<Value>) -> Value {
    let (ready, unready): (Vec<_>, Vec<_>) = addresses.into_values().partition(|(ready, _)| *ready);
    let mut subset = json!({});
    for (field, addresses) in [("addresses", ready), ("notReadyAddresses", unready)] {
        if !addresses.is_empty() {
            subset[field] = addresses.into_iter().map(|(_, address)| address).collect();
        }
    }
    if !ports.is_empty() {
        subset["ports"] = ports.into();
    }
    subset
}
