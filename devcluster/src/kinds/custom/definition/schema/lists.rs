//! Validation of list types, their keys, and map types.

use serde_json::Value;

use crate::kinds::custom::structural::{flag, strings};
use crate::kinds::custom::text;
use crate::kinds::errors::FieldError;

/// Adds an error if the node does not have the type that a keyword needs. Returns whether it has.
fn check_type_of(
    raw: &Value,
    keyword: &str,
    expected: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> bool {
    let kind = text(raw, "type");
    if kind == expected {
        return true;
    }
    let (path, detail) = (format!("{path}.type"), format!("must be {expected} if {keyword} is specified"));
    errors.push(if kind.is_empty() {
        FieldError::required(path, &detail)
    } else {
        FieldError::invalid(path, &kind.into(), &detail)
    });
    false
}

/// Checks the list type and map type of a node.
pub(super) fn check(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(map_type) = raw.get("x-kubernetes-map-type").and_then(Value::as_str) {
        check_type_of(raw, "x-kubernetes-map-type", "object", path, errors);
        if !matches!(map_type, "atomic" | "granular") {
            let path = format!("{path}.x-kubernetes-map-type");
            errors.push(FieldError::unsupported(path, &map_type.into(), &["atomic", "granular"]));
        }
    }
    let list_type = raw.get("x-kubernetes-list-type").and_then(Value::as_str);
    let items = raw.get("items").filter(|items| items.is_object());
    if let Some(list_type) = list_type {
        if check_type_of(raw, "x-kubernetes-list-type", "array", path, errors)
            && let (Some(items), "set") = (items, list_type)
        {
            check_set(items, path, errors);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let path = format!("{path}.x-kubernetes-list-type");
            errors.push(FieldError::unsupported(path, &list_type.into(), &["atomic", "set", "map"]));
        }
    }
    let keys = strings(raw, "x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != Some("map") {
        let (path, detail) = (
            format!("{path}.x-kubernetes-list-type"),
            "must be map if x-kubernetes-list-map-keys is non-empty",
        );
        errors.push(match list_type {
            None => FieldError::required(path, detail),
            Some(list_type) => FieldError::invalid(path, &list_type.into(), detail),
        });
    }
    if list_type == Some("map") {
        check_map_keys(items, &keys, path, errors);
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, items) {
        if flag(items, "nullable") {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            errors.push(FieldError::forbidden(format!("{path}.items.nullable"), &detail));
        }
        let required = strings(items, "required");
        for key in keys.iter().filter(|_| list_type == "map") {
            let Some(property) = items.get("properties").and_then(|properties| properties.get(key)) else {
                continue;
            };
            let path = format!("{path}.items.properties[{key}]");
            if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or \
                              be a required property";
                errors.push(FieldError::required(format!("{path}.default"), detail));
            }
            if flag(property, "nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
            }
        }
    }
}

/// Checks that the items of a set are atomic.
fn check_set(items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
    match text(items, "type").as_str() {
        "array" if !list_type.is_null() && list_type != "atomic" => {
            errors.push(FieldError::invalid(
                format!("{path}.items.x-kubernetes-list-type"),
                list_type,
                detail,
            ));
        }
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
            errors.push(FieldError::invalid(
                format!("{path}.items.x-kubernetes-map-type"),
                list_type,
                detail,
            ));
        }
        _ => {}
    }
}

fn check_map_keys(items: Option<&Value>, keys: &[String], path: &str, errors: &mut Vec<FieldError>) {
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.x-kubernetes-list-map-keys"), detail));
    }
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &kind.into(), detail));
        return;
    }
    let of_keys = || format!("{path}.x-kubernetes-list-map-keys");
    let shown = Value::from(keys.to_vec());
    for (index, key) in keys.iter().enumerate() {
        match items.get("properties").and_then(|properties| properties.get(key)) {
            None => errors.push(FieldError::invalid(
                of_keys(),
                &shown,
                "entries must all be names of item properties",
            )),
            Some(property) if matches!(text(property, "type").as_str(), "array" | "object") => {
                let path = format!("{path}.items.properties[{key}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(path, &kind.as_str().into(), detail));
            }
            Some(_) => {}
        }
        if keys.iter().take(index).any(|other| other == key) {
            errors.push(FieldError::invalid(of_keys(), &shown, "must not contain duplicate entries"));
        }
    }
}
