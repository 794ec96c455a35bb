mod invariants;
mod openapi;
mod ownership;

use serde_json::json;

use super::*;
use crate::kinds::Form;

static ANY: Schema = Schema { form: Form::Any, nullable: false, default: None, checks: None };

fn writer(manager: &str, second: i64) -> Writer<'_> {
    Writer { manager, subresource: None, now: Timestamp::from_second(second).unwrap() }
}

fn with_resource<T>(test: impl FnOnce(&Resource<'_>) -> T) -> T {
    test(&Resource {
        kind: "Widget",
        api_version: "example.com/v1",
        schema: &ANY,
        other_versions: &[],
        convert: None,
        converter: None,
        empty: &json!({}),
        reset: &FieldSet::of(&[&["status"]]),
    })
}

fn widget(spec: &Value) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "uid": "u"}, "spec": spec,
    })
}

#[test]
fn field_sets_keep_their_fields_v1_form() {
    let form = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a.b/c": {}}},
        "f:spec": {
            "k:{\"name\":\"a\\\"b\\u003c\",\"port\":80}": {".": {}, "f:x": {}},
            "v:\"t\"": {}, "v:1.5": {}, "v:true": {}, "i:3": {},
        },
    });
    let set = FieldSet::from_json(&form).unwrap();
    assert_eq!(set.to_json(), form);
    let mut paths = Vec::new();
    set.each(&mut Vec::new(), &mut |path| paths.push(field_set::display(path)));
    assert_eq!(
        paths.join(" "),
        ".metadata.labels .metadata.labels.a.b/c \
         .spec[name=\"a\\\"b<\",port=80] .spec[=1.5] .spec[=\"t\"] .spec[=true] .spec[3] \
         .spec[name=\"a\\\"b<\",port=80].x"
    );
}

#[test]
fn a_write_without_changes_keeps_times() {
    with_resource(|resource| {
        let live = update(resource, None, widget(&json!({"a": 1})), &writer("uma", 1));
        assert_eq!(update(resource, Some(&live), live.clone(), &writer("ulf", 2)), live);
        let applied =
            apply(resource, Some(&live), &widget(&json!({"b": 1})), &writer("alice", 3), false).unwrap();
        let again = apply(resource, Some(&applied), &widget(&json!({"b": 1})), &writer("alice", 4), false);
        assert_eq!(again.unwrap(), applied);
    });
}

#[test]
fn new_times_without_other_changes_are_discarded() {
    with_resource(|resource| {
        let old = update(resource, None, widget(&json!({"a": 1})), &writer("uma", 1));
        let mut new = update(resource, None, widget(&json!({"a": 1})), &writer("uma", 2));
        assert_ne!(old, new);
        keep_times(&old, &mut new);
        assert_eq!(old, new);
        let mut new = update(resource, Some(&old), widget(&json!({"a": 2})), &writer("uma", 2));
        let changed = new.clone();
        keep_times(&old, &mut new);
        assert_eq!(changed, new);
    });
}
