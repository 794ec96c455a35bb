//! Sets the defaults that a schema declares.

use serde_json::Value;

use super::schema::{Form, Schema};

/// Sets missing fields to their defaults, and nulls that are not allowed. Fields below them follow, including
/// fields in the defaults.
pub fn set_defaults(value: &mut Value, schema: &Schema) {
    match (value, &schema.form) {
        (Value::Object(map), Form::Object(fields)) => {
            for (name, schema) in &fields.fields {
                let Some(default) = &schema.default else { continue };
                if map.get(name).is_none_or(|value| value.is_null() && !schema.nullable) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map {
                if let Some(schema) = fields.fields.get(name) {
                    set_defaults(value, schema);
                }
            }
        }
        (Value::Object(map), Form::Map { values, .. }) => {
            for value in map.values_mut() {
                set_item_default(value, values);
            }
        }
        (Value::Array(list), Form::List { items, .. }) => {
            for item in list {
                set_item_default(item, items);
            }
        }
        _ => {}
    }
}

fn set_item_default(value: &mut Value, schema: &Schema) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.nullable, &schema.default) {
        *value = default.clone();
    }
    set_defaults(value, schema);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::set_defaults;
    use crate::kinds::custom::schema;

    #[test]
    fn defaults_fill_missing_fields_and_fields_inside_defaults() {
        let schema = schema(&json!({"type": "object", "properties": {
            "number": {"type": "integer", "default": 5},
            "nested": {"type": "object", "default": {}, "properties": {
                "deep": {"type": "string", "default": "a"},
            }},
            "absent": {"type": "object", "properties": {"deep": {"type": "string", "default": "a"}}},
            "nullable": {"type": "string", "nullable": true, "default": "a"},
            "strict": {"type": "string", "default": "a"},
            "list": {"type": "array", "items": {"type": "object", "properties": {
                "deep": {"type": "string", "default": "a"},
            }}},
            "map": {"type": "object", "additionalProperties": {"type": "integer", "default": 7}},
        }}));
        let cases: [(Value, Value); 2] = [
            (json!({}), json!({"number": 5, "nested": {"deep": "a"}, "nullable": "a", "strict": "a"})),
            (
                json!({
                    "number": 1, "absent": {}, "nullable": null, "strict": null,
                    "list": [{}], "map": {"a": null},
                }),
                json!({
                    "number": 1, "nested": {"deep": "a"}, "absent": {"deep": "a"}, "nullable": null,
                    "strict": "a", "list": [{"deep": "a"}], "map": {"a": 7},
                }),
            ),
        ];
        for (mut object, expected) in cases {
            set_defaults(&mut object, &schema);
            assert_eq!(object, expected);
        }
    }
}
