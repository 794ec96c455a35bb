//! The mirrored status of a Deployment, and that an unchanged one is written once.

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::deployment::{GENERATION_ANNOTATION, desired};

fn at(seconds: i64) -> Time {
    Time(Timestamp::from_second(seconds).unwrap())
}

fn object() -> WaitDeployment {
    let object = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "generation": 3,
        },
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
    });
    serde_json::from_value(object).unwrap()
}

fn live(generation: i64, written_for: i64, status: &Value) -> LiveDeployment {
    let mut live = desired(&object(), &[]);
    live["metadata"]["uid"] = json!("d1");
    live["metadata"]["generation"] = json!(generation);
    live["metadata"]["annotations"][GENERATION_ANNOTATION] = json!(written_for.to_string());
    live["status"] = status.clone();
    serde_json::from_value(live).unwrap()
}

fn condition(type_: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": "Because", "message": "so", "aFieldOfTomorrow": 1,
        "lastUpdateTime": "2026-01-01T00:00:02Z", "lastTransitionTime": "2026-01-01T00:00:01Z",
    })
}

fn show(object: &mut WaitDeployment, status: &WaitDeploymentStatus) {
    object.status = Some(serde_json::from_value(json!(status)).unwrap());
}

fn available(status: &WaitDeploymentStatus) -> &Condition {
    status.condition("Available").unwrap()
}

#[test]
fn every_known_field_is_shown_and_no_other() {
    let status = json!({
        "observedGeneration": 7, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 2,
        "availableReplicas": 2, "unavailableReplicas": 1, "terminatingReplicas": 1, "collisionCount": 4,
        "aFieldOfTomorrow": {"x": []},
        "conditions": [condition("Available"), condition("Tomorrow"), condition("Progressing")],
    });
    let body = json!(mirror(&object(), Some(&live(7, 3, &status)), &at(1)));
    let shown = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "Because", "message": "so", "observedGeneration": 3,
            "lastUpdateTime": "2026-01-01T00:00:02Z", "lastTransitionTime": "2026-01-01T00:00:01Z",
        })
    };
    assert_eq!(
        body,
        json!({
            "replicas": 3, "updatedReplicas": 3, "readyReplicas": 2, "availableReplicas": 2,
            "unavailableReplicas": 1, "terminatingReplicas": 1, "collisionCount": 4, "selector": "app=web",
            "deployment": {"name": "web", "uid": "d1", "generation": 7, "observedGeneration": 7},
            "conditions": [shown("Available"), shown("Progressing")],
        })
    );
}

#[test]
fn a_missing_deployment_shows_zeros_and_an_unknown_availability() {
    let mut web = object();
    assert_eq!(
        json!(mirror(&web, None, &at(5))),
        json!({
            "replicas": 0, "updatedReplicas": 0, "readyReplicas": 0, "availableReplicas": 0,
            "unavailableReplicas": 0,
            "selector": "app=web",
            "conditions": [{
                "type": "Available", "status": "Unknown", "reason": "DeploymentNotFound",
                "observedGeneration": 3, "message": "no Deployment of this WaitDeployment exists",
                "lastTransitionTime": "1970-01-01T00:00:05Z",
            }],
        })
    );
    let first = mirror(&web, None, &at(5));
    show(&mut web, &first);
    assert_eq!(mirror(&web, None, &at(9)), first, "the time of the transition stays");
}

#[test]
fn a_deployment_of_another_owner_counts_as_missing() {
    let mut foreign = live(1, 3, &json!({"replicas": 9}));
    foreign.metadata.owner_references[0].uid = "of the past".to_owned();
    assert_eq!(mirror(&object(), Some(&foreign), &at(1)), mirror(&object(), None, &at(1)));
}

#[test]
fn a_generation_is_shown_once_the_deployment_controller_has_seen_it() {
    let mut web = object();
    let status =
        |observed: i64| json!({"observedGeneration": observed, "conditions": [condition("Available")]});
    let mut step = |generation, written_for, observed| {
        let shown = mirror(&web, Some(&live(generation, written_for, &status(observed))), &at(1));
        show(&mut web, &shown);
        available(&shown).observed_generation.unwrap()
    };
    assert_eq!(step(1, 2, 0), 0, "a new Deployment has no observed generation");
    assert_eq!(step(1, 2, 1), 2);
    assert_eq!(step(2, 3, 1), 2, "written for 3, not observed yet: the status of 2 stays");
    assert_eq!(step(2, 3, 2), 3);
    assert_eq!(step(3, 3, 2), 3, "scaled by another client: the spec of 3 was observed before");

    let mut recreated = live(1, 3, &status(0));
    recreated.metadata.uid = "d2".to_owned();
    let shown = mirror(&web, Some(&recreated), &at(1));
    assert_eq!(
        available(&shown).observed_generation,
        Some(0),
        "the generation of the old Deployment does not count"
    );
}

