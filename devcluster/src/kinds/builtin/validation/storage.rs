//! Validation of the kinds of `storage.k8s.io`.

use std::collections::HashSet;

use serde_json::Value;

use super::{Checks, entries, internal, items, selectors};
use crate::kinds::builtin::typed::compare;
use crate::kinds::{FieldError, names};

const MAX_PARAMETERS: usize = 512;
const MAX_SIZE: usize = 256 << 10;
const MAX_DRIVER_NAME: usize = 63;
const MAX_NODE_ID: usize = 256;
/// The shortest lifetime of a token that a driver requests, in seconds.
const MIN_TOKEN_SECONDS: i64 = 600;
/// The longest lifetime of a token that a driver requests, in seconds.
const MAX_TOKEN_SECONDS: i64 = 1 << 32;
/// The shortest `nodeAllocatableUpdatePeriodSeconds`.
const MIN_PERIOD: i64 = 10;

pub(super) fn check_class(checks: &mut Checks, class: &Value) {
    check_provisioner(checks, class, "provisioner");
    check_parameters(checks, &class["parameters"]);
    if !class["reclaimPolicy"].is_null() && class["reclaimPolicy"] != "" {
        supported(checks, class, "reclaimPolicy", &["Delete", "Retain"]);
    }
    supported(checks, class, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]);
    let mut terms: Vec<&Value> = Vec::new();
    for (i, term) in items(&class["allowedTopologies"]).iter().enumerate() {
        let path = format!("allowedTopologies[{i}].matchLabelExpressions");
        check_topology(checks, &path, &term["matchLabelExpressions"]);
        if terms.contains(&term) {
            checks.add(FieldError::duplicate(path, &"".into()));
        }
        terms.push(term);
    }
}

pub(super) fn check_class_update(checks: &mut Checks, class: &Value, old: &Value) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        checks.immutable(field, &class[field], &old[field]);
    }
}

fn check_topology(checks: &mut Checks, path: &str, expressions: &Value) {
    let mut keys = HashSet::new();
    for (i, expression) in items(expressions).iter().enumerate() {
        let path = format!("{path}[{i}]");
        let values = items(&expression["values"]);
        if values.is_empty() {
            checks.add(FieldError::required(format!("{path}.values"), ""));
        }
        for (i, value) in values.iter().enumerate() {
            if values.iter().take(i).any(|earlier| earlier == value) {
                checks.add(FieldError::duplicate(format!("{path}.values[{i}]"), value));
            }
        }
        let key = expression["key"].as_str().unwrap_or_default();
        for error in names::qualified_name(key) {
            checks.add(FieldError::invalid(format!("{path}.key"), &key.into(), &error));
        }
        if !keys.insert(key) {
            checks.add(FieldError::duplicate(format!("{path}.key"), &key.into()));
        }
    }
}

/// Checks the name of a driver, a qualified name in any case.
fn check_provisioner(checks: &mut Checks, of: &Value, field: &str) {
    let name = of[field].as_str().unwrap_or_default().to_lowercase();
    if name.is_empty() {
        checks.add(FieldError::required(field, ""));
        return;
    }
    for error in names::qualified_name(&name) {
        checks.add(FieldError::invalid(field, &name.as_str().into(), &error));
    }
}

