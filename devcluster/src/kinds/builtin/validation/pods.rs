//! Validation of Pods and templates of Pods.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::Value;

use super::{Checks, entries, items};
use crate::kinds::FieldError;
use crate::kinds::builtin::typed::{compare, is_whole};

pub(super) fn check_spec(checks: &mut Checks, path: &str, spec: &Value) {
    let mut volumes = HashSet::new();
    for (i, volume) in items(&spec["volumes"]).iter().enumerate() {
        check_volume(checks, &format!("{path}.volumes[{i}]"), volume, &mut volumes);
    }
    if items(&spec["containers"]).is_empty() {
        checks.add(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = HashSet::new();
    for list in ["containers", "initContainers"] {
        for (i, container) in items(&spec[list]).iter().enumerate() {
            let path = format!("{path}.{list}[{i}]");
            check_container(checks, &path, container, &volumes);
            let name = container["name"].as_str().unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                checks.add(FieldError::duplicate(format!("{path}.name"), &container["name"]));
            }
        }
    }
    match spec["restartPolicy"].as_str().unwrap_or_default() {
        "" => checks.add(FieldError::required(format!("{path}.restartPolicy"), "")),
        _ => checks.one_of(path, spec, "restartPolicy", &["Always", "OnFailure", "Never"]),
    }
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    checks.one_of(path, spec, "dnsPolicy", &policies);
    let deadline = &spec["activeDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        let path = format!("{path}.activeDeadlineSeconds");
        checks.add(FieldError::invalid(path, deadline, "must be between 1 and 2147483647, inclusive"));
    }
}

fn check_volume<'a>(checks: &mut Checks, path: &str, volume: &'a Value, names: &mut HashSet<&'a str>) {
    let mut sources = entries(volume).map(|(key, _)| key).filter(|key| *key != "name").collect::<Vec<_>>();
    // The server checks the sources in the order of their declaration, which begins with these.
    let order = |name: &str| ["emptyDir", "hostPath"].iter().position(|first| *first == name).unwrap_or(2);
    sources.sort_by_key(|source| order(source));
    for source in sources.iter().skip(1) {
        let path = format!("{path}.{source}");
        checks.add(FieldError::forbidden(path, "may not specify more than 1 volume type"));
    }
    let name = volume["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        checks.add(FieldError::required(format!("{path}.name"), ""));
        return;
    }
    let before = checks.errors.len();
    checks.label(&format!("{path}.name"), &volume["name"]);
    if checks.errors.len() == before && sources.len() < 2 && !names.insert(name) {
        checks.add(FieldError::duplicate(format!("{path}.name"), &volume["name"]));
    }
}

fn check_container(checks: &mut Checks, path: &str, container: &Value, volumes: &HashSet<&str>) {
    if checks.required(path, container, "name") {
        checks.label(&format!("{path}.name"), &container["name"]);
    }
    checks.required(path, container, "image");
    match container["imagePullPolicy"].as_str().unwrap_or_default() {
        "" => checks.add(FieldError::required(format!("{path}.imagePullPolicy"), "")),
        _ => checks.one_of(path, container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"]),
    }
    let mut names = HashSet::new();
    for (i, port) in items(&container["ports"]).iter().enumerate() {
        let path = format!("{path}.ports[{i}]");
        let name = port["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            checks.port_name(&format!("{path}.name"), &port["name"]);
            if super::port_name(name).is_empty() && !names.insert(name) {
                checks.add(FieldError::duplicate(format!("{path}.name"), &port["name"]));
            }
        }
        if port["containerPort"].as_i64().unwrap_or_default() == 0 {
            checks.add(FieldError::required(format!("{path}.containerPort"), ""));
        } else {
            checks.port(&format!("{path}.containerPort"), &port["containerPort"]);
        }
        checks.one_of(&path, port, "protocol", &["SCTP", "TCP", "UDP"]);
    }
    for (i, variable) in items(&container["env"]).iter().enumerate() {
        let path = format!("{path}.env[{i}]");
        let name = variable["name"].as_str().unwrap_or_default();
        if !name.is_empty() && !name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
            let text = "a valid environment variable name must consist only of printable ASCII characters \
                        other than '='";
            checks.add(FieldError::invalid(format!("{path}.name"), &variable["name"], text));
        }
        if name.is_empty() {
            checks.add(FieldError::required(format!("{path}.name"), ""));
        }
    }
    for (i, mount) in items(&container["volumeMounts"]).iter().enumerate() {
        let path = format!("{path}.volumeMounts[{i}]");
        let name = mount["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            checks.add(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(name) {
            checks.add(FieldError::not_found(format!("{path}.name"), &mount["name"]));
        }
        checks.required(&path, mount, "mountPath");
    }
    check_resources(checks, &format!("{path}.resources"), &container["resources"]);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if !container[probe].is_null() {
            check_probe(checks, &format!("{path}.{probe}"), &container[probe]);
        }
    }
}

