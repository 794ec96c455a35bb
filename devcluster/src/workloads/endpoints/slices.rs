//! The `EndpointSlices` of a Service.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{SERVICE_NAME, addresses, common_labels, has_address, hostname, is_published, ports, target};
use crate::workloads::client::Request;
use crate::workloads::object::{Object as _, controller_reference, differ, is_subset};
use crate::workloads::resources;

/// The label of an `EndpointSlice` with the name of its controller.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY`] for the slices of this controller.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Most endpoints in one slice.
const MAX_ENDPOINTS: usize = 100;

/// Endpoints with the same ports. A slice contains endpoints of one group only.
#[derive(Default)]
struct Group {
    ports: Vec<Value>,
    /// The endpoints that are not in a slice yet, by [`identity`].
    endpoints: BTreeMap<String, Value>,
}

/// Returns the requests of a Service; `pods` and `slices` are those of its namespace.
pub(in crate::workloads) fn decide(
    service: &Value,
    pods: &[&Arc<Value>],
    slices: &[&Arc<Value>],
) -> Vec<Request> {
    if !is_published(service) {
        return Vec::new();
    }
    let ours = |slice: &&&Arc<Value>| {
        slice.label(SERVICE_NAME) == Some(service.name()) && slice.label(MANAGED_BY) == Some(MANAGER)
    };
    let existing: Vec<&Value> = slices.iter().filter(ours).map(|slice| &***slice).collect();
    let families = families(service);
    let mut requests = Vec::new();
    for family in ["IPv4", "IPv6"] {
        let of_family = existing.iter().copied().filter(|slice| slice["addressType"] == family);
        if families.contains(&family) {
            requests.extend(of_one_family(service, pods, &of_family.collect::<Vec<_>>(), family));
        } else {
            requests.extend(
                of_family.map(|slice| Request::delete(&resources::endpoint_slices(), slice, json!({}))),
            );
        }
    }
    requests
}

/// Returns the address families of a Service; IPv4 by default.
fn families(service: &Value) -> Vec<&str> {
    let families: Vec<_> = service.list("/spec/ipFamilies").iter().filter_map(Value::as_str).collect();
    if families.is_empty() { vec!["IPv4"] } else { families }
}

fn of_one_family(service: &Value, pods: &[&Arc<Value>], existing: &[&Value], family: &str) -> Vec<Request> {
    let mut groups = desired(service, pods, family);
    let owned = |slice: &&Value| slice.owners().iter().any(|owner| owner.text("/uid") == service.uid());
    let (owned, strangers): (Vec<_>, Vec<_>) = existing.iter().copied().partition(owned);
    let (mut updates, mut creations, mut deletions) = (Vec::new(), Vec::new(), strangers.clone());

    let mut slices: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for slice in owned {
        slices.entry(key(slice.list("/ports"))).or_default().push(slice);
    }
    for (key, group) in &mut groups {
        let mut kept = Vec::new();
        for slice in slices.remove(key).unwrap_or_default() {
            let mut changed = slice.clone();
            let endpoints =
                slice.list("/endpoints").iter().filter_map(|e| group.endpoints.remove(&identity(e)));
            changed["endpoints"] = endpoints.collect();
            changed["metadata"]["labels"] = labels(service);
            if changed.list("/endpoints").is_empty() {
                deletions.push(slice);
            } else {
                kept.push((slice, changed));
            }
        }
        // Changed slices are filled first, because they are written in any case; the fullest comes first.
        kept.sort_by_key(|(slice, changed)| {
            (!differ(slice, changed), usize::MAX - changed.list("/endpoints").len())
        });
        for (slice, mut changed) in kept {
            fill(&mut changed, group);
            if differ(slice, &changed) {
                updates.push(changed);
            }
        }
        while !group.endpoints.is_empty() {
            let mut slice = empty(service, family, &group.ports);
            fill(&mut slice, group);
            creations.push(slice);
        }
    }
    deletions.extend(slices.into_values().flatten());

    if deletions.len() == existing.len() && creations.is_empty() {
        // A Service without endpoints has one empty slice.
        let placeholder = empty(service, family, &[]);
        let is_placeholder = |slice: &&Value| {
            slice.list("/endpoints").is_empty()
                && slice.list("/ports").is_empty()
                && slice["metadata"]["labels"] == placeholder["metadata"]["labels"]
                && !strangers.iter().any(|stranger| std::ptr::eq(*stranger, *slice))
        };
        match deletions.iter().position(is_placeholder) {
            Some(_) if deletions.len() == 1 => deletions.clear(),
            _ => creations.push(placeholder),
        }
    }
    // A new slice replaces one that would be deleted, by an update.
    deletions.retain(|slice| {
        let is_ours = !strangers.iter().any(|stranger| std::ptr::eq(*stranger, *slice));
        let Some(mut replacement) = creations.pop_if(|_| is_ours) else { return true };
        for field in ["name", "resourceVersion", "uid"] {
            replacement["metadata"][field] = slice["metadata"][field].clone();
        }
        updates.push(replacement);
        false
    });
    if service.is_deleting() {
        creations.clear();
    }
    let resource = resources::endpoint_slices();
    let creations = creations.into_iter().map(|slice| Request::create(&resource, slice));
    let updates = updates.into_iter().map(|slice| Request::update(&resource, slice));
    let deletions = deletions.into_iter().map(|slice| Request::delete(&resource, slice, json!({})));
    creations.chain(updates).chain(deletions).collect()
}

