//! The defaults of built-in kinds.
//!
//! Most defaults are in the table, found by running the server's own functions. This module has the defaults
//! that depend on other fields, and the few changes that conversion to the server's internal types and back
//! makes.

use serde_json::{Map, Value, json};

use super::typed::{at_least_milli, embedded, zero};
use super::types::{Field, Shape, Type, find_type};
use crate::kinds::kind::Kind;

mod pods;
mod roots;
mod service;

type Object = Map<String, Value>;

/// Sets the defaults of an object in typed form. Objects of custom resources stay as they are.
pub fn apply(kind: &Kind, object: &mut Value) {
    let Some(of) = kind.type_name.as_deref().and_then(find_type) else { return };
    let Some(map) = object.as_object_mut() else { return };
    roots::before(of.name, map);
    walk(of, map);
    roots::after(of.name, map);
}

fn walk(of: &'static Type, map: &mut Object) {
    for field in &of.fields {
        if let Some(default) = &field.server_default
            && is_missing(field, map)
        {
            map.insert(field.name.to_owned(), default.clone());
        }
    }
    dependent(of.name, map);
    for field in &of.fields {
        if field.name.is_empty() {
            if let Some(part) = embedded(field.shape) {
                walk(part, map);
            }
        } else if let Some(value) = map.get_mut(field.name) {
            descend(field.shape, value);
            if field.go.is_some_and(|name| name.ends_with("ResourceList")) {
                round(value);
            }
        }
    }
}

fn descend(shape: Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Pointer(target), value) => descend(*target, value),
        (Shape::Struct(name), Value::Object(map)) => {
            if let Some(of) = find_type(name) {
                walk(of, map);
            }
        }
        (Shape::List(items), Value::Array(list)) => {
            for item in list {
                descend(*items, item);
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for (_, value) in map.iter_mut() {
                descend(*values, value);
            }
        }
        _ => {}
    }
}

/// Rounds the quantities of a resource list up to thousandths.
fn round(list: &mut Value) {
    for (_, value) in list.as_object_mut().into_iter().flatten() {
        if let Some(rounded) = value.as_str().and_then(at_least_milli) {
            *value = rounded.into();
        }
    }
}

/// Returns whether the field has Go's zero value.
fn is_missing(field: &Field, map: &Object) -> bool {
    match map.get(field.name) {
        None | Some(Value::Null) => true,
        Some(value) => !matches!(field.shape, Shape::Pointer(_)) && *value == zero(field.shape),
    }
}

/// Sets the defaults that depend on other fields of the same struct.
fn dependent(type_name: &str, map: &mut Object) {
    match type_name {
        "apps/v1.DeploymentStrategy"
        | "apps/v1.DaemonSetUpdateStrategy"
        | "apps/v1.StatefulSetUpdateStrategy"
            if text(map, "type") == "RollingUpdate" =>
        {
            // The table has the defaults of its fields.
            set(map, "rollingUpdate", json!({}));
        }
        "core/v1.Container" | "core/v1.EphemeralContainerCommon" => {
            set(map, "imagePullPolicy", pods::pull_policy(text(map, "image")).into());
        }
        "core/v1.ImageVolumeSource" => {
            set(map, "pullPolicy", pods::pull_policy(text(map, "reference")).into());
        }
        "admissionregistration/v1.MatchResources" => {
            for selector in ["namespaceSelector", "objectSelector"] {
                set(map, selector, json!({}));
            }
        }
        "core/v1.Volume" if map.keys().all(|key| key == "name") => set(map, "emptyDir", json!({})),
        "core/v1.PodSpec" => pods::spec(map),
        "core/v1.ServiceSpec" => service::apply(map),
        "core/v1.LimitRangeItem" if text(map, "type") == "Container" => limits(map),
        "core/v1.NodeStatus" => {
            if let Some(capacity) = map.get("capacity").cloned() {
                set(map, "allocatable", capacity);
            }
        }
        "networking/v1.NetworkPolicySpec" => {
            let egress = map.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
            set(map, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
        }
        "rbac/v1.Subject" if matches!(text(map, "kind"), "User" | "Group") => {
            set(map, "apiGroup", "rbac.authorization.k8s.io".into());
        }
        "resource/v1.ExactDeviceRequest" | "resource/v1.DeviceSubRequest"
            if text(map, "allocationMode") == "ExactCount" =>
        {
            set(map, "count", 1.into());
        }
        "autoscaling/v2.HorizontalPodAutoscalerSpec" => autoscaler(map),
        _ => {}
    }
}

/// Derives the defaults of a container's limits and requests from its maximum and minimum.
fn limits(map: &mut Object) {
    let copy = |map: &mut Object, from: &str, to: &str| {
        let Some(Value::Object(values)) = map.get(from).cloned() else { return };
        let target = map.entry(to.to_owned()).or_insert_with(|| json!({}));
        if let Value::Object(target) = target {
            for (resource, quantity) in values {
                target.entry(resource).or_insert(quantity);
            }
        }
    };
    copy(map, "max", "default");
    copy(map, "default", "defaultRequest");
    copy(map, "min", "defaultRequest");
}

fn autoscaler(map: &mut Object) {
    set(
        map,
        "metrics",
        json!([{"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]),
    );
    let Some(Value::Object(behavior)) = map.get_mut("behavior") else { return };
    let up = json!({
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    });
    let down = json!({
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    });
    for (name, defaults) in [("scaleUp", up), ("scaleDown", down)] {
        let rules = behavior.entry(name).or_insert_with(|| json!({}));
        if let (Value::Object(rules), Value::Object(defaults)) = (rules, defaults) {
            for (field, value) in defaults {
                set(rules, &field, value);
            }
        }
    }
}

/// Sets a field that is missing, null, an empty string or an empty list. Numbers and booleans stay.
fn set(map: &mut Object, name: &str, value: Value) {
    let missing = match map.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    if missing {
        map.insert(name.to_owned(), value);
    }
}

fn text<'a>(map: &'a Object, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn object<'a>(map: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    map.get_mut(name).and_then(Value::as_object_mut)
}
