//! Field ownership of an adopted Deployment.
//!
//! Server-side apply removes a field once no manager of it applies it any more. The creator of an adopted
//! Deployment never applies again, so its fields would stay for good, even after their removal from the spec.
//! From the adoption on, the gate therefore owns those of the creator's fields that it writes. `kubectl apply
//! --server-side` does the same with fields that it once wrote client-side
//! (<https://github.com/kubernetes/client-go/blob/master/util/csaupgrade/upgrade.go>).

use serde_json::{Map, Value, json};

use super::FIELD_MANAGER;

/// The only API version of `managedFields` entries with field names that this file reads.
const API_VERSION: &str = "apps/v1";
/// Path in `fieldsV1` of the annotations of the Pod template. Users add keys to them, such as that of
/// `kubectl rollout restart`.
const TEMPLATE_ANNOTATIONS: &str = "/f:spec/f:template/f:metadata/f:annotations";

/// Returns the `managedFields` of a Deployment after the gate has taken over fields of its creator; `None` if
/// there is no such field. `desired` is the Deployment that will be applied.
///
/// The creator is the manager of the selector, which is immutable. Replicas, labels and annotations that it
/// set and `desired` does not have stay with the creator, or the next apply would remove them.
pub fn with_creators_fields(mut entries: Vec<Value>, desired: &Value) -> Option<Vec<Value>> {
    let mut moved = json!({});
    for entry in entries.iter_mut().filter(|entry| is_creator(entry)) {
        unite(&mut moved, take(&mut entry["fieldsV1"], desired));
    }
    if moved == json!({}) {
        return None;
    }
    entries.retain(|entry| entry["fieldsV1"] != json!({}));
    if let Some(gate) = entries.iter_mut().find(|entry| is_of_gate(entry)) {
        unite(&mut gate["fieldsV1"], moved);
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

/// Removes from the creator's managed fields those that the gate takes over, and returns them.
fn take(fields: &mut Value, desired: &Value) -> Value {
    let mut taken = json!({});
    if let Some(mut spec) = fields.as_object_mut().and_then(|fields| fields.remove("f:spec")) {
        if desired["spec"].get("replicas").is_none()
            && let Some(replicas) = spec.as_object_mut().and_then(|spec| spec.remove("f:replicas"))
        {
            fields["f:spec"] = json!({"f:replicas": replicas});
        }
        taken["f:spec"] = spec;
        let written = desired.pointer("/spec/template/metadata/annotations");
        move_keys(&mut taken, fields, TEMPLATE_ANNOTATIONS, |key| !has(written, key));
    }
    for (path, written) in [("/f:metadata/f:labels", "labels"), ("/f:metadata/f:annotations", "annotations")]
    {
        let written = desired["metadata"].get(written);
        move_keys(fields, &mut taken, path, |key| has(written, key));
    }
    taken
}

/// Returns whether the gate writes the label or annotation of a managed field such as `f:app`; `written` has
/// all keys that it writes.
fn has(written: Option<&Value>, field: &str) -> bool {
    field.strip_prefix("f:").is_some_and(|key| written.is_some_and(|written| written.get(key).is_some()))
}

/// Moves the managed fields at `path` that `is_moved` accepts from `from` to `to`, where the path is created
/// if it is missing, unless there are none to move.
fn move_keys(from: &mut Value, to: &mut Value, path: &str, is_moved: impl Fn(&str) -> bool) {
    let Some(fields) = from.pointer_mut(path).and_then(Value::as_object_mut) else { return };
    let (moved, kept): (Map<_, _>, _) =
        std::mem::take(fields).into_iter().partition(|(key, _)| is_moved(key));
    *fields = kept;
    if !moved.is_empty() {
        let to = path.split('/').skip(1).fold(to, |to, key| &mut to[key]);
        unite(to, moved.into());
    }
}

/// Adds the managed fields of `from` to `into`, also at every level below.
fn unite(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                unite(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) if into.is_null() => *into = from,
        _ => {}
    }
}

#[cfg(test)]
mod tests;
