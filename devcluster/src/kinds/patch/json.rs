//! JSON Patch (RFC 6902), as lenient as the real server.
//!
//! No library is used, because libraries are stricter: the real server accepts negative indexes, and a
//! missing field counts as null for `test`, `copy` and `replace`.

use serde_json::Value;

use super::PatchError;
use crate::kinds::go;

/// The largest number of operations in a patch.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a JSON Patch.
///
/// # Errors
///
/// Returns the status that the request fails with. The object may then be partly changed.
pub fn json_patch(object: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
            go::json_type(patch)
        )));
    };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    for operation in operations {
        apply(object, operation).map_err(PatchError::Unprocessable)?;
    }
    Ok(())
}

fn apply(object: &mut Value, operation: &Value) -> Result<(), String> {
    let text = |name: &str| {
        let missing = || format!("operation failed to decode {name}: missing value");
        operation.get(name).and_then(Value::as_str).ok_or_else(missing)
    };
    let value = || operation.get("value").unwrap_or(&Value::Null);
    let op = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
    let within = |error: String| {
        if error.starts_with("doc is missing path") {
            return format!("{op} operation does not apply: {error}");
        }
        let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
        format!("error in {op} for path: '{path}': {error}")
    };
    match op {
        "add" => add(object, text("path")?, value().clone()).map_err(within),
        "remove" => remove(object, text("path")?).map(drop).map_err(within),
        "replace" => replace(object, text("path")?, value()).map_err(within),
        "move" => {
            let moved = remove(object, text("from")?).map_err(within)?;
            add(object, text("path")?, moved).map_err(within)
        }
        "copy" => {
            let copied = get(object, text("from")?).map_err(within)?.cloned().unwrap_or(Value::Null);
            add(object, text("path")?, copied).map_err(within)
        }
        "test" => {
            let path = text("path")?;
            let found = if path.is_empty() { Some(&*object) } else { get(object, path)? };
            if found.unwrap_or(&Value::Null) == value() {
                Ok(())
            } else {
                Err(format!("testing value {path} failed: test failed"))
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// Returns the container of the value at `path`, and the last step of the path.
fn container<'o>(object: &'o mut Value, path: &str) -> Result<(&'o mut Value, String), String> {
    let missing = || format!("doc is missing path: \"{path}\": missing value");
    let mut steps: Vec<_> =
        path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop().ok_or_else(missing)?;
    let mut container = object;
    for step in steps {
        container = match container {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(items) => index(&step, items.len()).ok().and_then(|index| items.get_mut(index)),
            _ => None,
        }
        .ok_or_else(missing)?;
    }
    if container.is_object() || container.is_array() { Ok((container, last)) } else { Err(missing()) }
}

/// Parses the index of an item. Negative indexes count from the end.
fn index(step: &str, len: usize) -> Result<usize, String> {
    let index: i64 = step.parse().map_err(|_| format!("value was not a proper array index: '{step}'"))?;
    let invalid = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let len = i64::try_from(len).map_err(|_| invalid())?;
    let position = if index < 0 { index + len } else { index };
    usize::try_from(position).ok().filter(|_| position < len).ok_or_else(invalid)
}

/// Returns the value at `path`; `None` for a missing field of an object.
fn get<'o>(object: &'o mut Value, path: &str) -> Result<Option<&'o Value>, String> {
    match container(object, path)? {
        (Value::Object(fields), name) => Ok(fields.get(&name)),
        (Value::Array(items), step) => Ok(items.get(index(&step, items.len())?)),
        _ => Ok(None),
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    match container(object, path)? {
        (Value::Object(fields), name) => _ = fields.insert(name, value),
        (Value::Array(items), step) if step == "-" => items.push(value),
        (Value::Array(items), step) => items.insert(index(&step, items.len() + 1)?, value),
        _ => {}
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Result<Value, String> {
    match container(object, path)? {
        (Value::Object(fields), name) => fields
            .remove(&name)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {name}: missing value")),
        (Value::Array(items), step) => Ok(items.remove(index(&step, items.len())?)),
        _ => Ok(Value::Null),
    }
}

fn replace(object: &mut Value, path: &str, value: &Value) -> Result<(), String> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        value.clone_into(object);
        return Ok(());
    }
    match container(object, path)? {
        (Value::Object(fields), name) => _ = fields.insert(name, value.clone()),
        (Value::Array(items), step) => {
            let index = index(&step, items.len())?;
            items[index] = value.clone();
        }
        _ => {}
    }
    Ok(())
}
