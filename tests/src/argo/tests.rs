use serde_json::json;

use super::*;

/// Returns an object of generation 2 with the conditions `Ready` and `Stalled`, observed at the generation
/// `observed`.
fn object(observed: i64, ready: &str, reason: &str, stalled: &str) -> Value {
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": reason,
        "message": "because", "observedGeneration": observed})
    };
    let conditions = [condition("Ready", ready), condition("Stalled", stalled)];
    json!({
        "metadata": {"generation": 2},
        "status": {"observedGeneration": observed, "conditions": conditions},
    })
}

#[test]
fn each_state_has_its_health() {
    let cases = [
        (object(2, "True", "Available", "False"), "Healthy"),
        (object(2, "False", "WaitingForDependencies", "False"), "Progressing"),
        (object(2, "Unknown", "WaitingForDependencies", "False"), "Progressing"),
        (object(2, "False", "RolloutInProgress", "False"), "Progressing"),
        (object(2, "False", "Paused", "False"), "Suspended"),
        (object(2, "False", "DeadlineExceeded", "True"), "Degraded"),
        (object(2, "False", "PolicyDenied", "True"), "Degraded"),
    ];
    for (object, expected) in cases {
        let expected = Health { status: expected.to_owned(), message: Some("because".to_owned()) };
        assert_eq!(health(&object).unwrap(), expected, "{object}");
    }
}

#[test]
fn conditions_of_an_earlier_generation_do_not_count() {
    for object in [
        object(1, "True", "Available", "False"),
        object(1, "False", "DeadlineExceeded", "True"),
        json!({"metadata": {"generation": 1}}),
        json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}),
    ] {
        assert_eq!(health(&object).unwrap().status, "Progressing", "{object}");
    }
}
