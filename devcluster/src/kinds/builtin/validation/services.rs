//! Validation of Services.

use std::collections::HashSet;

use serde_json::Value;

use super::{Checks, items};
use crate::kinds::FieldError;

/// Checks the `spec` of a Service. The server allocates its addresses later, so they may be missing.
pub(super) fn check(checks: &mut Checks, spec: &Value) {
    let kind = spec["type"].as_str().unwrap_or_default();
    let headless = spec["clusterIP"] == "None";
    let ports = items(&spec["ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        checks.add(FieldError::required("spec.ports", ""));
    }
    if kind == "ExternalName" {
        checks.required("spec", spec, "externalName");
    }
    let mut names = HashSet::new();
    let mut numbers = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{i}]");
        let name = port["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            checks.label(&format!("{path}.name"), &port["name"]);
            if !names.insert(name) {
                checks.add(FieldError::duplicate(format!("{path}.name"), &port["name"]));
            }
        } else if ports.len() > 1 {
            checks.add(FieldError::required(format!("{path}.name"), ""));
        }
        checks.port(&format!("{path}.port"), &port["port"]);
        checks.one_of(&path, port, "protocol", &["SCTP", "TCP", "UDP"]);
        checks.port_or_name(&format!("{path}.targetPort"), &port["targetPort"]);
        if !numbers.insert((port["protocol"].as_str(), port["port"].as_i64())) {
            let shown = serde_json::json!({"port": port["port"], "protocol": port["protocol"]});
            checks.add(FieldError::duplicate(path, &shown));
        }
    }
    checks.one_of("spec", spec, "sessionAffinity", &["ClientIP", "None"]);
    checks.one_of("spec", spec, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
}

/// Checks that addresses stay the same, unless the type changes from or to `ExternalName`.
pub(super) fn check_update(checks: &mut Checks, object: &Value, old: &Value) {
    let external = |service: &Value| service["spec"]["type"] == "ExternalName";
    if external(object) || external(old) {
        return;
    }
    let first = |service: &Value| service["spec"]["clusterIPs"][0].clone();
    let (new, before) = (first(object), first(old));
    if !before.is_null() && !new.is_null() && new != before {
        let text = "may not change once set";
        checks.add(FieldError::invalid("spec.clusterIPs[0]", &object["spec"]["clusterIPs"], text));
    }
}
