use serde_json::{Value, json};

use super::{check, check_update, finalizer_warnings};
use crate::kinds::names::NameRule;
use crate::kinds::path::Path;

fn create_errors(metadata: &Value, namespaced: bool) -> Vec<String> {
    let mut errors = Vec::new();
    check(metadata, namespaced, NameRule::Subdomain, &Path::Root("metadata"), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn update_errors(metadata: &Value, old: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check_update(metadata, old, &Path::Root("metadata"), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn complete_metadata_is_valid() {
    let metadata = json!({
        "name": "web", "namespace": "default", "labels": {"app": "web", "example.com/x": ""},
        "annotations": {"Example.com/Note": "any text"}, "finalizers": ["example.com/clean"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "1"}],
    });
    assert_eq!(create_errors(&metadata, true), [""; 0]);
}

#[test]
fn names_and_namespaces_are_required() {
    assert_eq!(
        create_errors(&json!({}), true),
        [
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value"
        ]
    );
    assert_eq!(
        create_errors(&json!({"name": "a", "namespace": "b"}), false),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
}

#[test]
fn labels_annotations_and_finalizers_need_valid_keys() {
    let found = create_errors(
        &json!({"name": "a", "labels": {"": "-"}, "annotations": {"a b": ""}, "finalizers": ["/x"]}),
        false,
    );
    let starts = [
        "metadata.labels: Invalid value: \"\": name part must be non-empty",
        "metadata.labels: Invalid value: \"\": name part must consist of",
        "metadata.labels: Invalid value: \"-\": a valid label must be an empty string or consist of",
        "metadata.annotations: Invalid value: \"a b\": name part must consist of",
        "metadata.finalizers: Invalid value: \"/x\": prefix part must be non-empty",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
}

#[test]
fn only_one_owner_may_be_the_controller() {
    let owner =
        |name: &str| json!({"apiVersion": "v1", "kind": "A", "name": name, "uid": "1", "controller": true});
    let found = create_errors(&json!({"name": "a", "ownerReferences": [owner("x"), owner("y")]}), false);
    assert_eq!(found.len(), 1);
    assert!(found.iter().all(|text| text.ends_with(
        "Only one reference can have Controller set to true. Found \"true\" in references for A/x and A/y"
    )));
}

#[test]
fn an_update_keeps_identity_and_adds_no_finalizers_while_deleting() {
    let old =
        json!({"name": "a", "uid": "1", "resourceVersion": "5", "deletionTimestamp": "2024-01-01T00:00:00Z"});
    assert_eq!(update_errors(&old, &old), [""; 0]);
    assert_eq!(
        update_errors(
            &json!({
                "name": "a", "uid": "2", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a.b/c"],
            }),
            &old
        ),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, \
             found new finalizers []string{\"a.b/c\"}",
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            "metadata.uid: Invalid value: \"2\": field is immutable",
        ]
    );
}

#[test]
fn unqualified_finalizers_get_a_warning_when_added() {
    let metadata = json!({"finalizers": ["orphan", "example.com/x", "clean", "clean.example.com"]});
    let warnings = finalizer_warnings(&metadata, Some(&json!({"finalizers": ["clean"]})));
    assert_eq!(
        warnings,
        ["metadata.finalizers: \"clean.example.com\": prefer a domain-qualified finalizer name including \
             a path (/) to avoid accidental conflicts with other finalizer writers"]
    );
}
