//! Validation of Services.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::{Map, Value};

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
    match kind {
        "ExternalName" => {
            checks.required("spec", spec, "externalName");
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !spec[field].is_null() {
                    let text = "may not be set for ExternalName services";
                    checks.add(FieldError::forbidden(format!("spec.{field}"), text));
                }
            }
        }
        "LoadBalancer" | "NodePort" if headless => {
            let text = format!("may not be set to 'None' for {kind} services");
            checks.add(FieldError::invalid("spec.clusterIPs[0]", &"None".into(), &text));
        }
        _ => {}
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
        if kind == "ClusterIP" && port["nodePort"].as_i64().is_some_and(|port| port != 0) {
            let text = "may not be used when `type` is 'ClusterIP'";
            checks.add(FieldError::forbidden(format!("{path}.nodePort"), text));
        }
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

/// The path of the field that `check_addresses` and the allocation of addresses refuse.
pub const FAMILY_POLICY: &str = "spec.ipFamilyPolicy";

/// Checks the cluster addresses, their families and the policy of a Service's `spec`, before addresses are
/// allocated. `old` is the spec before an update.
pub fn check_addresses(spec: &Map<String, Value>, old: Option<&Map<String, Value>>) -> Vec<FieldError> {
    const ADDRESSES: &str = "spec.clusterIPs";
    let list =
        |spec: &Map<String, Value>, field: &str| items(spec.get(field).unwrap_or(&Value::Null)).to_vec();
    let mut errors = Vec::new();
    let (addresses, families) = (list(spec, "clusterIPs"), list(spec, "ipFamilies"));
    let shown = Value::from(addresses.clone());
    match (spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default(), addresses.first()) {
        ("", None) => {}
        ("", Some(_)) => {
            let text = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid(ADDRESSES, &shown, text));
        }
        (_, None) => errors.push(FieldError::required(ADDRESSES, "")),
        (address, Some(first)) if first != address => {
            errors.push(FieldError::invalid(ADDRESSES, &shown, "first value must match `clusterIP`"));
        }
        _ => {}
    }
    for (index, family) in families.iter().enumerate() {
        let path = format!("spec.ipFamilies[{index}]");
        if family != "IPv4" && family != "IPv6" {
            errors.push(FieldError::unsupported(path.as_str(), family, &["IPv4", "IPv6"]));
        }
        if families.iter().take(index).any(|earlier| earlier == family) {
            errors.push(FieldError::duplicate(path, family));
        }
    }
    let policy = spec.get("ipFamilyPolicy").unwrap_or(&Value::Null);
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if !policy.is_null() && !policies.iter().any(|known| policy == known) {
        errors.push(FieldError::unsupported(FAMILY_POLICY, policy, &policies));
    }
    let known = old.map(|old| list(old, "clusterIPs")).unwrap_or_default();
    let mut malformed = false;
    for (index, address) in addresses.iter().enumerate() {
        if index == 0 && address == "None" {
            if addresses.len() > 1 {
                malformed = true;
                let text = "'None' must be the first and only value";
                errors.push(FieldError::invalid(ADDRESSES, &shown, text));
            }
        } else if !known.contains(address) && address.as_str().is_none_or(|it| it.parse::<IpAddr>().is_err())
        {
            malformed = true;
            let text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(FieldError::invalid(format!("{ADDRESSES}[{index}]"), address, text));
        }
    }
    if addresses.len() > 2 {
        errors.push(FieldError::invalid(ADDRESSES, &shown, "may only hold up to 2 values"));
    }
    if malformed {
        return errors;
    }
    let is_v6 = |address: &Value| address.as_str().is_some_and(|address| address.contains(':'));
    if addresses.len() > 1 && addresses.iter().all(is_v6) == addresses.iter().any(is_v6) {
        let text = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(ADDRESSES, &shown, text));
    }
    for (index, (address, family)) in addresses.iter().zip(&families).enumerate() {
        if address != "None" && is_v6(address) != (family == "IPv6") {
            let text = format!(
                "expected an {} value as indicated by `ipFamilies[{index}]`",
                family.as_str().unwrap_or_default()
            );
            errors.push(FieldError::invalid(format!("{ADDRESSES}[{index}]"), address, &text));
        }
    }
    errors
}

/// Checks that addresses and families stay the same, unless the type changes from or to `ExternalName`.
pub(super) fn check_update(checks: &mut Checks, object: &Value, old: &Value) {
    let external = |service: &Value| service["spec"]["type"] == "ExternalName";
    let headless = |service: &Value| service["spec"]["clusterIP"] == "None";
    if external(object) || external(old) || headless(object) && headless(old) {
        return;
    }
    let fields: &[_] =
        if headless(object) == headless(old) { &["clusterIPs", "ipFamilies"] } else { &["clusterIPs"] };
    for field in fields {
        let (new, before) = (items(&object["spec"][field]), items(&old["spec"][field]));
        let compared = if new.len() == before.len() { new.len() } else { 1 };
        for (index, (value, known)) in new.iter().zip(before).take(compared).enumerate() {
            if value != known {
                // The server names the first family, whichever has changed.
                let index = if *field == "ipFamilies" { 0 } else { index };
                let text = "may not change once set";
                let path = format!("spec.{field}[{index}]");
                checks.add(FieldError::invalid(path, &object["spec"][field], text));
            }
        }
        let what = if *field == "clusterIPs" { "clusterIP" } else { "ipFamily" };
        if new.is_empty() && !before.is_empty() {
            let text = format!("primary {what} can not be unset");
            checks.add(FieldError::invalid(format!("spec.{field}[0]"), &new.into(), &text));
        }
        let policy = &object["spec"]["ipFamilyPolicy"];
        if new.len() == 1 && before.len() > 1 && policy != "SingleStack" {
            let what = if *field == "clusterIPs" { "clusterIP" } else { "ipfamily" };
            let text = format!("must be set to 'SingleStack' when releasing the secondary {what}");
            checks.add(FieldError::invalid(FAMILY_POLICY, policy, &text));
        }
    }
}

/// Returns the warnings about fields of a Service's `spec` that have no effect or are deprecated.
pub(super) fn warnings(spec: &Value) -> Vec<String> {
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let external = text("type") == "ExternalName";
    let headless = text("type") == "ClusterIP" && text("clusterIP") == "None";
    let external_ips = !items(&spec["externalIPs"]).is_empty();
    let mut warnings = Vec::new();
    let mut warn = |applies: bool, text: &str| {
        if applies {
            warnings.push(text.to_owned());
        }
    };
    let ignored = !text("loadBalancerIP").is_empty();
    warn(headless && ignored, "spec.loadBalancerIP is ignored for headless services");
    warn(headless && external_ips, "spec.externalIPs is ignored for headless services");
    let affinity = text("sessionAffinity") != "None";
    warn(headless && affinity, "spec.SessionAffinity is ignored for headless services");
    let deprecated = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
    warn(external_ips && !headless && !external, deprecated);
    let ignored = "spec.externalIPs is ignored when spec.type is \"ExternalName\"";
    warn(external_ips && external, ignored);
    let ignored = "spec.externalName is ignored when spec.type is not \"ExternalName\"";
    warn(!external && !text("externalName").is_empty(), ignored);
    let deprecated = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
    warn(text("trafficDistribution") == "PreferClose", deprecated);
    warnings
}
