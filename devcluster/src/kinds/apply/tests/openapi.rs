//! Schemas from the subset of `OpenAPI` that the fixture uses.

use std::sync::Arc;

use serde_json::Value;

use crate::kinds::{Fields, Form, List, Schema};

/// Returns the schema that an `OpenAPI` document describes.
pub(super) fn schema(document: &Value) -> Schema {
    let text = |name: &str| document[name].as_str().unwrap_or_default();
    let below = |name: &str| Arc::new(schema(&document[name]));
    let atomic = text("x-kubernetes-map-type") == "atomic";
    let preserve_unknown = document["x-kubernetes-preserve-unknown-fields"] == true;
    let form = match text("type") {
        _ if document["x-kubernetes-int-or-string"] == true => Form::IntOrString,
        "string" => Form::String,
        "integer" => Form::Integer,
        "number" => Form::Number,
        "boolean" => Form::Boolean,
        "array" => Form::List { items: below("items"), list: list(document), merge: None },
        "object" if document.get("additionalProperties").is_some() => {
            Form::Map { values: below("additionalProperties"), atomic }
        }
        "object" => {
            let properties = document["properties"].as_object().into_iter().flatten();
            let fields = properties.map(|(name, field)| (name.clone(), Arc::new(schema(field)))).collect();
            Form::Object(Arc::new(Fields { fields, preserve_unknown, atomic }))
        }
        _ => Form::Any,
    };
    Schema { form, nullable: false, default: document.get("default").cloned(), checks: None }
}

fn list(document: &Value) -> List {
    match document["x-kubernetes-list-type"].as_str() {
        Some("set") => List::Set,
        Some("map") => {
            let keys = document["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            List::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect())
        }
        _ => List::Atomic,
    }
}
