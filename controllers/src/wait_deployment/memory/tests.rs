use serde_json::json;

use super::super::gate::{Refusal, RefusalKind};
use super::*;
use crate::deployment::desired;

fn object(annotations: &Value) -> WaitDeployment {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "annotations": annotations},
        "spec": {"selector": {}, "template": {}},
    });
    serde_json::from_value(object).unwrap()
}

fn live(annotations: &Value, generation: i64) -> LiveDeployment {
    let mut live = desired(&object(annotations), &[]);
    live["metadata"]["uid"] = json!("d1");
    live["metadata"]["generation"] = json!(generation);
    serde_json::from_value(live).unwrap()
}

/// Recalls the result of an attempt in a term to write an object with these annotations, where the cache
/// shows `live`.
fn recall_in(
    memory: &Memory,
    term: u64,
    annotations: &Value,
    live: Option<&LiveDeployment>,
) -> Option<Applied> {
    memory.recall(&web(), &attempt(term, annotations, live), live)
}

fn recall(memory: &Memory, annotations: &Value, live: Option<&LiveDeployment>) -> Option<Applied> {
    recall_in(memory, 1, annotations, live)
}

fn attempt(term: u64, annotations: &Value, live: Option<&LiveDeployment>) -> Attempt {
    let object = object(annotations);
    Attempt::new(&object, desired(&object, &[]), live, term)
}

fn web() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

fn invalid() -> Refusal {
    Refusal { kind: RefusalKind::Invalid, message: "no".to_owned() }
}

#[test]
fn a_write_is_not_repeated_until_a_relevant_field_changes() {
    let (memory, none) = (Memory::default(), json!({}));
    assert_eq!(recall(&memory, &none, None), None);
    let now = live(&none, 1);
    memory.remember_written(&web(), &attempt(1, &none, None), &now);
    assert!(matches!(recall(&memory, &none, Some(&now)), Some(Applied::Current(_))));
    assert_eq!(recall(&memory, &none, Some(&live(&none, 2))), None, "the Deployment was edited");
    let team = json!({"team": "a"});
    assert_eq!(recall(&memory, &team, Some(&live(&team, 1))), None, "an annotation to copy");
    assert_eq!(recall(&memory, &none, None), None, "the Deployment is gone");
    memory.forget(&web());
    assert_eq!(recall(&memory, &none, Some(&now)), None);
}

#[test]
fn a_new_term_recalls_no_result_of_an_earlier_one() {
    let (memory, none) = (Memory::default(), json!({}));
    let (create, now) = (attempt(1, &none, None), live(&none, 1));
    memory.remember_written(&web(), &create, &now);
    assert_eq!(recall_in(&memory, 2, &none, Some(&now)), None, "written");
    memory.remember_failed(&web(), &create, Applied::Refused(invalid()));
    assert_eq!(recall_in(&memory, 2, &none, None), None, "refused");
    assert_eq!(recall(&memory, &none, None), Some(Applied::Refused(invalid())));
}

#[test]
fn a_refused_write_is_not_repeated_until_a_relevant_field_changes() {
    let (memory, none) = (Memory::default(), json!({}));
    memory.remember_failed(&web(), &attempt(1, &none, None), Applied::Refused(invalid()));
    assert_eq!(recall(&memory, &none, None), Some(Applied::Refused(invalid())));
    assert_eq!(recall(&memory, &none, Some(&live(&none, 1))), None);
    let by_hand = json!({"mainstay.dev/reconcile-at": "now"});
    assert_eq!(recall(&memory, &by_hand, None), None, "a user asks for a retry");
}
