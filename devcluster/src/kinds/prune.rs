//! Pruning: removes fields that a schema does not declare, and nulls that it does not allow.

use serde_json::Value;

use super::path::Path;
use super::schema::{Form, Schema};

/// The fields that every object has, even if its schema does not declare them.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields of an object and returns their paths, sorted. `apiVersion`, `kind` and `metadata`
/// of the object stay as they are.
pub fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_value(object, Some(schema), true, &Path::Root(""), &mut unknown);
    unknown.sort_unstable();
    unknown
}

/// Removes unknown fields of a value that is not a whole object, such as a default.
pub fn prune_part(value: &mut Value, schema: &Schema) {
    prune_value(value, Some(schema), false, &Path::Root(""), &mut Vec::new());
}

/// Removes unknown fields of metadata and returns their paths, relative to the metadata.
pub fn prune_metadata(metadata: &mut Value, schema: &Schema) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_value(metadata, Some(schema), false, &Path::Root(""), &mut unknown);
    unknown
}

fn prune_value(
    value: &mut Value,
    schema: Option<&Schema>,
    root: bool,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) {
    let form = schema.map(|schema| &schema.form);
    let checks = schema.and_then(|schema| schema.checks.as_deref());
    if matches!(form, Some(Form::Any)) {
        return;
    }
    match value {
        Value::Object(map) => {
            let keeps_meta = root || checks.is_some_and(|checks| checks.embedded);
            let untyped = checks.is_some_and(|checks| checks.additional.is_some());
            map.retain(|name, value| {
                if keeps_meta && META_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                match form {
                    Some(Form::Object(fields)) => {
                        if let Some(schema) = fields.fields.get(name) {
                            prune_value(value, Some(schema), false, &path.field(name), unknown);
                        } else if !fields.preserve_unknown {
                            unknown.push(path.field(name).name());
                            return false;
                        }
                    }
                    Some(Form::Map { values, .. }) => {
                        let schema = (!untyped).then_some(values.as_ref());
                        prune_value(value, schema, false, &path.key(name), unknown);
                    }
                    _ => {
                        if !checks.is_some_and(|checks| checks.preserve_unknown) {
                            unknown.push(path.field(name).name());
                            return false;
                        }
                    }
                }
                true
            });
        }
        Value::Array(list) => {
            let items = match form {
                Some(Form::List { items, .. }) => Some(items.as_ref()),
                _ if checks.is_some_and(|checks| checks.preserve_unknown) => return,
                _ => None,
            };
            for (index, item) in list.iter_mut().enumerate() {
                prune_value(item, items, false, &path.index(index), unknown);
            }
        }
        _ => {}
    }
}

/// Removes nulls from fields that have no default and are not nullable. Nulls in lists stay.
pub fn drop_nulls(value: &mut Value, schema: &Schema) {
    match (value, &schema.form) {
        (Value::Object(map), form @ (Form::Object(_) | Form::Map { .. })) => map.retain(|name, value| {
            let schema = match form {
                Form::Object(fields) => fields.fields.get(name),
                Form::Map { values, .. } => Some(values),
                _ => None,
            };
            let Some(schema) = schema else { return true };
            if value.is_null() {
                return schema.nullable || schema.default.is_some();
            }
            drop_nulls(value, schema);
            true
        }),
        (Value::Array(list), Form::List { items, .. }) => {
            for item in list {
                drop_nulls(item, items);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
