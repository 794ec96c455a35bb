//! Checks that a schema is structural: every field has one type, outside `allOf`, `anyOf`, `oneOf` and `not`.

use serde_json::{Value, json};

use crate::kinds::custom::patterns;
use crate::kinds::custom::structural::flag;
use crate::kinds::custom::{list, text};
use crate::kinds::errors::FieldError;

/// The position of a node, which decides the message for a missing type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the error for an unsupported keyword; `None` if all keywords are supported.
pub(super) fn unsupported(raw: &Value) -> Option<String> {
    for keyword in
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"]
    {
        if raw.get(keyword).is_some_and(|value| !value.is_null() && *value != json!({}) && value != "") {
            return Some(format!(
                "OpenAPIV3Schema '{}' is not supported",
                keyword.replace("$schema", "schema")
            ));
        }
    }
    if raw.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned(),
        );
    }
    if raw.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let logic = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|keyword| list(raw, keyword));
    let single = ["not", "items", "additionalProperties"].into_iter().filter_map(|keyword| raw.get(keyword));
    let properties =
        raw.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(_, one)| one);
    logic.chain(single).chain(properties).filter(|one| one.is_object()).find_map(unsupported)
}

/// Returns the errors of a schema that is not structural.
pub(super) fn check(raw: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check_node(raw, Level::Root, path, &mut errors);
    check_complete(raw, Some(raw), path, path, &mut errors);
    errors
}

fn check_node(raw: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(raw, "type");
    if kind == "array" && !raw.get("items").is_some_and(Value::is_object) {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = raw.get("items").filter(|items| items.is_object()) {
        check_node(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in raw.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check_node(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let embedded = flag(raw, "x-kubernetes-embedded-resource");
    let preserves = flag(raw, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(raw, "x-kubernetes-int-or-string");
    if let Some(values) = raw.get("additionalProperties").filter(|values| !values.is_null()) {
        let path = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&path, "must not be used at the root"));
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(&path, detail));
        }
        if values.is_object() {
            check_node(values, Level::Field, &path, errors);
        }
    }
    for (set, keyword) in
        [(preserves, "x-kubernetes-preserve-unknown-fields"), (embedded, "x-kubernetes-embedded-resource")]
    {
        if set && int_or_string {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{keyword}"), &true.into(), detail));
        }
    }
    check_values(
        raw,
        is_int_or_string(raw),
        is_int_or_string(list(raw, "allOf").next().unwrap_or(&Value::Null)),
        path,
        errors,
    );
    let of_type = format!("{path}.type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(&of_type, detail)
        } else {
            FieldError::invalid(&of_type, &kind.as_str().into(), detail)
        });
    } else if kind.is_empty() && !int_or_string && !preserves {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&of_type, detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(&of_type, &kind.into(), "must be object at the root"));
    }
    check_meta(raw, level, embedded, path, errors);
    let empty = raw.get("properties").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
    if embedded && !preserves && empty {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

/// Checks `apiVersion`, `kind` and `metadata`: their types are fixed, and only names can be restricted.
fn check_meta(raw: &Value, level: Level, embedded: bool, path: &str, errors: &mut Vec<FieldError>) {
    let property = |name: &str| raw.get("properties").and_then(|properties| properties.get(name));
    let checked = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        let kind =
            property(name).map(|property| text(property, "type")).filter(|kind| checked && kind != "string");
        if let Some(kind) = kind {
            let path = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(path, &kind.into(), "must be string"));
        }
    }
    let Some(metadata) = property("metadata") else { return };
    let path = format!("{path}.properties[metadata]");
    let kind = text(metadata, "type");
    if checked && kind != "object" {
        errors.push(FieldError::invalid(format!("{path}.type"), &kind.into(), "must be object"));
    }
    let names_only = |(keyword, value): (&String, &Value)| match keyword.as_str() {
        "type" | "default" => true,
        "properties" => value.as_object().is_some_and(|properties| {
            properties.keys().all(|name| matches!(name.as_str(), "name" | "generateName"))
        }),
        _ => false,
    };
    if level == Level::Root && !metadata.as_object().into_iter().flatten().all(names_only) {
        let detail = "must not specify anything other than name and generateName, but metadata is \
                      implicitly specified";
        errors.push(FieldError::forbidden(path, detail));
    }
}

/// Returns whether `anyOf` has exactly the two types of an int-or-string.
fn is_int_or_string(raw: &Value) -> bool {
    raw.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

fn check_values(raw: &Value, skips_any: bool, skips_first: bool, path: &str, errors: &mut Vec<FieldError>) {
    for keyword in ["anyOf", "allOf", "oneOf"] {
        if keyword == "anyOf" && skips_any {
            continue;
        }
        for (index, one) in list(raw, keyword).enumerate() {
            let skips = skips_first && keyword == "allOf" && index == 0;
            check_nested(one, skips, &format!("{path}.{keyword}[{index}]"), errors);
        }
    }
    if let Some(not) = raw.get("not").filter(|not| not.is_object()) {
        check_nested(not, false, &format!("{path}.not"), errors);
    }
    let pattern = text(raw, "pattern");
    if let Err(error) = patterns::compile(&pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &pattern.into(), &detail));
    }
}

/// Checks a schema inside `allOf` and similar keywords, which must not declare types.
fn check_nested(raw: &Value, skips_any: bool, path: &str, errors: &mut Vec<FieldError>) {
    check_values(raw, skips_any, false, path, errors);
    if let Some(items) = raw.get("items").filter(|items| items.is_object()) {
        check_nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in raw.get("properties").and_then(Value::as_object).into_iter().flatten() {
        check_nested(property, false, &format!("{path}.properties[{name}]"), errors);
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
        }
    }
    for (keyword, detail) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let set = raw.get(keyword).is_some_and(|value| !value.is_null() && *value != false && value != "");
        if set && raw.get(keyword) != Some(&json!([])) {
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), detail));
        }
    }
}

/// Checks that fields inside `allOf` and similar keywords are also declared outside. `of` is the declaration
/// outside, at `path`.
fn check_complete(raw: &Value, of: Option<&Value>, path: &str, at: &str, errors: &mut Vec<FieldError>) {
    if let Some(not) = raw.get("not").filter(|not| not.is_object()) {
        check_complete_nested(not, of, path, &format!("{at}.not"), errors);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (index, one) in list(raw, keyword).enumerate() {
            check_complete_nested(one, of, path, &format!("{at}.{keyword}[{index}]"), errors);
        }
    }
}

fn check_complete_nested(
    raw: &Value,
    of: Option<&Value>,
    path: &str,
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(of) = of else {
        errors.push(FieldError::required(path, &format!("because it is defined in {at}")));
        return;
    };
    check_complete(raw, Some(of), path, at, errors);
    if let Some(items) = raw.get("items").filter(|items| items.is_object()) {
        let declared = of.get("items").filter(|items| items.is_object());
        check_complete_nested(items, declared, &format!("{path}.items"), &format!("{at}.items"), errors);
    }
    for (name, property) in raw.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let declared = of.get("properties").and_then(|properties| properties.get(name));
        let part = format!(".properties[{name}]");
        check_complete_nested(property, declared, &format!("{path}{part}"), &format!("{at}{part}"), errors);
    }
}
