//! Converts the `openAPIV3Schema` of a CustomResourceDefinition to a [`Schema`].

use std::sync::Arc;

use serde_json::{Map, Value};

use super::formats;
use super::patterns;
use super::rules::Rule;
use crate::kinds::checks::{Checks, Format, JsonType, Pattern};
use crate::kinds::number::float_to_int;
use crate::kinds::schema::{Fields, Form, List, Schema};

/// Converts an `openAPIV3Schema`.
///
/// The CustomResourceDefinition must be valid. Keywords with a value of the wrong type are ignored.
pub fn schema(raw: &Value) -> Schema {
    let mut checks = checks(raw);
    let form = form(raw, &checks);
    checks.rules_within = !checks.rules.is_empty() || child_schemas(&form).any(rules_within);
    Schema {
        form,
        nullable: flag(raw, "nullable"),
        default: raw.get("default").filter(|default| !default.is_null()).cloned(),
        checks: Some(Box::new(checks)),
    }
}

/// Returns whether the value or a value below it has CEL rules.
pub(super) fn rules_within(schema: &Schema) -> bool {
    schema.checks.as_ref().is_some_and(|checks| checks.rules_within)
}

fn child_schemas(form: &Form) -> Box<dyn Iterator<Item = &Schema> + '_> {
    match form {
        Form::List { items: child, .. } | Form::Map { values: child, .. } => {
            Box::new(std::iter::once(child.as_ref()))
        }
        Form::Object(fields) => Box::new(fields.fields.values().map(AsRef::as_ref)),
        _ => Box::new(std::iter::empty()),
    }
}

fn form(raw: &Value, checks: &Checks) -> Form {
    if flag(raw, "x-kubernetes-int-or-string") {
        return Form::IntOrString;
    }
    let kind = raw.get("type").and_then(Value::as_str).unwrap_or_default();
    let properties = raw.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty());
    match (JsonType::named(kind), properties, raw.get("items")) {
        (Some(JsonType::String), ..) => Form::String,
        (Some(JsonType::Integer), ..) => Form::Integer,
        (Some(JsonType::Number), ..) => Form::Number,
        (Some(JsonType::Boolean), ..) => Form::Boolean,
        (Some(JsonType::Array), _, items) => list(raw, items),
        (None, None, Some(items)) => list(raw, Some(items)),
        (Some(JsonType::Object) | None, Some(_), _) => object(raw, checks, properties),
        (Some(JsonType::Object), None, _) => match raw.get("additionalProperties") {
            Some(Value::Bool(_)) => Form::Map { values: Arc::new(any()), atomic: atomic(raw) },
            Some(values) => Form::Map { values: Arc::new(schema(values)), atomic: atomic(raw) },
            None => object(raw, checks, properties),
        },
        (None, None, None) => Form::Any,
    }
}

fn list(raw: &Value, items: Option<&Value>) -> Form {
    Form::List {
        items: Arc::new(items.map_or_else(any, schema)),
        list: match raw.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => List::Set,
            Some("map") => List::Map(strings(raw, "x-kubernetes-list-map-keys")),
            _ => List::Atomic,
        },
        merge: None,
    }
}

fn object(raw: &Value, checks: &Checks, properties: Option<&Map<String, Value>>) -> Form {
    let fields = properties.into_iter().flatten();
    Form::Object(Arc::new(Fields {
        fields: fields.map(|(name, raw)| (name.clone(), Arc::new(schema(raw)))).collect(),
        preserve_unknown: checks.preserve_unknown || checks.additional == Some(true),
        atomic: atomic(raw),
    }))
}

fn atomic(raw: &Value) -> bool {
    raw.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic")
}

fn any() -> Schema {
    Schema { form: Form::Any, nullable: true, default: None, checks: None }
}

fn checks(raw: &Value) -> Checks {
    let types = if flag(raw, "x-kubernetes-int-or-string") {
        vec![JsonType::Integer, JsonType::String]
    } else {
        raw.get("type").and_then(Value::as_str).and_then(JsonType::named).into_iter().collect()
    };
    let nested = |keyword: &str| -> Vec<Schema> {
        raw.get(keyword).and_then(Value::as_array).into_iter().flatten().map(schema).collect()
    };
    let float = |keyword: &str| raw.get(keyword).and_then(Value::as_f64);
    let count = |keyword: &str| float(keyword).map(float_to_int);
    let rules = raw.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
    Checks {
        format: format(raw, &types),
        types,
        values: raw.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        minimum: float("minimum"),
        exclusive_minimum: flag(raw, "exclusiveMinimum"),
        maximum: float("maximum"),
        exclusive_maximum: flag(raw, "exclusiveMaximum"),
        multiple_of: float("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        pattern: raw.get("pattern").and_then(Value::as_str).and_then(|source| {
            let regex = patterns::compile(source).ok()?;
            Some(Pattern { source: source.to_owned(), regex })
        }),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        required: strings(raw, "required"),
        additional: raw.get("additionalProperties").and_then(Value::as_bool),
        preserve_unknown: flag(raw, "x-kubernetes-preserve-unknown-fields"),
        embedded: flag(raw, "x-kubernetes-embedded-resource"),
        all_of: nested("allOf"),
        any_of: nested("anyOf"),
        one_of: nested("oneOf"),
        not: raw.get("not").map(|not| Box::new(schema(not))),
        rules: rules.map(|rule| Arc::new(Rule::new(rule, raw))).collect(),
        rules_within: false,
    }
}

/// Returns the format if the server checks it for this type. Other formats are only documentation.
fn format(raw: &Value, types: &[JsonType]) -> Option<Format> {
    let name = raw.get("format").and_then(Value::as_str)?;
    let matches = match types {
        [] | [JsonType::String] | [_, _] => Some(formats::find(name)?),
        [JsonType::Integer] if matches!(name, "int32" | "int64") => None,
        [JsonType::Number] if matches!(name, "float" | "double") => None,
        _ => return None,
    };
    Some(Format { name: name.to_owned(), matches })
}

/// Returns the value of a boolean keyword; false if it is missing.
pub(super) fn flag(raw: &Value, keyword: &str) -> bool {
    raw.get(keyword).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the value of a keyword that is a list of strings; empty if it is missing.
pub(super) fn strings(raw: &Value, keyword: &str) -> Vec<String> {
    let items = raw.get(keyword).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
