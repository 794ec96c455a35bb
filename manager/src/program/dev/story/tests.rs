use serde_json::json;

use super::*;
use crate::reconcile::ReconcileError;

#[test]
fn a_change_of_status_shows_plain_values_and_changed_conditions() {
    let old = json!({
        "ready": 1, "phase": "Open", "observedGeneration": 1,
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Full", "status": "False"}],
    });
    let new = json!({
        "ready": 2, "phase": "Open", "observedGeneration": 2, "items": ["a"],
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Late", "message": "1 of 2"},
            {"type": "Full", "status": "False", "message": "2 of 5"},
            {"type": "Stalled", "status": "False", "reason": "Late", "message": "1 of 2 again"},
        ],
    });
    assert_eq!(
        changes(&old, &new, true),
        ["status ready=2", "Ready=False (Late), Stalled=False (Late): 1 of 2"]
    );
    assert_eq!(changes(&old, &new, false), ["Ready=False (Late), Stalled=False (Late): 1 of 2"]);
    assert_eq!(changes(&Value::Null, &old, false), ["Ready=True, Full=False"]);
    assert_eq!(changes(&new, &new, true), [""; 0]);
}

#[test]
fn a_changed_object_shows_the_paths_of_its_fields() {
    let old = json!({
        "metadata": {"resourceVersion": "1"}, "status": {"ready": 1},
        "spec": {"size": 1, "color": "red", "parts": [1], "box": {"lid": true}},
    });
    let mut new = json!({
        "metadata": {"resourceVersion": "2"}, "status": {"ready": 2},
        "spec": {"size": 2, "parts": [1], "box": {"lid": true, "lock": 1}},
    });
    assert_eq!(changed_fields(&old, &new), " spec.box.lock, spec.size, spec.color");
    new["spec"]["parts"] = json!([1, 2]);
    assert_eq!(changed_fields(&old, &new), " spec.box.lock, spec.parts, spec.size and 1 more");
    assert_eq!(changed_fields(&old, &json!({"metadata": {}})), " spec");
    assert_eq!(changed_fields(&old, &old), "");
}

#[tokio::test]
async fn runs_are_reported_at_first_and_when_their_outcome_changes() {
    let (narrator, _news) = Narrator::new(Story::begun(Duration::ZERO), "shop", &[]);
    let failed = |error: &'static str| Err(ReconcileError::from(error));
    let run = |outcome: Outcome| narrator.run("orders", "default/tea", &outcome);
    assert_eq!(run(Ok(Action::Done)).unwrap(), "orders: first reconcile of default/tea");
    assert_eq!(run(Ok(Action::RequeueAfter(Duration::from_secs(1)))), None);
    assert_eq!(run(failed("no tea")).unwrap(), "orders: reconcile of default/tea failed: no tea");
    assert_eq!(run(failed("no tea")), None);
    assert_eq!(run(failed("no milk")).unwrap(), "orders: reconcile of default/tea failed: no milk");
    assert_eq!(run(Ok(Action::Done)).unwrap(), "orders: default/tea reconciled without an error again");
    assert_eq!(run(Ok(Action::Done)), None);
    let other = narrator.run("orders", "milk", &Ok(Action::RequeueAfter(Duration::from_secs(5))));
    assert_eq!(other.unwrap(), "orders: first reconcile of milk; next in 5s");
}

#[test]
fn only_events_of_the_program_are_reported() {
    let (narrator, _news) = Narrator::new(Story::begun(Duration::ZERO), "shop", &[]);
    let line_of = |reporter: &str| {
        let event = json!({
            "metadata": {}, "eventTime": null, "reportingController": reporter, "type": "Warning",
            "reason": "Full", "note": "no room",
            "regarding": {"kind": "Order", "namespace": "a", "name": "b"},
        });
        narrator.event(&serde_json::from_value(event).unwrap())
    };
    let expected = "Order a/b: Event Warning Full: no room";
    assert_eq!(
        (line_of("shop/orders").as_deref(), line_of("shop").as_deref()),
        (Some(expected), Some(expected))
    );
    assert_eq!((line_of("shopper"), line_of("kubelet")), (None, None));
}
