//! The checks of an `openAPIV3Schema`, node by node.

use serde_json::Value;

use super::defaults;
use super::structural;
use crate::kinds::custom::rules::{self, Declared};
use crate::kinds::custom::structural::{flag, strings};
use crate::kinds::custom::{field_path, formats, list, text};
use crate::kinds::errors::{FieldError, Reason};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Keywords that the root may have beside a status subresource, with the names that the text has for them.
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

/// Checks the schema of a version.
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
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
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

/// The reasons that a rule may give.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Where a node stands.
#[derive(Clone, Default)]
struct Place {
    root: bool,
    /// Why defaults are forbidden.
    no_defaults: Option<String>,
    /// Whether the node is part of `metadata` or another field that every object has.
    in_meta: bool,
    /// The list above whose items have no old values.
    uncorrelated: Option<String>,
    /// Whether rules are compiled.
    compiles: bool,
}

/// The errors of a node and those below it. Rules are compiled only where the schema has none.
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
    check_lists(raw, path, &mut found.schema);
    for (index, rule) in list(raw, "x-kubernetes-validations").enumerate() {
        check_rule(rule, raw, &format!("{path}.x-kubernetes-validations[{index}]"), &mut found.schema);
    }
    if let Some(declared) = declared.filter(|_| place.compiles && found.schema.is_empty()) {
        for (index, rule) in list(raw, "x-kubernetes-validations").enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{index}]");
            compile_rule(rule, declared, place, &path, &mut found.rules);
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

/// Adds an error where a keyword needs another type.
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

fn check_lists(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
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
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                              property";
                errors.push(FieldError::required(format!("{path}.default"), detail));
            }
            if flag(property, "nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
            }
        }
    }
}

/// Items of a set are replaced as a whole.
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

fn check_rule(rule: &Value, raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (of, message) = (text(rule, "rule"), text(rule, "message"));
    let broken = |text: &str| text.contains(['\n', '\r']);
    if of.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(
            format!("{path}.message"),
            &message.into(),
            "must be non-empty if specified",
        ));
    } else if broken(message.trim()) {
        errors.push(FieldError::invalid(
            format!("{path}.message"),
            &message.into(),
            "must not contain line breaks",
        ));
    } else if broken(of.trim()) && message.trim().is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{path}.message"), detail));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{path}.messageExpression"), detail));
    }
    if let Some(reason) =
        rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason))
    {
        errors.push(FieldError::unsupported(format!("{path}.reason"), &reason.into(), &REASONS));
    }
    let field = text(rule, "fieldPath");
    if field.is_empty() {
        return;
    }
    let path = format!("{path}.fieldPath");
    let value = Value::from(field.as_str());
    if field.trim().is_empty() {
        errors.push(FieldError::invalid(&path, &value, "must be non-empty if specified"));
    }
    if broken(&field) {
        errors.push(FieldError::invalid(&path, &value, "must not contain line breaks"));
    }
    if field_path::resolve(&field, raw, true).is_err() {
        errors.push(FieldError::invalid(path, &value, "must be a valid path"));
    }
}

fn compile_rule(rule: &Value, declared: &Declared, place: &Place, path: &str, errors: &mut Vec<FieldError>) {
    let optional = flag(rule, "optionalOldSelf");
    let mut push = |field: &str, detail: &str| {
        let message = format!("Invalid value: {}: {detail}", shown_rule(rule));
        errors.push(FieldError { path: format!("{path}.{field}"), reason: Reason::Invalid, message });
    };
    let uses_old_self = match rules::compile(&text(rule, "rule"), declared, optional, "bool") {
        Err(detail) => {
            push("rule", &detail);
            false
        }
        Ok(uses_old_self) => {
            let expression = text(rule, "messageExpression");
            if !expression.is_empty()
                && let Err(detail) = rules::compile(&expression, declared, optional, "string")
            {
                push("messageExpression", &detail);
            }
            uses_old_self
        }
    };
    match (&place.uncorrelated, rule.get("optionalOldSelf")) {
        (Some(list), _) if uses_old_self => {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            errors.push(FieldError::invalid(format!("{path}.rule"), &text(rule, "rule").into(), &detail));
        }
        (_, Some(value)) if !uses_old_self && !value.is_null() => {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), value, detail));
        }
        _ => {}
    }
}

/// A rule as the server's texts show it.
fn shown_rule(rule: &Value) -> String {
    let string = |field: &str| Value::from(text(rule, field)).to_string();
    let any = |field: &str| rule.get(field).unwrap_or(&Value::Null).to_string();
    let shown = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        string("rule"),
        string("message"),
        string("messageExpression"),
        any("reason"),
        string("fieldPath"),
        any("optionalOldSelf"),
    );
    shown.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// Adds the formats that the server does not know.
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
