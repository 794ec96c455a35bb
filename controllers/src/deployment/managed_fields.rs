//! Field ownership of an adopted Deployment.
//!
//! Server-side apply removes a field once no manager of it applies it any more. The creator of an adopted
//! Deployment never applies again, so its fields would stay for good, even after their removal from the spec.
//! From the adoption on, the gate therefore owns those of the creator's fields that it writes. `kubectl apply
//! --server-side` does the same with fields that it once wrote client-side
//! (<https://github.com/kubernetes/client-go/blob/master/util/csaupgrade/upgrade.go>).

use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;

/// The only API version with field names that this file reads.
const API_VERSION: &str = "apps/v1";
/// Path of the template's annotations, to which users add keys such as that of `kubectl rollout restart`.
const TEMPLATE_ANNOTATIONS: [&str; 4] = ["f:spec", "f:template", "f:metadata", "f:annotations"];

/// Returns the `managedFields` of a Deployment after the gate has taken over fields of its creator; `None` if
/// there is no such field. `desired` is the Deployment that will be applied.
///
/// The creator is the manager of the selector, which is immutable. Replicas, labels and annotations that it
/// set and `desired` does not have stay with the creator, or the next apply would remove them.
pub fn with_creators_fields(mut entries: Vec<Value>, desired: &Value) -> Option<Vec<Value>> {
    let mut moved = Map::new();
    for entry in entries.iter_mut().filter(|entry| is_creator(entry)) {
        let Some(fields) = entry["fieldsV1"].as_object_mut() else { continue };
        unite(&mut moved, take(fields, desired));
    }
    if moved.is_empty() {
        return None;
    }
    entries.retain(|entry| entry["fieldsV1"].as_object().is_none_or(|fields| !fields.is_empty()));
    if let Some(gate) = entries.iter_mut().find(|entry| is_of_gate(entry)) {
        if let Some(fields) = gate["fieldsV1"].as_object_mut() {
            unite(fields, moved);
        }
    } else {
        entries.push(json!({
            "manager": FIELD_MANAGER,
            "operation": "Apply",
            "apiVersion": API_VERSION,
            "fieldsType": "FieldsV1",
            "fieldsV1": moved,
        }));
    }
    Some(entries)
}

fn is_of_gate(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && entry["apiVersion"] == API_VERSION
        && entry.get("subresource").is_none()
}

fn is_creator(entry: &Value) -> bool {
    entry["apiVersion"] == API_VERSION
        && entry.get("subresource").is_none()
        && entry["manager"] != FIELD_MANAGER
        && entry.pointer("/fieldsV1/f:spec/f:selector").is_some()
}

/// Removes from the creator's fields those that the gate takes over, and returns them.
fn take(fields: &mut Map<String, Value>, desired: &Value) -> Map<String, Value> {
    let mut taken = Map::new();
    if let Some(mut spec) = fields.remove("f:spec") {
        if desired["spec"].get("replicas").is_none()
            && let Some(replicas) = spec.as_object_mut().and_then(|spec| spec.remove("f:replicas"))
        {
            fields.insert("f:spec".to_owned(), json!({"f:replicas": replicas}));
        }
        taken.insert("f:spec".to_owned(), spec);
        let written = desired.pointer("/spec/template/metadata/annotations");
        let others = split(&mut taken, &TEMPLATE_ANNOTATIONS, written);
        add_below(fields, &TEMPLATE_ANNOTATIONS, others);
    }
    for (map, written) in [("f:labels", "labels"), ("f:annotations", "annotations")] {
        let path = ["f:metadata", map];
        let others = split(fields, &path, desired["metadata"].get(written));
        let written = replace(fields, &path, others);
        add_below(&mut taken, &path, written);
    }
    taken
}

/// Removes from the fields at `path` the keys that are not in `written`, and returns them.
fn split(fields: &mut Map<String, Value>, path: &[&str], written: Option<&Value>) -> Map<String, Value> {
    let Some(map) = find(fields, path) else { return Map::new() };
    let is_written = |key: &str| {
        key.strip_prefix("f:").is_some_and(|key| written.is_some_and(|written| written.get(key).is_some()))
    };
    let (kept, taken) = std::mem::take(map).into_iter().partition(|(key, _)| is_written(key));
    *map = kept;
    taken
}

/// Replaces the fields at `path`, and returns the earlier ones.
fn replace(fields: &mut Map<String, Value>, path: &[&str], by: Map<String, Value>) -> Map<String, Value> {
    find(fields, path).map(|map| std::mem::replace(map, by)).unwrap_or_default()
}

/// Adds fields at `path`, which is created if it is missing, unless there are none to add.
fn add_below(fields: &mut Map<String, Value>, path: &[&str], added: Map<String, Value>) {
    if added.is_empty() {
        return;
    }
    let wrapped = path.iter().rev().fold(Value::Object(added), |inner, key| json!({*key: inner}));
    if let Value::Object(wrapped) = wrapped {
        unite(fields, wrapped);
    }
}

fn find<'a>(fields: &'a mut Map<String, Value>, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let (first, rest) = path.split_first()?;
    let mut found = fields.get_mut(*first)?;
    for key in rest {
        found = found.get_mut(*key)?;
    }
    found.as_object_mut()
}

fn unite(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(value)) => unite(into, value),
            (Some(_), _) => {}
            (None, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
