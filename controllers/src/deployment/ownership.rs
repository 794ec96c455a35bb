//! Whose the fields of an adopted Deployment are.
//!
//! A field goes away once none of its managers applies it any more. The one who created the Deployment never will, so a
//! field that it set would stay for good however often it is left out of the spec. What it set and we write is therefore
//! ours from the adoption on, as `kubectl apply --server-side` does with what it once wrote client-side
//! (<https://github.com/kubernetes/client-go/blob/master/util/csaupgrade/upgrade.go>).

use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;

/// The version whose field names are understood.
const API_VERSION: &str = "apps/v1";
/// The template's annotations, where users leave marks such as that of `kubectl rollout restart`.
const TEMPLATE_ANNOTATIONS: [&str; 4] = ["f:spec", "f:template", "f:metadata", "f:annotations"];

/// Returns the `managedFields` of a Deployment after its creator's fields have become ours; `None` if there is nothing to
/// move. `desired` is what will be applied.
///
/// The creator is who set the selector: nobody could change it since. What it set and `desired` leaves to others is not
/// moved, or the next apply would take it away: replicas, labels, annotations.
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
    if let Some(ours) = entries.iter_mut().find(|entry| is_ours(entry)) {
        if let Some(fields) = ours["fieldsV1"].as_object_mut() {
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

fn is_ours(entry: &Value) -> bool {
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

/// Takes out of a creator's fields what becomes ours.
fn take(fields: &mut Map<String, Value>, desired: &Value) -> Map<String, Value> {
    let mut ours = Map::new();
    if let Some(mut spec) = fields.remove("f:spec") {
        let mut left = Map::new();
        if desired["spec"].get("replicas").is_none()
            && let Some(replicas) = spec.as_object_mut().and_then(|spec| spec.remove("f:replicas"))
        {
            left.insert("f:replicas".to_owned(), replicas);
        }
        if !left.is_empty() {
            fields.insert("f:spec".to_owned(), left.into());
        }
        ours.insert("f:spec".to_owned(), spec);
        let written = desired.pointer("/spec/template/metadata/annotations");
        let theirs = split(&mut ours, &TEMPLATE_ANNOTATIONS, written);
        give_back(fields, &TEMPLATE_ANNOTATIONS, theirs);
    }
    for (map, written) in [("f:labels", "labels"), ("f:annotations", "annotations")] {
        let path = ["f:metadata", map];
        let theirs = split(fields, &path, desired["metadata"].get(written));
        let mine = replace(fields, &path, theirs);
        give_back(&mut ours, &path, mine);
    }
    ours
}

/// Takes from a map of fields what is not `written`, and returns it.
fn split(fields: &mut Map<String, Value>, path: &[&str], written: Option<&Value>) -> Map<String, Value> {
    let Some(map) = find(fields, path) else { return Map::new() };
    let is_written = |key: &str| {
        key.strip_prefix("f:").is_some_and(|key| written.is_some_and(|written| written.get(key).is_some()))
    };
    let (kept, taken) = std::mem::take(map).into_iter().partition(|(key, _)| is_written(key));
    *map = kept;
    taken
}

/// Puts another map of fields in the place of one, and returns that.
fn replace(fields: &mut Map<String, Value>, path: &[&str], by: Map<String, Value>) -> Map<String, Value> {
    find(fields, path).map(|map| std::mem::replace(map, by)).unwrap_or_default()
}

/// Adds fields below a path, which is made if it is not there. Nothing is made for nothing.
fn give_back(fields: &mut Map<String, Value>, path: &[&str], given: Map<String, Value>) {
    if given.is_empty() {
        return;
    }
    let wrapped = path.iter().rev().fold(Value::Object(given), |inner, key| json!({*key: inner}));
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
