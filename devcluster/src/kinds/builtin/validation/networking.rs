//! Validation of the kinds of `networking.k8s.io`.

use std::net::IpAddr;

use serde_json::Value;

use super::{Checks, addresses, items, selectors};
use crate::kinds::names::{self, NameRule};
use crate::kinds::{FieldError, quoted};

/// The annotation that named the class of an Ingress before there was a field.
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
const MAX_CONTROLLER: usize = 250;

/// Checks the class of a new Ingress: the annotation and the field must agree.
pub(super) fn check_new_ingress(checks: &mut Checks, ingress: &Value) {
    let annotation = &ingress["metadata"]["annotations"][INGRESS_CLASS];
    let class = &ingress["spec"]["ingressClassName"];
    if annotation.is_string() && class.is_string() && annotation != class {
        let text = "must match `ingressClassName` when both are specified";
        checks.add(FieldError::invalid(format!("annotations.{INGRESS_CLASS}"), annotation, text));
    }
}

pub(super) fn check_ingress(checks: &mut Checks, spec: &Value) {
    let rules = items(&spec["rules"]);
    let default = &spec["defaultBackend"];
    if rules.is_empty() && default.is_null() {
        let text = "either `defaultBackend` or `rules` must be specified";
        checks.add(FieldError::invalid("spec", &spec["rules"], text));
    }
    if !default.is_null() {
        check_backend(checks, "spec.defaultBackend", default);
    }
    for (i, rule) in rules.iter().enumerate() {
        check_rule(checks, &format!("spec.rules[{i}]"), rule);
    }
    for (i, tls) in items(&spec["tls"]).iter().enumerate() {
        for (j, host) in items(&tls["hosts"]).iter().enumerate() {
            check_host(checks, &format!("spec.tls[{i}].hosts[{j}]"), host);
        }
        check_name(checks, &format!("spec.tls[{i}].secretName"), &tls["secretName"]);
    }
    if spec["ingressClassName"].is_string() {
        let class = &spec["ingressClassName"];
        for error in names::dns1123_subdomain(class.as_str().unwrap_or_default()) {
            checks.add(FieldError::invalid("spec.ingressClassName", class, &error));
        }
    }
}

fn check_rule(checks: &mut Checks, path: &str, rule: &Value) {
    let host = &rule["host"];
    if host.as_str().is_some_and(|host| !host.is_empty()) {
        not_an_address(checks, &format!("{path}.host"), host);
        check_host(checks, &format!("{path}.host"), host);
    }
    if rule["http"].is_null() {
        return;
    }
    let path = format!("{path}.http.paths");
    let paths = items(&rule["http"]["paths"]);
    if paths.is_empty() {
        checks.add(FieldError::required(path.as_str(), ""));
    }
    for (i, route) in paths.iter().enumerate() {
        check_path(checks, &format!("{path}[{i}]"), route);
    }
}

