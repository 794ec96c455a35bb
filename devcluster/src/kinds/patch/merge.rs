//! Merge patch (RFC 7396).

use serde_json::Value;

use super::PatchError;
use crate::kinds::go;

/// Applies a merge patch.
///
/// # Errors
///
/// Returns the status that the request fails with if the patch is not an object.
pub fn merge_patch(object: &mut Value, patch: Value) -> Result<(), PatchError> {
    match patch {
        Value::Object(_) => merge(object, patch),
        Value::Null => return Err(PatchError::BadRequest("Invalid JSON Patch".to_owned())),
        other => {
            return Err(PatchError::BadRequest(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type \
                 map[string]interface {{}}",
                go::json_type(&other)
            )));
        }
    }
    Ok(())
}

fn merge(value: &mut Value, mut patch: Value) {
    match (&mut *value, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (name, patch) in patch {
                match fields.get_mut(&name) {
                    _ if patch.is_null() => _ = fields.remove(&name),
                    Some(value) => merge(value, patch),
                    None => {
                        let mut patch = patch;
                        discard_nulls(&mut patch);
                        fields.insert(name, patch);
                    }
                }
            }
            return;
        }
        (_, other) => patch = other,
    }
    discard_nulls(&mut patch);
    *value = patch;
}

/// Removes the fields with null from all objects, including objects in lists.
pub(super) fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}
