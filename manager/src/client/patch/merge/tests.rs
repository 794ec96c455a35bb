use serde_json::json;

use super::*;

fn check(from: &Value, to: &Value, expected: &Value) {
    let patch = diff(from.as_object().unwrap(), to.as_object().unwrap());
    assert_eq!(Value::Object(patch), *expected, "from {from} to {to}");
}

#[test]
fn a_patch_has_only_the_differences() {
    let from = json!({"a": 1, "b": {"c": [1, 2], "d": 2}, "e": {"f": 3}});
    check(&from, &from, &json!({}));
    check(&from, &json!({"a": 1, "b": {"c": [1], "d": 2}, "e": {"f": 3}}), &json!({"b": {"c": [1]}}));
    check(&from, &json!({"a": 1, "b": {"d": 2}, "e": {}}), &json!({"b": {"c": null}, "e": {"f": null}}));
    check(&from, &json!({"b": 1}), &json!({"a": null, "b": 1, "e": null}));
    check(&json!({}), &json!({"a": {}, "b": []}), &json!({"a": {}, "b": []}));
}

#[test]
fn a_member_that_is_null_counts_as_absent() {
    check(&json!({"a": null}), &json!({}), &json!({}));
    check(&json!({}), &json!({"a": null}), &json!({}));
    check(&json!({"a": null}), &json!({"a": {"b": 1}}), &json!({"a": {"b": 1}}));
    check(&json!({"a": 1}), &json!({"a": null}), &json!({"a": null}));
    check(&json!({"a": {}}), &json!({"a": {"b": null}}), &json!({}));
}