#[test]
fn a_condition_that_the_deployment_drops_is_removed() {
    let mut web = object();
    let both = json!({"conditions": [condition("Available"), condition("ReplicaFailure")]});
    let one = json!({"conditions": [condition("Available")]});
    let failing = mirror(&web, Some(&live(1, 3, &both)), &at(1));
    show(&mut web, &failing);
    let healthy = mirror(&web, Some(&live(1, 3, &one)), &at(1));
    assert!(!is_shown(&healthy, &web), "ReplicaFailure has to go");
    show(&mut web, &healthy);
    assert!(is_shown(&healthy, &web));
    assert!(!is_shown(&failing, &web), "and can come back");
}

#[test]
fn fields_of_the_gate_do_not_matter() {
    let mut web = object();
    let shown = mirror(&web, Some(&live(1, 3, &json!({"conditions": [condition("Available")]}))), &at(1));
    show(&mut web, &shown);
    let status = web.status.as_mut().unwrap();
    status.observed_generation = Some(3);
    status.waiting_for = Some("postgres:5432".to_owned());
    let ready = Condition { type_: "Ready".to_owned(), ..status.conditions[0].clone() };
    status.conditions.insert(0, ready);
    assert!(is_shown(&shown, &web));
}

#[test]
fn values_of_the_wrong_type_are_ignored() {
    let status = json!({
        "replicas": "three", "readyReplicas": 1e30, "updatedReplicas": -1, "collisionCount": i64::MAX,
        "conditions": [null, 3, {"type": "Available"}, {"type": "Progressing", "status": "Maybe"}],
    });
    let shown = mirror(&object(), Some(&live(1, 3, &status)), &at(1));
    assert_eq!((shown.replicas, shown.ready_replicas, shown.collision_count), (Some(0), Some(0), None));
    assert_eq!(shown.conditions.len(), 1);
    assert_eq!(shown.conditions[0].reason.as_deref(), Some("NotReported"));
}

fn any_live() -> impl Strategy<Value = Option<LiveDeployment>> {
    let conditions =
        prop::sample::subsequence(vec!["Available", "Progressing", "ReplicaFailure", "Other"], 0..=4);
    let some = (0..4i64, 0..4i64, 0..4i64, prop::option::of(0..4i64), conditions).prop_map(
        |(generation, written_for, observed, terminating, types)| {
            let conditions: Vec<_> = types.into_iter().map(condition).collect();
            let mut status =
                json!({"observedGeneration": observed, "replicas": observed, "conditions": conditions});
            if let Some(terminating) = terminating {
                status["terminatingReplicas"] = json!(terminating);
            }
            Some(live(generation, written_for, &status))
        },
    );
    prop_oneof![Just(None), some]
}

proptest! {
    #[test]
    fn an_unchanged_deployment_is_written_once(history in prop::collection::vec(any_live(), 1..10)) {
        let mut web = object();
        for live in &history {
            let first = mirror(&web, live.as_ref(), &at(1));
            show(&mut web, &first);
            prop_assert!(is_shown(&first, &web));
            let second = mirror(&web, live.as_ref(), &at(2));
            prop_assert!(is_shown(&second, &web), "{:?}\n{:?}", first, second);
        }
    }

    #[test]
    fn the_status_does_not_depend_on_earlier_statuses(history in prop::collection::vec(any_live(), 0..10)) {
        let last = live(2, 3, &json!({"observedGeneration": 2, "conditions": [condition("Available")]}));
        let mut web = object();
        for live in &history {
            let shown = mirror(&web, live.as_ref(), &at(1));
            show(&mut web, &shown);
        }
        prop_assert_eq!(mirror(&web, Some(&last), &at(1)), mirror(&object(), Some(&last), &at(1)));
    }
}
