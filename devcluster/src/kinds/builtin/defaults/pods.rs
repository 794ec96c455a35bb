//! Defaults of Pods that depend on other fields.

use serde_json::{Value, json};

use super::{Object, object, set, text};

/// Returns `Always` for an image with the tag `latest` or without tag and digest, else `IfNotPresent`.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    if name.is_empty() || name.contains('@') {
        // A tag in front of a digest does not count, unless it is `latest`.
        let tag = name.split_once('@').and_then(|(name, _)| name.split_once(':'));
        return if tag.is_some_and(|(_, tag)| tag == "latest") { "Always" } else { "IfNotPresent" };
    }
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

/// Sets the defaults of a Pod's `spec`. `serviceAccount` is the old name of `serviceAccountName`, so both get
/// the same value. A negative grace period becomes one second.
pub(super) fn spec(spec: &mut Object) {
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !name.is_empty() {
        spec.insert("serviceAccountName".to_owned(), name.clone().into());
        spec.insert("serviceAccount".to_owned(), name.into());
    }
}

/// Sets the defaults that Pods have, but templates of Pods do not have.
pub(super) fn pod(pod: &mut Object) {
    let Some(spec) = object(pod, "spec") else { return };
    set(spec, "enableServiceLinks", true.into());
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            if let Some(resources) = object(container, "resources") {
                requests(resources);
            }
            if host_network {
                host_ports(container);
            }
        }
    }
}

/// Makes the list of addresses agree with the first address, which decides if both are set.
pub(super) fn addresses(pod: &mut Object) {
    let Some(status) = object(pod, "status") else { return };
    let first = status.get("podIPs").and_then(|list| list.get(0)?.get("ip")).cloned();
    match (text(status, "podIP"), first) {
        ("", Some(first)) => _ = status.insert("podIP".to_owned(), first),
        ("", None) => {}
        (address, first) => {
            if first.is_none_or(|first| first != *address) {
                let list = json!([{"ip": address}]);
                status.insert("podIPs".to_owned(), list);
            }
        }
    }
}

/// Copies limits to missing requests.
fn requests(resources: &mut Object) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Value::Object(requests) = requests {
        for (resource, limit) in limits {
            requests.entry(resource).or_insert(limit);
        }
    }
}

/// Sets the host ports of a container in the network of its node: they equal the container ports.
fn host_ports(container: &mut Object) {
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(port) = port.as_object_mut() else { continue };
        if let Some(number) = port.get("containerPort").cloned() {
            port.entry("hostPort").or_insert(number);
        }
    }
}
