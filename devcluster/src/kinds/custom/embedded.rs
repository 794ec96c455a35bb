//! Embedded objects: the checks of their `apiVersion`, `kind` and `metadata`.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::kinds::builtin;
use crate::kinds::errors::FieldError;
use crate::kinds::metadata;
use crate::kinds::names::{self, NameRule};
use crate::kinds::path::Path;
use crate::kinds::schema::{Form, Schema};

/// Checks all embedded objects in a value.
pub(super) fn check(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if schema.checks.as_ref().is_some_and(|checks| checks.embedded) && value.is_object() {
        check_object(value, path, errors);
    }
    visit(value, schema, path, &mut |value, schema, path| {
        check(value, schema, path, errors);
        Ok::<(), FieldError>(())
    })
    .unwrap_or_default();
}

/// Removes unknown fields from the metadata of embedded objects, and appends their paths to `unknown`.
///
/// # Errors
///
/// Returns the error of the first field with a wrong type.
pub(super) fn coerce(
    value: &mut Value,
    schema: &Schema,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    let embedded = schema.checks.as_ref().is_some_and(|checks| checks.embedded);
    if let Value::Object(map) = &mut *value
        && embedded
    {
        for name in ["apiVersion", "kind"] {
            if let Some(value) = map.get(name).filter(|value| !value.is_string()) {
                return Err(FieldError::invalid(path.field(name).text(), value, "must be a string"));
            }
        }
        if let Some(metadata) = map.get_mut("metadata") {
            coerce_metadata(metadata, &path.field("metadata"), unknown)?;
        }
    }
    match (value, &schema.form) {
        (Value::Object(map), Form::Object(fields)) => {
            for (name, value) in map {
                if let Some(schema) = fields.fields.get(name) {
                    coerce(value, schema, &path.field(name), unknown)?;
                }
            }
        }
        (Value::Object(map), Form::Map { values, .. }) => {
            for (key, value) in map {
                coerce(value, values, &path.key(key), unknown)?;
            }
        }
        (Value::Array(list), Form::List { items, .. }) => {
            for (index, item) in list.iter_mut().enumerate() {
                coerce(item, items, &path.index(index), unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Removes unknown fields and nulls from metadata, and appends the paths of unknown fields to `unknown`.
///
/// # Errors
///
/// Returns the error of the first field with a wrong type.
pub(super) fn coerce_metadata(
    metadata: &mut Value,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    let Some(schema) = metadata_schema() else { return Ok(()) };
    if let Some(detail) = wrong_type(metadata, schema, "") {
        return Err(FieldError::invalid(path.text(), metadata, &detail));
    }
    for name in ["labels", "annotations"] {
        // Go decodes the null as an empty text.
        let entries = metadata.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten();
        entries.filter(|(_, value)| value.is_null()).for_each(|(_, value)| *value = "".into());
    }
    let prefix = path.name();
    let removed = crate::kinds::prune::prune_metadata(metadata, schema);
    unknown.extend(
        removed.into_iter().map(|name| if prefix.is_empty() { name } else { format!("{prefix}.{name}") }),
    );
    if let Value::Object(map) = metadata {
        // Go leaves empty fields out.
        map.retain(|_, value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        });
    }
    Ok(())
}

/// Returns the schema of `metadata`, which all kinds share.
pub(super) fn metadata_schema() -> Option<&'static Schema> {
    static METADATA: LazyLock<Option<Arc<Schema>>> = LazyLock::new(|| {
        let Form::Object(fields) = &builtin::find("", "v1", "ConfigMap")?.schema.get().form else {
            return None;
        };
        fields.fields.get("metadata").cloned()
    });
    METADATA.as_deref()
}

/// Returns the message of Go's JSON decoder for the first value of a wrong type; `None` if there is none.
fn wrong_type(value: &Value, schema: &Schema, name: &str) -> Option<String> {
    let error = |expected: &str| {
        let found = match value {
            Value::Null => return None,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let target = if name.is_empty() {
            "Go value".to_owned()
        } else {
            format!("Go struct field ObjectMeta.{}", name.trim_start_matches('.'))
        };
        Some(format!("json: cannot unmarshal {found} into {target} of type {expected}"))
    };
    match (&schema.form, value) {
        (Form::Object(fields), Value::Object(map)) => map.iter().find_map(|(field, value)| {
            wrong_type(value, fields.fields.get(field)?, &format!("{name}.{field}"))
        }),
        (Form::Object(_), _) => {
            error(if name.is_empty() { "v1.ObjectMeta" } else { "map[string]interface {}" })
        }
        (Form::Map { values, .. }, Value::Object(map)) => {
            map.values().find_map(|value| wrong_type(value, values, name))
        }
        (Form::Map { .. }, _) => error("map[string]string"),
        (Form::List { items, .. }, Value::Array(list)) => {
            list.iter().find_map(|item| wrong_type(item, items, name))
        }
        (Form::List { .. }, _) => error(match name {
            ".finalizers" => "[]string",
            ".ownerReferences" => "[]v1.OwnerReference",
            _ => "[]v1.ManagedFieldsEntry",
        }),
        (Form::String, Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            error("string")
        }
        (Form::Integer, value) if value.as_i64().is_none() => error("int64"),
        (Form::Boolean, value) if !value.is_boolean() => error("bool"),
        _ => None,
    }
}

fn visit<'v, E>(
    value: &'v Value,
    schema: &Schema,
    path: &Path<'_>,
    each: &mut dyn FnMut(&'v Value, &Schema, &Path<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match (value, &schema.form) {
        (Value::Object(map), Form::Object(fields)) => {
            for (name, value) in map.iter().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(schema) = fields.fields.get(name) {
                    each(value, schema, &path.field(name))?;
                }
            }
        }
        (Value::Object(map), Form::Map { values, .. }) => {
            for (key, value) in map {
                each(value, values, &path.key(key))?;
            }
        }
        (Value::Array(list), Form::List { items, .. }) => {
            for (index, item) in list.iter().enumerate() {
                each(item, items, &path.index(index))?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn check_object(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let text = |name: &'static str, errors: &mut Vec<FieldError>| match value.get(name) {
        None => {
            errors.push(FieldError::required(path.field(name).text(), ""));
            None
        }
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(FieldError::invalid(path.field(name).text(), &"".into(), "must not be empty"));
            None
        }
        Some(Value::String(text)) => Some(text),
        Some(other) => {
            errors.push(FieldError::invalid(path.field(name).text(), other, "must be a string"));
            None
        }
    };
    if let Some(api_version) = text("apiVersion", errors)
        && api_version.matches('/').count() > 1
    {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        errors.push(FieldError::invalid(
            path.field("apiVersion").text(),
            &api_version.as_str().into(),
            &detail,
        ));
    }
    if let Some(kind) = text("kind", errors) {
        let found = names::dns1035_label(&kind.to_lowercase());
        if !found.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", found.join(","));
            errors.push(FieldError::invalid(path.field("kind").text(), &kind.as_str().into(), &detail));
        }
    }
    if let Some(metadata) = value.get("metadata") {
        let path = path.field("metadata");
        if let Some(detail) = metadata_schema().and_then(|schema| wrong_type(metadata, schema, "")) {
            errors.push(FieldError::invalid(path.text(), metadata, &detail));
            return;
        }
        let mut found = Vec::new();
        let namespaced =
            metadata.get("namespace").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        metadata::check(metadata, namespaced, NameRule::PathSegment, &path, &mut found);
        let name = path.field("name").text();
        let unnamed = metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty();
        errors.extend(found.into_iter().filter(|error| !(unnamed && error.path == name)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{check, coerce};
    use crate::kinds::custom::schema;
    use crate::kinds::path::Path;

    #[test]
    fn embedded_objects_need_valid_type_and_metadata() {
        let schema =
            schema(&json!({"type": "object", "properties": {"templates": {"type": "array", "items": {
                "type": "object",
                "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            }}}}));
        let object = json!({"templates": [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}},
            {"kind": "a b", "metadata": {"name": "a/b"}},
            {"apiVersion": "a/b/c", "kind": ""},
        ]});
        let mut errors = Vec::new();
        check(&object, &schema, &Path::Root(""), &mut errors);
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 5, "{texts:#?}");
        assert_eq!(texts[0], "templates[1].apiVersion: Required value");
        assert!(texts[1].starts_with(
            "templates[1].kind: Invalid value: \"a b\": may have mixed case, but should otherwise match: a \
             DNS-1035"
        ));
        assert_eq!(texts[2], "templates[1].metadata.name: Invalid value: \"a/b\": may not contain '/'");
        assert_eq!(
            texts[3],
            "templates[2].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"
        );
        assert_eq!(texts[4], "templates[2].kind: Invalid value: \"\": must not be empty");
    }

    #[test]
    fn metadata_of_embedded_objects_is_pruned() {
        let schema = schema(&json!({"type": "object", "properties": {"template": {
            "type": "object",
            "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        }}}));
        let mut object =
            json!({"template": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "bogus": 1}}});
        let mut unknown = Vec::new();
        coerce(&mut object, &schema, &Path::Root(""), &mut unknown).unwrap();
        assert_eq!(object["template"]["metadata"], json!({"name": "a"}));
        assert_eq!(unknown, ["template.metadata.bogus"]);
        let mut object =
            json!({"template": {"apiVersion": "v1", "kind": "A", "metadata": {"labels": {"a": 1}}}});
        assert_eq!(
            coerce(&mut object, &schema, &Path::Root(""), &mut unknown).unwrap_err().to_string(),
            "template.metadata: Invalid value: {\"labels\":{\"a\":1}}: json: cannot unmarshal number into \
             Go struct field ObjectMeta.labels of type string"
        );
    }
}