fn check_path(checks: &mut Checks, path: &str, route: &Value) {
    if route["pathType"].is_null() {
        checks.add(FieldError::required(format!("{path}.pathType"), "pathType must be specified"));
        return;
    }
    let value = Value::from(route["path"].as_str().unwrap_or_default());
    let text = route["path"].as_str().unwrap_or_default();
    let mut refuse = |why: &str| checks.add(FieldError::invalid(format!("{path}.path"), &value, why));
    match route["pathType"].as_str().unwrap_or_default() {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                refuse("must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(part) {
                    refuse(&format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if text.ends_with(end) {
                    refuse(&format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                refuse("must be an absolute path");
            }
        }
        _ => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            checks.add(FieldError::unsupported(format!("{path}.pathType"), &route["pathType"], &supported));
        }
    }
    check_backend(checks, &format!("{path}.backend"), &route["backend"]);
}

fn check_backend(checks: &mut Checks, path: &str, backend: &Value) {
    let (resource, service) = (&backend["resource"], &backend["service"]);
    match (resource.is_null(), service.is_null()) {
        (false, false) => {
            let text = "cannot set both resource and service backends";
            checks.add(FieldError::invalid(path, &"".into(), text));
        }
        (false, true) => check_reference(checks, &format!("{path}.resource"), resource),
        (true, false) => check_service(checks, path, service),
        (true, true) => {
            checks.add(FieldError::invalid(path, &"".into(), "resource or service backend is required"));
        }
    }
}

fn check_service(checks: &mut Checks, path: &str, service: &Value) {
    if checks.required(&format!("{path}.service"), service, "name") {
        checks.label(&format!("{path}.service.name"), &service["name"]);
    }
    let port = &service["port"];
    let named = port["name"].as_str().is_some_and(|name| !name.is_empty());
    let numbered = port["number"].as_i64().is_some_and(|number| number != 0);
    let path_of = |field: &str| format!("{path}.service.port.{field}");
    match (named, numbered) {
        (true, true) => {
            let text = "cannot set both port name & port number";
            checks.add(FieldError::invalid(path, &"".into(), text));
        }
        (true, false) => checks.port_name(&path_of("name"), &port["name"]),
        (false, true) => checks.port(&path_of("number"), &port["number"]),
        (false, false) => checks.add(FieldError::required(path, "port name or number is required")),
    }
}

/// Checks a reference to an object by group, kind and name.
fn check_reference(checks: &mut Checks, path: &str, reference: &Value) {
    if let Some(group) = reference["apiGroup"].as_str() {
        for error in names::dns1123_subdomain(group) {
            checks.add(FieldError::invalid(format!("{path}.apiGroup"), &reference["apiGroup"], &error));
        }
    }
    for field in ["kind", "name"] {
        checks.path_segment(path, reference, field);
    }
}

/// Checks a name that may be empty.
fn check_name(checks: &mut Checks, path: &str, name: &Value) {
    let text = name.as_str().unwrap_or_default();
    if !text.is_empty() {
        for error in names::dns1123_subdomain(text) {
            checks.add(FieldError::invalid(path, name, &error));
        }
    }
}

/// Checks a host name, possibly with a wildcard.
fn check_host(checks: &mut Checks, path: &str, host: &Value) {
    let text = host.as_str().unwrap_or_default();
    let errors =
        if text.contains('*') { names::wildcard_subdomain(text) } else { names::dns1123_subdomain(text) };
    for error in errors {
        checks.add(FieldError::invalid(path, host, &error));
    }
}

fn not_an_address(checks: &mut Checks, path: &str, host: &Value) {
    if host.as_str().is_some_and(|host| host.parse::<IpAddr>().is_ok()) {
        checks.add(FieldError::invalid(path, host, "must be a DNS name, not an IP address"));
    }
}

/// Checks the status of an Ingress.
pub(super) fn check_ingress_status(checks: &mut Checks, status: &Value, old: &Value) {
    let known = items(&old["loadBalancer"]["ingress"]);
    for (i, point) in items(&status["loadBalancer"]["ingress"]).iter().enumerate() {
        let path = format!("status.loadBalancer.ingress[{i}]");
        let address = &point["ip"];
        if address.is_string() && !known.iter().any(|known| known["ip"] == *address) {
            addresses::check_ip(checks, &format!("{path}.ip"), address);
        }
        let host = &point["hostname"];
        if host.as_str().is_some_and(|host| !host.is_empty()) {
            check_name(checks, &format!("{path}.hostname"), host);
            not_an_address(checks, &format!("{path}.hostname"), host);
        }
    }
}

pub(super) fn check_class(checks: &mut Checks, spec: &Value) {
    let controller = spec["controller"].as_str().unwrap_or_default();
    if controller.len() > MAX_CONTROLLER {
        checks.add(FieldError::too_long("spec.controller", MAX_CONTROLLER));
    }
    checks.domain_prefixed_path("spec.controller", &spec["controller"]);
    let parameters = &spec["parameters"];
    if parameters.is_null() {
        return;
    }
    let path = "spec.parameters";
    check_reference(checks, path, parameters);
    let namespace = &parameters["namespace"];
    match parameters["scope"].as_str() {
        None => checks.add(FieldError::required(format!("{path}.scope"), "")),
        Some("Namespace") if namespace.is_null() => {
            let text = "`parameters.scope` is set to 'Namespace'";
            checks.add(FieldError::required(format!("{path}.namespace"), text));
        }
        Some("Namespace") => checks.label(&format!("{path}.namespace"), namespace),
        Some("Cluster") if !namespace.is_null() => {
            let text = "`parameters.scope` is set to 'Cluster'";
            checks.add(FieldError::forbidden(format!("{path}.namespace"), text));
        }
        Some("Cluster") => {}
        Some(_) => {
            let path = format!("{path}.scope");
            checks.add(FieldError::unsupported(path, &parameters["scope"], &["Cluster", "Namespace"]));
        }
    }
}

/// Checks a `NetworkPolicy`; the address ranges of the former state stay valid.
pub(super) fn check_policy(checks: &mut Checks, spec: &Value, old: &Value) {
    let known: Vec<&Value> = [("ingress", "from"), ("egress", "to")]
        .into_iter()
        .flat_map(|(rules, peers)| items(&old[rules]).iter().flat_map(move |rule| items(&rule[peers])))
        .flat_map(|peer| items(&peer["ipBlock"]["except"]).iter().chain([&peer["ipBlock"]["cidr"]]))
        .collect();
    selectors::check(checks, "spec.podSelector", &spec["podSelector"]);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, rule) in items(&spec[rules]).iter().enumerate() {
            let path = format!("spec.{rules}[{i}]");
            for (j, port) in items(&rule["ports"]).iter().enumerate() {
                check_policy_port(checks, &format!("{path}.ports[{j}]"), port);
            }
            for (j, peer) in items(&rule[peers]).iter().enumerate() {
                check_peer(checks, &format!("{path}.{peers}[{j}]"), peer, &known);
            }
        }
    }
    let types = items(&spec["policyTypes"]);
    if types.len() > 2 {
        let text = "may not specify more than two policyTypes";
        checks.add(FieldError::invalid("spec.policyTypes", &spec["policyTypes"], text));
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        if kind != "Ingress" && kind != "Egress" {
            let path = format!("spec.policyTypes[{i}]");
            checks.add(FieldError::unsupported(path, kind, &["Ingress", "Egress"]));
        }
    }
}

