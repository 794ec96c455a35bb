use mainstay_api::plan::Objects;
use serde_json::{Value, json};

use super::*;

fn check(kind: &str, state: ResourceState) -> ResourceCheck {
    let (group, kind) = kind.split_once('/').unwrap();
    ResourceCheck {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        objects: Objects::Name("web".to_owned()),
        state,
    }
}

fn compared(check: &ResourceCheck, object: &Value) -> Result<Found, NotOneValue> {
    compare(check, object.to_string().as_bytes(), object["metadata"]["generation"].as_i64())
}

fn available(object: &Value) -> Found {
    let state = ResourceState::Condition { type_: "Available".to_owned(), status: "True".to_owned() };
    compared(&check("apps/Deployment", state), object).unwrap()
}

fn at(path: &str, value: &str, object: &Value) -> Result<Found, NotOneValue> {
    let state = ResourceState::JsonPath { path: path.parse().unwrap(), value: value.to_owned() };
    compared(&check("apps/Deployment", state), object)
}

fn with(conditions: &Value) -> Value {
    json!({"metadata": {"generation": 3}, "status": {"conditions": conditions}})
}

#[test]
fn a_condition_counts_as_for_kubectl_wait() {
    for (conditions, expected) in [
        (json!([{"type": "Available", "status": "True"}]), Found::InState),
        (json!([{"type": "available", "status": "true"}]), Found::InState),
        (json!([{"type": "Progressing", "status": "True"}]), Found::NotInState),
        (json!([{"type": "Available", "status": "False"}]), Found::NotInState),
        (json!([{"type": "Available", "status": "Unknown"}]), Found::NotInState),
        (json!([{"type": "Available"}]), Found::NotInState),
        (json!([{"type": "Available", "status": "True", "observedGeneration": 3}]), Found::InState),
        (json!([{"type": "Available", "status": "True", "observedGeneration": 2}]), Found::NotObserved),
        (json!([]), Found::NotInState),
        (json!(null), Found::NotInState),
        (json!("odd"), Found::NotInState),
    ] {
        assert_eq!(available(&with(&conditions)), expected, "{conditions}");
    }
    assert_eq!(available(&json!({"metadata": {}})), Found::NotInState, "no status yet");
}

#[test]
fn the_generation_of_the_status_counts_for_conditions_without_one() {
    let mut object = with(&json!([{"type": "Available", "status": "True"}]));
    object["status"]["observedGeneration"] = 2.into();
    assert_eq!(available(&object), Found::NotObserved);
    object["status"]["conditions"][0]["observedGeneration"] = 3.into();
    assert_eq!(available(&object), Found::InState, "its own goes first");
    object["metadata"] = json!({});
    object["status"]["conditions"][0]["observedGeneration"] = 0.into();
    assert_eq!(available(&object), Found::InState, "kinds without generations");
}

#[test]
fn a_job_that_has_failed_will_not_complete() {
    let state = ResourceState::Condition { type_: "Complete".to_owned(), status: "True".to_owned() };
    let object = with(&json!([{"type": "Failed", "status": "True"}]));
    assert_eq!(compared(&check("batch/Job", state.clone()), &object), Ok(Found::Failed));
    assert_eq!(compared(&check("example.com/Job", state), &object), Ok(Found::NotInState));
}

#[test]
fn a_value_is_compared_as_text_with_regard_to_case() {
    let object = json!({"status": {"phase": "Bound", "count": 3, "ready": true, "ports": [1, 2]}});
    for (path, value, expected) in [
        ("{.status.phase}", "Bound", Ok(Found::InState)),
        ("{.status.phase}", "bound", Ok(Found::NotInState)),
        ("{.status.count}", "3", Ok(Found::InState)),
        ("{.status.ready}", "true", Ok(Found::InState)),
        ("{.status.other}", "Bound", Ok(Found::NotInState)),
        ("{.status.ports}", "Bound", Err(NotOneValue::List)),
        ("{.status.ports[-1]}", "2", Ok(Found::InState)),
    ] {
        assert_eq!(at(path, value, &object), expected, "{path}={value}");
    }
}

#[test]
fn a_value_of_an_earlier_generation_does_not_count() {
    let mut object = json!({
        "metadata": {"generation": 3},
        "spec": {"replicas": 1},
        "status": {
            "phase": "Bound", "observedGeneration": 2,
            "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3}],
        },
    });
    let ready = "{.status.conditions[?(@.type==\"Ready\")].status}";
    for value in ["Bound", "Lost"] {
        assert_eq!(at("{.status.phase}", value, &object), Ok(Found::NotObserved));
    }
    assert_eq!(at(ready, "True", &object), Ok(Found::InState), "the condition's own goes first");
    assert_eq!(at("{.spec.replicas}", "1", &object), Ok(Found::InState), "not of the status");
    object["status"]["observedGeneration"] = 3.into();
    object["status"]["conditions"][0]["observedGeneration"] = 2.into();
    assert_eq!(at("{.status.phase}", "Bound", &object), Ok(Found::InState));
    assert_eq!(at(ready, "True", &object), Ok(Found::NotObserved));
    object["metadata"] = json!({});
    assert_eq!(at(ready, "True", &object), Ok(Found::InState), "kinds without generations");
}