/// Returns the groups of endpoints that a Service should have, by [`key`] of their ports.
fn desired(service: &Value, pods: &[&Arc<Value>], family: &str) -> BTreeMap<String, Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let selector = service.at("/spec/selector");
    for pod in pods.iter().filter(|pod| is_subset(selector, pod.at("/metadata/labels")) && has_address(pod)) {
        let addresses: Vec<_> = addresses(pod, family == "IPv6").collect();
        let ports = ports(service, pod);
        let group = groups.entry(key(&ports)).or_insert_with(|| Group { ports, ..Group::default() });
        if !addresses.is_empty() {
            let endpoint = endpoint(service, pod, &addresses);
            group.endpoints.insert(identity(&endpoint), endpoint);
        }
    }
    groups
}

fn endpoint(service: &Value, pod: &Value, addresses: &[String]) -> Value {
    let (serving, terminating) = (pod.has_condition("Ready"), pod.is_deleting());
    let always = service["spec"]["publishNotReadyAddresses"] == true;
    let mut endpoint = json!({
        "addresses": addresses,
        "conditions": {
            "ready": always || (serving && !terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": target(pod),
    });
    if let Some(hostname) = hostname(pod, service) {
        endpoint["hostname"] = hostname.into();
    }
    let node = pod.text("/spec/nodeName");
    if !node.is_empty() {
        endpoint["nodeName"] = node.into();
    }
    endpoint
}

/// Moves endpoints of a group into a slice until it is full.
fn fill(slice: &mut Value, group: &mut Group) {
    if let Some(endpoints) = slice["endpoints"].as_array_mut() {
        while endpoints.len() < MAX_ENDPOINTS {
            let Some((_, endpoint)) = group.endpoints.pop_first() else { return };
            endpoints.push(endpoint);
        }
    }
}

/// Returns a new slice without endpoints.
fn empty(service: &Value, family: &str, ports: &[Value]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", service.name()),
            "namespace": service.namespace(),
            "labels": labels(service),
            "ownerReferences": [controller_reference(service, "v1", "Service")],
        },
        "addressType": family,
        "endpoints": [],
        "ports": ports,
    })
}

fn labels(service: &Value) -> Value {
    let mut labels = common_labels(service);
    labels.insert(SERVICE_NAME.to_owned(), service.name().into());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.into());
    labels.into()
}

/// Returns a text that is equal for equal lists of ports, regardless of their order.
fn key(ports: &[Value]) -> String {
    let mut ports: Vec<_> = ports
        .iter()
        .map(|port| format!("{:?}", ["name", "port", "protocol", "appProtocol"].map(|field| &port[field])))
        .collect();
    ports.sort();
    ports.join("")
}

/// Returns a text that is equal for endpoints with the same target, host name and addresses.
fn identity(endpoint: &Value) -> String {
    let mut addresses = endpoint.list("/addresses").to_vec();
    addresses.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    let target = endpoint.at("/targetRef");
    format!("{:?}", (target.text("/namespace"), target.text("/name"), endpoint.text("/hostname"), addresses))
}