fn check_policy_port(checks: &mut Checks, path: &str, port: &Value) {
    if !port["protocol"].is_null() {
        checks.one_of(path, port, "protocol", &["TCP", "UDP", "SCTP"]);
    }
    let (number, end) = (&port["port"], &port["endPort"]);
    let end_path = format!("{path}.endPort");
    let misplaced = match number {
        Value::Null => Some("may not be specified when `port` is not specified"),
        Value::String(_) => Some("may not be specified when `port` is non-numeric"),
        _ => None,
    };
    if !number.is_null() {
        checks.port_or_name(&format!("{path}.port"), number);
    }
    match misplaced {
        _ if end.is_null() => {}
        Some(why) => checks.add(FieldError::invalid(end_path, end, why)),
        None => {
            if end.as_i64() < number.as_i64() {
                let text = "must be greater than or equal to `port`";
                checks.add(FieldError::invalid(end_path.as_str(), number, text));
            }
            checks.port(&end_path, end);
        }
    }
}

fn check_peer(checks: &mut Checks, path: &str, peer: &Value, known: &[&Value]) {
    let (block, mut others) = (&peer["ipBlock"], 0);
    for selector in ["podSelector", "namespaceSelector"] {
        if !peer[selector].is_null() {
            others += 1;
            selectors::check(checks, &format!("{path}.{selector}"), &peer[selector]);
        }
    }
    if block.is_null() {
        if others == 0 {
            checks.add(FieldError::required(path, "must specify a peer"));
        }
        return;
    }
    check_block(checks, &format!("{path}.ipBlock"), block, known);
    if others > 0 {
        checks.add(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
    }
}

fn check_block(checks: &mut Checks, path: &str, block: &Value, known: &[&Value]) {
    if !checks.required(path, block, "cidr") {
        return;
    }
    let mut range = |path: &str, text: &Value| {
        if !known.contains(&text) {
            addresses::check_range(checks, path, text);
        }
        addresses::Range::parse(text.as_str().unwrap_or_default())
    };
    let Some(whole) = range(&format!("{path}.cidr"), &block["cidr"]) else { return };
    let mut outside = Vec::new();
    for (i, except) in items(&block["except"]).iter().enumerate() {
        let path = format!("{path}.except[{i}]");
        if range(&path, except).is_some_and(|part| !whole.strictly_contains(&part)) {
            outside.push((path, except));
        }
    }
    for (path, except) in outside {
        checks.add(FieldError::invalid(path, except, "must be a strict subset of `cidr`"));
    }
}

pub(super) fn check_ip_address(checks: &mut Checks, spec: &Value) {
    let parent = &spec["parentRef"];
    if parent.is_null() {
        checks.add(FieldError::required("spec.parentRef", ""));
        return;
    }
    let path = "spec.parentRef";
    check_name(checks, &format!("{path}.group"), &parent["group"]);
    for field in ["resource", "name"] {
        checks.path_segment(path, parent, field);
    }
    if let Some(namespace) = parent["namespace"].as_str() {
        for error in NameRule::PathSegment.errors(namespace, false) {
            checks.add(FieldError::invalid(format!("{path}.namespace"), &parent["namespace"], &error));
        }
    }
}

pub(super) fn check_service_cidr(checks: &mut Checks, spec: &Value) {
    let path = "spec.cidrs";
    let ranges = items(&spec["cidrs"]);
    if ranges.is_empty() {
        checks.add(FieldError::required(path, "at least one CIDR required"));
        return;
    }
    if ranges.len() > 2 {
        let shown = format!("{{\"CIDRs\":{}}}", spec["cidrs"]);
        checks.add(FieldError::invalid_shown(path, &shown, "may only hold up to 2 values"));
        return;
    }
    let mut families = Vec::new();
    for (i, range) in ranges.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let errors = checks.errors.len();
        addresses::check_range(checks, &path, range);
        let Some(parsed) = addresses::Range::parse(range.as_str().unwrap_or_default()) else { continue };
        let canonical = parsed.to_string();
        if checks.errors.len() == errors && *range != canonical {
            let text = format!("must be in canonical form ({})", quoted(&canonical));
            checks.add(FieldError::invalid(path, range, &text));
        }
        families.push(parsed.is_ipv4());
    }
    if let [one, other] = families[..]
        && one == other
    {
        let text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        checks.add(FieldError::invalid(path, &spec["cidrs"], text));
    }
}

pub(super) fn check_service_cidr_update(checks: &mut Checks, spec: &Value, old: &Value) {
    let (now, before) = (items(&spec["cidrs"]), items(&old["cidrs"]));
    match (before.len(), now.len()) {
        (one, other) if one == other => {
            for (i, (range, old)) in now.iter().zip(before).enumerate() {
                checks.immutable(&format!("spec.cidrs[{i}]"), range, old);
            }
        }
        (1, 2) => {
            checks.immutable("spec.cidrs[0]", &spec["cidrs"][0], &old["cidrs"][0]);
            check_service_cidr(checks, spec);
        }
        _ => {
            let shown = Value::from(now.to_vec());
            checks.add(FieldError::invalid("spec.cidrs", &shown, "field is immutable"));
        }
    }
}
