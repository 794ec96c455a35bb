use serde_json::json;

use super::*;

#[test]
fn rules_apply_in_order() {
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status});
    let object = |observed: Value, conditions: &[Value]| {
        let status = json!({"observedGeneration": observed, "conditions": conditions});
        json!({"metadata": {"generation": 2}, "status": status})
    };
    let (ready, waits) = (condition("Ready", "True"), condition("Ready", "Unknown"));
    let (reconciling, stalled) = (condition("Reconciling", "True"), condition("Stalled", "True"));
    let mut leaving = object(json!(2), std::slice::from_ref(&ready));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let cases = [
        (leaving, Kstatus::Terminating),
        (object(json!(1), &[ready.clone(), stalled.clone()]), Kstatus::InProgress),
        (object(json!(2), &[ready.clone(), stalled]), Kstatus::Failed),
        (object(json!(2), &[ready.clone(), reconciling]), Kstatus::InProgress),
        (object(json!(2), &[waits]), Kstatus::InProgress),
        (object(json!(2), std::slice::from_ref(&ready)), Kstatus::Current),
        (object(Value::Null, &[ready]), Kstatus::Current),
        (object(Value::Null, &[]), Kstatus::Current),
    ];
    for (object, expected) in cases {
        assert_eq!(kstatus(&object), expected, "{object}");
    }
}
