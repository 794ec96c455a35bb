//! Checks that lists of type `set` and `map` have no equal items.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::kinds::errors::FieldError;
use crate::kinds::path::Path;
use crate::kinds::schema::{Form, List, Schema};

/// Adds an error for the second of equal items, in all lists of a value. Lists in `metadata` are not checked.
pub(super) fn check(value: &Value, schema: &Schema, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match (value, &schema.form) {
        (Value::Object(map), Form::Object(fields)) => {
            for (name, value) in map {
                if let Some(schema) =
                    fields.fields.get(name).filter(|schema| schema.checks.is_some() && is_container(value))
                {
                    check(value, schema, &path.field(name), errors);
                }
            }
        }
        (Value::Object(map), Form::Map { values, .. }) => {
            for (key, value) in map.iter().filter(|(_, value)| is_container(value)) {
                check(value, values, &path.key(key), errors);
            }
        }
        (Value::Array(list), Form::List { items, list: kind, .. }) => {
            match kind {
                List::Atomic => {}
                List::Set => check_unique(list, path, errors),
                List::Map(keys) => check_keys(list, keys, path, errors),
            }
            for (index, item) in list.iter().enumerate().filter(|(_, item)| is_container(item)) {
                check(item, items, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn is_container(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

fn check_keys(list: &[Value], keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some((index, item)) =
        list.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null())
    {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(index).text(), item, detail));
        return;
    }
    if list.len() <= 1 {
        return;
    }
    let key_of = |item: &Value| -> Value {
        let entry = |key: &String| Some((key.clone(), item.get(key)?.clone()));
        keys.iter().filter_map(entry).collect::<Map<_, _>>().into()
    };
    let found: Vec<Value> = list.iter().map(key_of).collect();
    check_unique(&found, path, errors);
}

fn check_unique(values: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if values.len() <= 1 {
        return;
    }
    let mut seen: HashMap<String, bool> = HashMap::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        match seen.get_mut(&value.to_string()) {
            None => {
                seen.insert(value.to_string(), false);
            }
            Some(reported) if !*reported => {
                *reported = true;
                errors.push(FieldError::duplicate(path.index(index).text(), value));
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check;
    use crate::kinds::custom::schema;
    use crate::kinds::path::Path;

    #[test]
    fn the_second_of_equal_items_is_an_error() {
        let schema = schema(&json!({"type": "object", "properties": {
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            "routes": {
                "type": "array",
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["host", "port"],
                "items": {"type": "object", "properties": {
                    "host": {"type": "string"}, "port": {"type": "integer"},
                }},
            },
            "maps": {"type": "object", "additionalProperties": {
                "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"},
            }},
        }}));
        let object = json!({
            "tags": ["a", "a", "a", "b"],
            "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}, {}, {}],
            "routes": [{"host": "a", "port": 1}, {"host": "a", "port": 2}, {"host": "a", "port": 1}],
            "maps": {"x": [1, 1]},
        });
        let mut errors = Vec::new();
        check(&object, &schema, &Path::Root(""), &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "maps[x][1]: Duplicate value: 1",
                "ports[1]: Duplicate value: {\"name\":\"a\"}",
                "ports[3]: Duplicate value: {}",
                "routes[2]: Duplicate value: {\"host\":\"a\",\"port\":1}",
                "tags[1]: Duplicate value: \"a\"",
            ]
        );
    }
}
