//! Strategic merge patch: a merge patch that merges lists by a key, with directives.
//!
//! Directives are fields of the patch: `$patch: delete` and `$patch: replace` in an object, `$retainKeys`
//! with the only fields to keep, `$deleteFromPrimitiveList/<list>` with scalars to remove, and
//! `$setElementOrder/<list>` with the order of the result.

mod list;

use serde_json::{Map, Value};

use super::PatchError;
use super::merge::discard_nulls;
use crate::kinds::{Form, Schema, go};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

type Fields = Map<String, Value>;

/// Applies a strategic merge patch. Only built-in kinds have the merge keys for it.
///
/// # Errors
///
/// Returns the status that the request fails with. The object may then be partly changed.
pub fn strategic_merge_patch(schema: &Schema, object: &mut Value, patch: Value) -> Result<(), PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => {
            return Err(PatchError::BadRequest(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                go::json_type(&other)
            )));
        }
    };
    match object {
        Value::Object(fields) => merge_fields(Some(schema), fields, patch),
        _ => Err(PatchError::BadRequest("invalid JSON document".to_owned())),
    }
}

/// Merges the fields of a patch into an object. Without a schema, no list can be merged.
fn merge_fields(schema: Option<&Schema>, object: &mut Fields, mut patch: Fields) -> Result<(), PatchError> {
    match patch.remove(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            *object = patch;
            return Ok(());
        }
        Some(Value::String(directive)) if directive == "delete" => {
            object.clear();
            return Ok(());
        }
        Some(other) => return Err(unknown_directive(&other, &patch)),
    }
    retain_keys(object, &mut patch)?;
    let orders: Vec<_> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in orders {
        let order = patch.remove(&directive).unwrap_or_default();
        list::merge_in_order(schema, object, &mut patch, &directive, order)?;
    }
    for (name, value) in patch {
        merge_field(schema, object, name, value)?;
    }
    Ok(())
}

/// Merges one field of a patch.
fn merge_field(
    schema: Option<&Schema>,
    object: &mut Fields,
    mut name: String,
    mut patch: Value,
) -> Result<(), PatchError> {
    let mut deletes = false;
    if name.starts_with(DELETE_FROM_LIST) {
        deletes = true;
        name = list_name(&name, DELETE_FROM_LIST, "primitive list")?;
    }
    if patch.is_null() {
        object.remove(&name);
        return Ok(());
    }
    match (object.get_mut(&name), &mut patch) {
        (Some(Value::Object(fields)), Value::Object(_)) => {
            let below = field(schema, &name)?;
            if let Value::Object(patch) = patch {
                merge_fields(Some(below), fields, patch)?;
            }
        }
        (Some(Value::Array(items)), Value::Array(patch)) => {
            let of = list::Of::field(schema, &name)?;
            let patch = std::mem::take(patch);
            if of.merge.is_some() || deletes {
                *items = list::merge(of, std::mem::take(items), patch, deletes)?.items;
            } else {
                *items = patch;
            }
        }
        (present, _) if !deletes => {
            // If the object has no value of the same type, the patch's value loses its nulls.
            let same_type =
                present.is_some_and(|value| std::mem::discriminant(value) == std::mem::discriminant(&patch));
            if !same_type {
                discard_nulls(&mut patch);
            }
            match without_directives(patch) {
                Some(value) => _ = object.insert(name, value),
                None => _ = object.remove(&name),
            }
        }
        _ => {}
    }
    Ok(())
}

/// Removes the fields of the object that `$retainKeys` does not list.
fn retain_keys(object: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad_format = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let Value::Array(keys) = keys else { return Err(bad_format()) };
    let retained = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let directive = |name: &str| name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !directive(name) && !retained(name)) {
        return Err(bad_format());
    }
    object.retain(|name, _| retained(name));
    Ok(())
}

/// Returns the value without the objects that contain a directive; `None` if the value itself is such an
/// object.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?))).collect(),
        )),
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        other => Some(other),
    }
}

/// Returns the list name in a directive such as `$setElementOrder/ports`.
fn list_name(directive: &str, prefix: &str, what: &str) -> Result<String, PatchError> {
    match directive.split_once('/') {
        Some((before, name)) if before == prefix => Ok(name.to_owned()),
        _ => Err(PatchError::BadRequest(format!("invalid patch format of {what}"))),
    }
}

fn field<'s>(schema: Option<&'s Schema>, name: &str) -> Result<&'s Schema, PatchError> {
    let unknown = || PatchError::Internal(format!("unable to find api field for the json field {name:?}"));
    match schema.map(|schema| &schema.form) {
        Some(Form::Object(fields)) => {
            let found = fields.fields.get(name).or_else(|| {
                fields
                    .fields
                    .iter()
                    .find(|(field, _)| field.eq_ignore_ascii_case(name))
                    .map(|(_, schema)| schema)
            });
            found.map(|schema| &**schema).ok_or_else(unknown)
        }
        Some(Form::Map { .. }) => Err(PatchError::Internal(
            "merging an object in json but data type is not struct, instead is: map".to_owned(),
        )),
        _ => Err(unknown()),
    }
}

fn unknown_directive(directive: &Value, patch: &Fields) -> PatchError {
    let mut patch = patch.clone();
    patch.insert(DIRECTIVE.to_owned(), directive.clone());
    let text = go::plain(directive);
    PatchError::Internal(format!("unknown patch type: {text} in map: {}", go_map(&patch)))
}

/// Returns an object in the form of Go's `%v`.
fn go_map(fields: &Fields) -> String {
    go::plain(&Value::Object(fields.clone()))
}
