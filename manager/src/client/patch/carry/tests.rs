use serde_json::json;

use super::*;

/// Carries an edit of a type that has all members except those with a name that begins with `x`.
fn check(raw: &Value, after: &Value, expected: &Value, case: &str) {
    assert_eq!(carry(raw, &known(raw), after), *expected, "{case}");
}

/// Returns the members of a type that has all members except those with a name that begins with `x`.
pub(in crate::client::patch) fn known(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let known = members.iter().filter(|(key, _)| !key.starts_with('x'));
            known.map(|(key, value)| (key.clone(), self::known(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(known).collect(),
        other => other.clone(),
    }
}

#[test]
fn unknown_fields_stay() {
    let raw = json!({"a": 1, "x": 2, "b": {"c": 3, "x": 4}, "d": {"x": 5}});
    check(&raw, &known(&raw), &raw, "nothing changed");
    check(
        &raw,
        &json!({"a": 7, "b": {"c": 3, "e": 8}, "d": {}}),
        &json!({"a": 7, "x": 2, "b": {"c": 3, "e": 8, "x": 4}, "d": {"x": 5}}),
        "a value changed and one added",
    );
    check(&raw, &json!({"b": {}}), &json!({"x": 2, "b": {"x": 4}}), "values removed");
}

#[test]
fn a_default_of_the_type_is_not_stored_with_the_changed_field() {
    let before = json!({"spec": {"replicas": 1, "paused": false}});
    let after = json!({"spec": {"replicas": 1, "paused": true}});
    assert_eq!(carry(&json!({}), &before, &after), json!({"spec": {"paused": true}}));
}

#[test]
fn an_element_of_a_list_is_found_by_its_identity() {
    let raw = json!([{"name": "a", "v": 1, "x": 1}, {"name": "b", "x": 2}, {"name": "c", "x": 3}]);
    check(
        &raw,
        &json!([{"name": "new"}, {"name": "c", "v": 9}, {"name": "a", "v": 1}]),
        &json!([{"name": "new"}, {"name": "c", "v": 9, "x": 3}, {"name": "a", "v": 1, "x": 1}]),
        "moved, changed, inserted and removed at once",
    );
    check(
        &raw,
        &json!([{"name": "z", "v": 1}, {"name": "b"}, {"name": "c"}]),
        &json!([{"name": "z", "v": 1}, {"name": "b", "x": 2}, {"name": "c", "x": 3}]),
        "an element of another name is another one, even at the same index",
    );
}

#[test]
fn an_element_without_identity_is_found_by_its_index_while_the_length_is_the_same() {
    let raw = json!([{"host": "a", "x": 1}, {"host": "b", "x": 2}]);
    check(
        &raw,
        &json!([{"host": "c"}, {"host": "b"}]),
        &json!([{"host": "c", "x": 1}, {"host": "b", "x": 2}]),
        "changed",
    );
    check(
        &raw,
        &json!([{"host": "b"}]),
        &json!([{"host": "b", "x": 2}]),
        "the equal element keeps its field",
    );
    check(
        &raw,
        &json!([{"host": "c"}, {"host": "d"}, {"host": "b"}]),
        &json!([{"host": "c"}, {"host": "d"}, {"host": "b", "x": 2}]),
        "the origin of the first two is ambiguous",
    );
}

#[test]
fn no_unknown_field_moves_to_another_element_of_the_same_identity() {
    let metric =
        |name: &str, value: u8| json!({"type": "Resource", "resource": {"name": name, "value": value}});
    let with = |mut element: Value, x: u8| {
        element["x"] = json!(x);
        element
    };
    let raw = json!([with(metric("cpu", 1), 1), with(metric("memory", 1), 2)]);
    check(
        &raw,
        &json!([metric("memory", 2)]),
        &json!([with(metric("memory", 2), 2)]),
        "the first is removed and the second changed: nested members distinguish them",
    );
    check(
        &raw,
        &json!([metric("disk", 1), metric("cpu", 1)]),
        &json!([metric("disk", 1), with(metric("cpu", 1), 1)]),
        "replaced",
    );
    check(
        &json!([with(metric("cpu", 1), 1)]),
        &json!([metric("disk", 1)]),
        &json!([metric("disk", 1)]),
        "the only one",
    );

    let raw = json!([{"key": "a", "effect": "one", "x": 1}, {"key": "a", "effect": "two", "x": 2}]);
    check(
        &raw,
        &json!([{"key": "a", "effect": "two", "seconds": 3}]),
        &json!([{"key": "a", "effect": "two", "seconds": 3}]),
        "the origin of the element is ambiguous",
    );
    check(
        &raw,
        &json!([{"key": "a", "effect": "one"}, {"key": "a", "effect": "two", "seconds": 3}]),
        &json!([{"key": "a", "effect": "one", "x": 1}, {"key": "a", "effect": "two", "seconds": 3, "x": 2}]),
        "the index identifies it while the length is the same",
    );
}

#[test]
fn equal_elements_are_paired_once_each() {
    let raw = json!([{"v": 1, "x": 1}, {"v": 1, "x": 2}]);
    check(
        &raw,
        &json!([{"v": 1}, {"v": 1}, {"v": 1}]),
        &json!([{"v": 1, "x": 1}, {"v": 1, "x": 2}, {"v": 1}]),
        "one more",
    );
    check(&raw, &json!([{"v": 1}]), &json!([{"v": 1, "x": 1}]), "one less");
}
