use serde_json::json;

use super::*;
use crate::deployment::desired;

fn object(annotations: &Value) -> WaitDeployment {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "annotations": annotations},
        "spec": {"selector": {}, "template": {}},
    });
    serde_json::from_value(object).unwrap()
}

fn attempt(annotations: &Value, live: Option<i64>) -> Attempt {
    attempt_in(1, annotations, live)
}

fn attempt_in(term: u64, annotations: &Value, live: Option<i64>) -> Attempt {
    let object = object(annotations);
    let live = live.map(|generation| {
        let mut live = desired(&object, &[]);
        live["metadata"]["uid"] = json!("d1");
        live["metadata"]["generation"] = json!(generation);
        Arc::new(serde_json::from_value(live).unwrap())
    });
    Attempt::new(&object, desired(&object, &[]), live, term)
}

#[test]
fn what_was_written_is_not_written_again_until_something_changes() {
    let (memory, web) = (Memory::default(), NamespacedName::namespaced("shop", "web"));
    let create = attempt(&json!({}), None);
    assert_eq!(memory.recall(&web, &create), None);
    let now = attempt(&json!({}), Some(1)).live.unwrap();
    memory.remember_written(&web, &create, &now);
    assert!(matches!(memory.recall(&web, &attempt(&json!({}), Some(1))), Some(Applied::Current(_))));
    assert_eq!(memory.recall(&web, &attempt(&json!({}), Some(2))), None, "somebody edited the Deployment");
    assert_eq!(
        memory.recall(&web, &attempt(&json!({"team": "a"}), Some(1))),
        None,
        "an annotation to pass on"
    );
    assert_eq!(memory.recall(&web, &create), None, "the Deployment is gone");
    memory.forget(&web);
    assert_eq!(memory.recall(&web, &attempt(&json!({}), Some(1))), None);
}

#[test]
fn a_new_term_recalls_nothing_of_an_earlier_one() {
    let (memory, web) = (Memory::default(), NamespacedName::namespaced("shop", "web"));
    let create = attempt(&json!({}), None);
    let now = attempt(&json!({}), Some(1)).live.unwrap();
    memory.remember_written(&web, &create, &now);
    assert_eq!(memory.recall(&web, &attempt_in(2, &json!({}), Some(1))), None, "written");
    memory.remember_rejected(&web, &create, "no");
    assert_eq!(memory.recall(&web, &attempt_in(2, &json!({}), None)), None, "refused");
    assert_eq!(memory.recall(&web, &create), Some(Applied::Rejected("no".to_owned())));
}

#[test]
fn what_was_refused_is_not_sent_again_until_something_changes() {
    let (memory, web) = (Memory::default(), NamespacedName::namespaced("shop", "web"));
    let create = attempt(&json!({}), None);
    memory.remember_rejected(&web, &create, "no");
    assert_eq!(memory.recall(&web, &create), Some(Applied::Rejected("no".to_owned())));
    assert_eq!(memory.recall(&web, &attempt(&json!({}), Some(1))), None);
    let by_hand = json!({"mainstay.dev/reconcile-at": "now"});
    assert_eq!(memory.recall(&web, &attempt(&by_hand, None)), None, "somebody asks for another try");
}
