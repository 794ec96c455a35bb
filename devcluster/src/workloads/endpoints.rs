//! EndpointSlices and Endpoints: the addresses of the Pods that a Service selects.
//!
//! Differs from kube-controller-manager: the annotation `endpoints.kubernetes.io/last-change-trigger-time` is
//! not written.

mod slices;
mod subsets;

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::object::{Object as _, has_ended};

pub(super) use slices::decide as decide_slices;
pub(super) use subsets::decide as decide_endpoints;

/// The label of an `EndpointSlice` with the name of its Service.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The label that marks the slices and Endpoints of a headless Service.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// Whether the controllers publish the Pods of a Service: it has a selector and is not an `ExternalName`.
fn is_published(service: &Value) -> bool {
    service["spec"]["selector"].is_object() && service["spec"]["type"] != "ExternalName"
}

/// Returns the labels of a Service that its slices and Endpoints take over, with the mark of a headless one.
fn common_labels(service: &Value) -> Map<String, Value> {
    let mut labels = service.at("/metadata/labels").as_object().cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    labels
}

fn is_headless(service: &Value) -> bool {
    matches!(service.text("/spec/clusterIP"), "" | "None")
}

/// Whether a Pod has an address and has not ended.
fn has_address(pod: &Value) -> bool {
    let has_any = !pod.text("/status/podIP").is_empty() || !pod.list("/status/podIPs").is_empty();
    has_any && !has_ended(pod)
}

/// Returns the IPv4 or IPv6 addresses of a Pod.
fn addresses(pod: &Value, ipv6: bool) -> impl Iterator<Item = String> {
    let parsed = pod.list("/status/podIPs").iter().filter_map(|ip| ip.text("/ip").parse::<IpAddr>().ok());
    parsed.filter(move |ip| ip.is_ipv6() == ipv6).map(|ip| ip.to_string())
}

fn target(pod: &Value) -> Value {
    json!({"kind": "Pod", "namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid()})
}

/// Returns the host name of a Pod if its subdomain is the Service.
fn hostname<'a>(pod: &'a Value, service: &Value) -> Option<&'a str> {
    let hostname = pod.text("/spec/hostname");
    (!hostname.is_empty() && pod.text("/spec/subdomain") == service.name()).then_some(hostname)
}

/// Returns the ports of a Service on a Pod. A port with a target name that the Pod lacks is left out.
fn ports(service: &Value, pod: &Value) -> Vec<Value> {
    let found = service.list("/spec/ports").iter().filter_map(|port| {
        let mut found = json!({
            "name": port.text("/name"),
            "port": number(port, pod)?,
            "protocol": protocol(port),
        });
        if !port["appProtocol"].is_null() {
            found["appProtocol"] = port["appProtocol"].clone();
        }
        Some(found)
    });
    found.collect()
}

fn protocol(port: &Value) -> &str {
    port["protocol"].as_str().unwrap_or("TCP")
}

/// Returns the target port number of a Service's port on a Pod; `None` if the Pod lacks a port of that name.
fn number(port: &Value, pod: &Value) -> Option<i64> {
    let name = match &port["targetPort"] {
        Value::String(name) => name,
        Value::Number(number) => return number.as_i64(),
        _ => return port.int("/port"),
    };
    let sidecars = pod.list("/spec/initContainers").iter().filter(|init| init["restartPolicy"] == "Always");
    let containers = pod.list("/spec/containers").iter().chain(sidecars);
    let named = containers
        .flat_map(|container| container.list("/ports"))
        .find(|candidate| candidate["name"] == name.as_str() && protocol(candidate) == protocol(port))?;
    named.int("/containerPort")
}

#[cfg(test)]
mod tests;
