use serde_json::json;

use super::{drop_nulls, prune};
use crate::kinds::custom::schema;

#[test]
fn unknown_fields_are_removed_and_reported() {
    let schema = schema(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "part": {"type": "object", "properties": {"a": {"type": "string"}}},
            }},
            "map": {"type": "object", "additionalProperties": {
                "type": "object", "properties": {"a": {"type": "string"}},
            }},
            "anything": {"type": "object", "additionalProperties": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "resource": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                "spec": {"type": "object"},
            }},
            "text": {"type": "string"},
        }},
    }}));
    let mut object = json!({
        "apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "x": 1}, "bogus": 1,
        "spec": {
            "known": "a", "bogus": {"deep": 1},
            "free": {"kept": {"deep": 1}, "part": {"a": "a", "b": "b"}},
            "map": {"k": {"a": "a", "b": "b"}},
            "anything": {"k": {"gone": 1}, "n": 1, "l": [{"gone": 1}]},
            "list": [{"a": "a", "b": "b"}],
            "resource": {"apiVersion": "v1", "kind": "B", "metadata": {"x": 1}, "spec": {"b": 1}, "b": 1},
            "text": {"b": 1},
        },
    });
    let unknown = prune(&mut object, &schema);
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "x": 1}, "spec": {
            "known": "a", "free": {"kept": {"deep": 1}, "part": {"a": "a"}}, "map": {"k": {"a": "a"}},
            "anything": {"k": {}, "n": 1, "l": [{}]}, "list": [{"a": "a"}],
            "resource": {"apiVersion": "v1", "kind": "B", "metadata": {"x": 1}, "spec": {}}, "text": {},
        }})
    );
    assert_eq!(
        unknown,
        [
            "bogus",
            "spec.anything.k.gone",
            "spec.anything.l[0].gone",
            "spec.bogus",
            "spec.free.part.b",
            "spec.list[0].b",
            "spec.map.k.b",
            "spec.resource.b",
            "spec.resource.spec.b",
            "spec.text.b",
        ]
    );
}

#[test]
fn nulls_stay_only_where_allowed_or_defaulted() {
    let schema = schema(&json!({"type": "object", "properties": {
        "plain": {"type": "string"},
        "nullable": {"type": "string", "nullable": true},
        "defaulted": {"type": "string", "default": "a"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"plain": {"type": "string"}}}},
    }}));
    let mut object = json!({
        "plain": null, "nullable": null, "defaulted": null, "other": null, "list": [null, {"plain": null}],
    });
    drop_nulls(&mut object, &schema);
    assert_eq!(object, json!({"nullable": null, "defaulted": null, "other": null, "list": [null, {}]}));
}