fn check_parameters(checks: &mut Checks, parameters: &Value) {
    let path = "parameters";
    if parameters.as_object().is_some_and(|map| map.len() > MAX_PARAMETERS) {
        checks.add(FieldError::too_long(path, MAX_PARAMETERS));
        return;
    }
    let mut size = 0;
    for (key, value) in entries(parameters) {
        if key.is_empty() {
            checks.add(FieldError::invalid(path, &"".into(), "field can not be empty."));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_SIZE {
        checks.add(FieldError::too_long(path, MAX_SIZE));
    }
}

/// Checks an enumeration at the root of an object.
fn supported(checks: &mut Checks, of: &Value, field: &str, values: &[&str]) {
    let value = of[field].as_str().unwrap_or_default();
    if !values.contains(&value) {
        checks.add(FieldError::unsupported(field, &value.into(), values));
    }
}

pub(super) fn check_attributes_class(checks: &mut Checks, class: &Value) {
    check_provisioner(checks, class, "driverName");
    check_parameters(checks, &class["parameters"]);
    if entries(&class["parameters"]).next().is_none() {
        checks.add(FieldError::required("parameters", "must contain at least one key/value pair"));
    }
}

pub(super) fn check_attributes_class_update(checks: &mut Checks, class: &Value, old: &Value) {
    for field in ["driverName", "parameters"] {
        if class[field] != old[field] {
            checks.add(FieldError::forbidden(field, &format!("updates to {field} are forbidden.")));
        }
    }
}

pub(super) fn check_driver(checks: &mut Checks, spec: &Value) {
    if !spec["fsGroupPolicy"].is_null() {
        checks.one_of("spec", spec, "fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]);
    }
    let requests = items(&spec["tokenRequests"]);
    let mut audiences = HashSet::new();
    for (i, request) in requests.iter().enumerate() {
        let path = format!("spec.tokenRequests[{i}]");
        let audience = request["audience"].as_str().unwrap_or_default();
        if !audiences.insert(audience) {
            checks.add(FieldError::duplicate(format!("{path}.audience"), &audience.into()));
            continue;
        }
        let seconds = &request["expirationSeconds"];
        let path = format!("{path}.expirationSeconds");
        match seconds.as_i64() {
            Some(number) if number < MIN_TOKEN_SECONDS => {
                let text = "may not specify a duration less than 10 minutes";
                checks.add(FieldError::invalid(path, seconds, text));
            }
            Some(number) if number > MAX_TOKEN_SECONDS => {
                let text = "may not specify a duration larger than 2^32 seconds";
                checks.add(FieldError::invalid(path, seconds, text));
            }
            _ => {}
        }
    }
    for mode in items(&spec["volumeLifecycleModes"]) {
        if mode != "Persistent" && mode != "Ephemeral" {
            let path = "spec.volumeLifecycleModes";
            checks.add(FieldError::unsupported(path, mode, &["Persistent", "Ephemeral"]));
        }
    }
    let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
    if period.as_i64().is_some_and(|seconds| seconds < MIN_PERIOD) {
        let path = "spec.nodeAllocatableUpdatePeriodSeconds";
        checks.add(FieldError::invalid(path, period, "must be greater than or equal to 10 seconds"));
    }
    let in_secrets = &spec["serviceAccountTokenInSecrets"];
    if !in_secrets.is_null() && requests.is_empty() {
        let text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        checks.add(FieldError::invalid("spec.serviceAccountTokenInSecrets", in_secrets, text));
    }
}

pub(super) fn check_driver_update(checks: &mut Checks, spec: &Value, old: &Value) {
    checks.immutable("spec.attachedRequired", &spec["attachRequired"], &old["attachRequired"]);
    let field = "volumeLifecycleModes";
    checks.immutable(&format!("spec.{field}"), &spec[field], &old[field]);
}

pub(super) fn check_node(checks: &mut Checks, spec: &Value) {
    let mut drivers = HashSet::new();
    for (i, driver) in items(&spec["drivers"]).iter().enumerate() {
        let path = format!("spec.drivers[{i}]");
        check_driver_name(checks, &path, driver, "name");
        let id = driver["nodeID"].as_str().unwrap_or_default();
        if id.is_empty() {
            checks.add(FieldError::required(format!("{path}.nodeID"), ""));
        }
        if id.len() > MAX_NODE_ID {
            let text = format!("must be {MAX_NODE_ID} characters or less");
            checks.add(FieldError::invalid(format!("{path}.nodeID"), &driver["nodeID"], &text));
        }
        checks.not_negative(&format!("{path}.allocatable"), &driver["allocatable"], "count");
        if !drivers.insert(driver["name"].as_str().unwrap_or_default()) {
            checks.add(FieldError::duplicate(format!("{path}.name"), &driver["name"]));
        }
        let mut keys = HashSet::new();
        for key in items(&driver["topologyKeys"]) {
            let text = key.as_str().unwrap_or_default();
            if text.is_empty() {
                checks.add(FieldError::required(path.as_str(), ""));
            }
            if !keys.insert(text) {
                checks.add(FieldError::duplicate(path.as_str(), key));
            }
            for error in names::qualified_name(text) {
                checks.add(FieldError::invalid(path.as_str(), key, &error));
            }
        }
    }
}

fn check_driver_name(checks: &mut Checks, path: &str, of: &Value, field: &str) {
    if !checks.required(path, of, field) {
        return;
    }
    let (name, path) = (of[field].as_str().unwrap_or_default(), format!("{path}.{field}"));
    if name.len() > MAX_DRIVER_NAME {
        checks.add(FieldError::too_long(path.as_str(), MAX_DRIVER_NAME));
    }
    for error in names::dns1123_subdomain(&name.to_lowercase()) {
        checks.add(FieldError::invalid(path.as_str(), &of[field], &error));
    }
}

pub(super) fn check_attachment(checks: &mut Checks, spec: &Value) {
    check_driver_name(checks, "spec", spec, "attacher");
    let (inline, volume) = (&spec["source"]["inlineVolumeSpec"], &spec["source"]["persistentVolumeName"]);
    let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_null(), volume.as_str()) {
        (true, None) => checks.add(FieldError::required("spec.source", exactly_one)),
        (false, Some(_)) => checks.add(FieldError::forbidden("spec.source", exactly_one)),
        (_, Some("")) => {
            let text = "must specify non empty persistentVolumeName";
            checks.add(FieldError::required("spec.source.persistentVolumeName", text));
        }
        _ => {}
    }
    for (path, value) in [("spec.source.persistentVolumeName", volume), ("spec.nodeName", &spec["nodeName"])]
    {
        let Some(name) = value.as_str() else { continue };
        for error in names::dns1123_subdomain(name) {
            checks.add(FieldError::invalid(path, value, &error));
        }
    }
}

pub(super) fn check_attachment_update(checks: &mut Checks, attachment: &Value, old: &Value) {
    let (spec, before) = (&attachment["spec"], &old["spec"]);
    if spec != before {
        let source =
            [("PersistentVolumeName", "persistentVolumeName"), ("InlineVolumeSpec", "inlineVolumeSpec")];
        let shown = format!(
            "{{\"Attacher\":{},\"Source\":{},\"NodeName\":{}}}",
            spec["attacher"],
            internal(&spec["source"], &source, &Value::Null),
            spec["nodeName"]
        );
        checks.add(FieldError::invalid_shown("spec", &shown, "field is immutable"));
    }
}

/// Returns the warnings about a driver; `old` is `None` for a new one.
pub(super) fn warnings(spec: &Value, old: Option<&Value>) -> Vec<String> {
    let requests = &spec["tokenRequests"];
    let changed = old.is_none_or(|old| old["tokenRequests"] != *requests);
    if !changed || items(requests).is_empty() || !spec["serviceAccountTokenInSecrets"].is_null() {
        return Vec::new();
    }
    let text = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to \
                prevent possible logging of tokens in volume attributes";
    vec![text.to_owned()]
}

pub(super) fn check_capacity(checks: &mut Checks, capacity: &Value) {
    selectors::check(checks, "nodeTopology", &capacity["nodeTopology"]);
    let class = &capacity["storageClassName"];
    for error in names::dns1123_subdomain(class.as_str().unwrap_or_default()) {
        checks.add(FieldError::invalid("storageClassName", class, &error));
    }
    let quantity = &capacity["capacity"];
    if quantity.as_str().and_then(|quantity| compare(quantity, "0")).is_some_and(std::cmp::Ordering::is_lt) {
        checks.add(FieldError::invalid("capacity", quantity, "must be greater than or equal to 0"));
    }
}

pub(super) fn check_capacity_update(checks: &mut Checks, capacity: &Value, old: &Value) {
    for field in ["nodeTopology", "storageClassName"] {
        checks.immutable(field, &capacity[field], &old[field]);
    }
}