/// Checks that requests are at most the limits. Extended resources must be whole numbers, and their request
/// must equal the limit.
fn check_resources(checks: &mut Checks, path: &str, resources: &Value) {
    for list in ["limits", "requests"] {
        for (resource, amount) in entries(&resources[list]) {
            if is_extended(resource) && !amount.as_str().is_some_and(is_whole) {
                let path = format!("{path}.{list}[{resource}]");
                checks.add(FieldError::invalid(path, amount, "must be an integer"));
            }
        }
    }
    for (resource, request) in entries(&resources["requests"]) {
        let limit = resources["limits"].get(resource).and_then(Value::as_str);
        let (Some(limit), Some(amount)) = (limit, request.as_str()) else { continue };
        let order = compare(amount, limit);
        let text = if is_extended(resource) || resource.starts_with("hugepages-") {
            if order == Some(Ordering::Equal) {
                continue;
            }
            format!("must be equal to {resource} limit of {limit}")
        } else {
            if order != Some(Ordering::Greater) {
                continue;
            }
            format!("must be less than or equal to {resource} limit of {limit}")
        };
        checks.add(FieldError::invalid(format!("{path}.requests"), request, &text));
    }
}

/// Returns whether a resource is extended: added by a device plugin or an administrator.
fn is_extended(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(domain, _)| {
        domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io") && !domain.starts_with("requests.")
    })
}

fn check_probe(checks: &mut Checks, path: &str, probe: &Value) {
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"];
    let given: Vec<_> = handlers.into_iter().filter(|handler| !probe[*handler].is_null()).collect();
    if given.is_empty() {
        checks.add(FieldError::required(path, "must specify a handler type"));
    }
    for handler in given.iter().skip(1) {
        let text = "may not specify more than 1 handler type";
        checks.add(FieldError::forbidden(format!("{path}.{handler}"), text));
    }
    if let Some(handler @ ("httpGet" | "tcpSocket")) = given.first().copied() {
        checks.port_or_name(&format!("{path}.{handler}.port"), &probe[handler]["port"]);
    }
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        checks.not_negative(path, probe, field);
    }
}

/// Checks that an update of a Pod changes only the few mutable fields.
pub(super) fn check_update(checks: &mut Checks, object: &Value, old: &Value) {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].as_object().cloned().unwrap_or_default();
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                container.remove("image");
            }
        }
        for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "nodeName"] {
            spec.remove(field);
        }
        spec
    };
    let tolerations = items(&object["spec"]["tolerations"]);
    let removed = items(&old["spec"]["tolerations"]).iter().any(|known| !tolerations.contains(known));
    let bound = &old["spec"]["nodeName"];
    let moved = !bound.is_null() && *bound != object["spec"]["nodeName"];
    if removed || moved || fixed(object) != fixed(old) {
        checks.add(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions \
             to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it \
             was previously negative)\n",
        ));
    }
}
