//! The effect of a write on the stored object.

use serde_json::{Value, json};

use super::request::{ApiRequest, Refusal, not_found, unsupported};
use super::write::Verb;
use crate::key::KindId;

/// Fields of the metadata that only the server writes: a request never changes them.
const SERVER_FIELDS: [&str; 5] =
    ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"];
/// The time that the API server of a unit test writes into objects, such as `creationTimestamp`.
const WRITE_TIME: &str = "2000-01-01T00:00:00Z";

/// Fails for a write that a server would refuse because of the stored object `old`.
pub(super) fn check(
    request: &ApiRequest,
    old: Option<&Value>,
    served: bool,
    status_only: bool,
) -> Result<(), Refusal> {
    let conflict = |reason, message: &str| Err(Refusal(409, reason, message.to_owned()));
    let guards = if request.verb == Some(Verb::Delete) { "/preconditions" } else { "/metadata" };
    let guard =
        |field: &str| request.body.pointer(&format!("{guards}/{field}")).filter(|value| !value.is_null());
    match (request.verb, old) {
        (Some(Verb::Create), Some(_)) => return conflict("AlreadyExists", "an object of this name exists"),
        (Some(Verb::Create), None) => {}
        (_, Some(old)) => {
            for field in ["uid", "resourceVersion"] {
                if guard(field).is_some_and(|guard| *guard != old["metadata"][field]) {
                    return conflict(
                        "Conflict",
                        &format!("the object's {field} is {}", old["metadata"][field]),
                    );
                }
            }
        }
        (Some(Verb::Apply), None) if served && !status_only && guard("uid").is_some() => {
            return conflict("Conflict", "uid mismatch: no existing object was found");
        }
        (Some(Verb::Apply), None) if served && !status_only => {}
        (_, None) if served => return Err(not_found(request)),
        (_, None) => {}
    }
    Ok(())
}

/// Returns the object as changed by the write request; fails for requests that are not supported.
pub(super) fn changed(
    verb: Verb,
    request: &ApiRequest,
    old: Option<&Value>,
    status_only: bool,
) -> Result<Value, Refusal> {
    let mut new = old.cloned().unwrap_or_else(|| json!({}));
    match verb {
        Verb::Patch => return Err(unsupported(request, "a patch that is neither an apply nor a merge")),
        Verb::Delete => {
            let metadata = &mut new["metadata"];
            if metadata["deletionTimestamp"].is_null() {
                metadata["deletionTimestamp"] = json!(WRITE_TIME);
                metadata["deletionGracePeriodSeconds"] = json!(0);
            }
        }
        Verb::Create | Verb::Replace if !status_only => new = request.body.clone(),
        Verb::Create | Verb::Replace => set(&mut new, "status", request.body.get("status")),
        Verb::Apply | Verb::Merge if !status_only => merge(&mut new, &request.body),
        Verb::Apply | Verb::Merge => {
            let only =
                request.body.get("status").map_or_else(|| json!({}), |status| json!({"status": status}));
            merge(&mut new, &only);
        }
    }
    Ok(new)
}

/// Restores the fields of an object that a write cannot change; in a new object they are removed.
pub(super) fn keep(new: &mut Value, old: Option<&Value>, status_only: bool) {
    if !status_only {
        set(new, "status", old.and_then(|old| old.get("status")));
    }
    let metadata = &mut new["metadata"];
    for field in SERVER_FIELDS {
        set(metadata, field, old.and_then(|old| old["metadata"].get(field)));
    }
    if old.is_none() {
        metadata["creationTimestamp"] = json!(WRITE_TIME);
    }
}

fn set(object: &mut Value, field: &str, value: Option<&Value>) {
    match (value, object.as_object_mut()) {
        (Some(value), _) => object[field] = value.clone(),
        (None, Some(fields)) => drop(fields.remove(field)),
        (None, None) => {}
    }
}

/// Sets `apiVersion` and `kind` of a JSON object to this kind and returns the object.
pub(super) fn of_kind(mut object: Value, kind: &KindId) -> Value {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind());
    object
}

/// Merges a JSON merge patch into `target` (RFC 7386): mappings are merged, `null` removes a field, all else
/// replaces it.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(target) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

pub(super) fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}
