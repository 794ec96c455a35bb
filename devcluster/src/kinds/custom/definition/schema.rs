//! Validation of an `openAPIV3Schema`, node by node.

mod lists;
mod rules;

use serde_json::Value;

use super::defaults;
use super::structural;
use crate::kinds::custom::rules::Declared;
use crate::kinds::custom::structural::flag;
use crate::kinds::custom::{formats, list, text};
use crate::kinds::errors::FieldError;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The keywords allowed at the root of a schema with a status subresource, and their names in the message.
const ROOT_KEYWORDS: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Checks the schema of a version. `status` is set if the version has the status subresource.
pub(super) fn check_root(raw: &Value, status: bool, path: &str, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    if status {
        check_beside_status(raw, path, errors);
    }
    if flag(raw, "nullable") {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = structural::unsupported(raw);
    let mut compiles = false;
    if unsupported.is_none() {
        let found = structural::check(raw, path);
        if found.is_empty() {
            let known = errors.len();
            defaults::check(raw, path, errors);
            compiles = errors.len() == known;
        } else {
            errors.extend(found);
        }
    }
    let place = Place { root: true, compiles, ..Place::default() };
    let declared = compiles.then(|| Declared::of(raw, true)).flatten();
    let found = check(raw, path, &place, declared.as_ref());
    errors.extend(found.schema);
    errors.extend(found.rules);
    if let Some(detail) = unsupported.filter(|_| errors.len() == before) {
        errors.push(FieldError::invalid(path, &"".into(), &detail));
    }
}

fn check_beside_status(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if text(raw, "type") != "object" && raw.get("type").is_some() {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status \
                      subresource is enabled";
        errors.push(FieldError::invalid(format!("{path}.type"), &text(raw, "type").into(), detail));
        return;
    }
    let empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    let other = |(name, value): (&String, &Value)| {
        !empty(value) && !ROOT_KEYWORDS.iter().any(|(known, _)| known == name)
    };
    if raw.as_object().into_iter().flatten().any(other) {
        let names: Vec<_> = ROOT_KEYWORDS.iter().map(|(_, name)| *name).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(FieldError::invalid(path, raw, &detail));
    }
}

/// The position of a node in the schema.
#[derive(Clone, Default)]
struct Place {
    root: bool,
    /// The end of the message that forbids defaults here; `None` if defaults are allowed.
    no_defaults: Option<String>,
    /// Whether the node is part of `apiVersion`, `kind` or `metadata`.
    in_meta: bool,
    /// The path of the outermost list above that cannot match its items with old ones; `None` if there is
    /// none.
    uncorrelated: Option<String>,
    /// Whether CEL rules are compiled here.
    compiles: bool,
}

/// The errors of a node and the nodes below it. Rules are compiled only at nodes without schema errors.
#[derive(Default)]
struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

impl Found {
    fn merge(&mut self, other: Found) {
        self.schema.extend(other.schema);
        self.rules.extend(other.rules);
    }
}

fn check(raw: &Value, path: &str, place: &Place, declared: Option<&Declared>) -> Found {
    let mut found = Found::default();
    check_keywords(raw, path, place, &mut found.schema);
    let at_root = place.root;
    let below = |place: &Place| Place { root: false, ..place.clone() };
    let logic = Place { compiles: false, ..below(place) };
    if let Some(values) = raw.get("additionalProperties") {
        if raw.get("properties").is_some_and(|map| map.as_object().is_some_and(|map| !map.is_empty()))
            && *values != Value::Bool(true)
        {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
        }
        if values.is_object() {
            let mut place = below(place);
            if place.in_meta {
                place.no_defaults =
                    Some(" inside additionalProperties applying to object metadata".to_owned());
            }
            let declared = declared.and_then(Declared::item);
            found.merge(check(values, &format!("{path}.additionalProperties"), &place, declared.as_ref()));
        }
    }
    for (name, property) in raw.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let mut place = below(place);
        let embedded = flag(raw, "x-kubernetes-embedded-resource");
        if (at_root || embedded) && META_FIELDS.contains(&name.as_str()) {
            place.in_meta = true;
            if at_root {
                place.no_defaults = Some(format!(" in top-level {name}"));
            }
        }
        let declared = declared.and_then(|declared| declared.field(name));
        found.merge(check(property, &format!("{path}.properties[{name}]"), &place, declared.as_ref()));
    }
    if let Some(not) = raw.get("not").filter(|not| not.is_object()) {
        found.merge(check(not, &format!("{path}.not"), &logic, None));
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for (index, one) in list(raw, keyword).enumerate() {
            found.merge(check(one, &format!("{path}.{keyword}[{index}]"), &logic, None));
        }
    }
    if let Some(items) = raw.get("items").filter(|items| items.is_object()) {
        let mut place = below(place);
        if text(raw, "x-kubernetes-list-type") != "map" && place.uncorrelated.is_none() {
            place.uncorrelated = Some(path.to_owned());
        }
        let declared = declared.and_then(Declared::item);
        found.merge(check(items, &format!("{path}.items"), &place, declared.as_ref()));
    }
    lists::check(raw, path, &mut found.schema);
    for (index, rule) in list(raw, "x-kubernetes-validations").enumerate() {
        rules::check(rule, raw, &format!("{path}.x-kubernetes-validations[{index}]"), &mut found.schema);
    }
    if let Some(declared) = declared.filter(|_| place.compiles && found.schema.is_empty()) {
        for (index, rule) in list(raw, "x-kubernetes-validations").enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{index}]");
            rules::compile(rule, declared, place.uncorrelated.as_deref(), &path, &mut found.rules);
        }
    }
    found
}

fn check_keywords(raw: &Value, path: &str, place: &Place, errors: &mut Vec<FieldError>) {
    let kind = text(raw, "type");
    if !kind.is_empty() && !TYPES.contains(&kind.as_str()) {
        errors.push(FieldError::unsupported(format!("{path}.type"), &kind.as_str().into(), &TYPES));
    }
    if let Some(reason) =
        place.no_defaults.as_ref().filter(|_| raw.get("default").is_some_and(|of| !of.is_null()))
    {
        errors.push(FieldError::forbidden(format!("{path}.default"), &format!("must not be set{reason}")));
    }
    for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if raw.get(keyword).is_some_and(|value| !value.is_null()) {
            errors.push(FieldError::forbidden(
                format!("{path}.{keyword}"),
                &format!("{keyword} is not supported"),
            ));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), detail));
    }
    if raw.get("items").is_some_and(Value::is_array) {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    if place.in_meta && flag(raw, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(format!("{path}.x-kubernetes-embedded-resource"), detail));
    }
    if flag(raw, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    if raw.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(path, &false.into(), "must be true or undefined"));
    }
}

/// Appends the formats that the server does not recognize.
pub(super) fn unknown_formats(raw: &Value, found: &mut Vec<String>) {
    let format = text(raw, "format");
    let known = match text(raw, "type").as_str() {
        "" | "string" => formats::find(&format).is_some(),
        "integer" => matches!(format.as_str(), "int32" | "int64"),
        "number" => matches!(format.as_str(), "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !known {
        found.push(format);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        list(raw, keyword).for_each(|one| unknown_formats(one, found));
    }
    for keyword in ["items", "additionalProperties", "not"] {
        raw.get(keyword)
            .into_iter()
            .filter(|one| one.is_object())
            .for_each(|one| unknown_formats(one, found));
    }
    let properties = raw.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.for_each(|(_, one)| unknown_formats(one, found));
}
