//! The table of states and events, and what each looks like from outside.

use std::cell::Cell;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mainstay_api::WaitDeploymentStatus;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::deployment::{GENERATION_ANNOTATION, desired};
use crate::reasons::{self, condition};

fn at(seconds: i64) -> Time {
    Time(Timestamp::from_second(seconds).unwrap())
}

fn object(wait_probe: &Value) -> WaitDeployment {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
        "waitProbe": wait_probe,
    });
    serde_json::from_value(object).unwrap()
}

fn probe() -> Value {
    json!({"address": "postgres:5432"})
}

fn live(object: &WaitDeployment, status: &Value) -> LiveDeployment {
    let mut live = desired(object);
    live["metadata"]["uid"] = json!("d1");
    live["metadata"]["generation"] = json!(1);
    live["status"] = status.clone();
    serde_json::from_value(live).unwrap()
}

fn available() -> Value {
    json!({
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
        "conditions": [{"type": "Available", "status": "True"}],
    })
}

fn refused() -> ProbeResult {
    ProbeResult::NotReady { reason: reasons::probe::REFUSED, message: "connection refused".to_owned() }
}

fn denied() -> ProbeResult {
    ProbeResult::Denied { message: "because".to_owned() }
}

/// The server's side of an apply: the fragment replaces what the gate owns.
fn write(object: &mut WaitDeployment, status: &GateStatus) {
    let text = serde_json::to_string(status).unwrap();
    object.status = Some(serde_json::from_str::<WaitDeploymentStatus>(&text).unwrap());
}

fn row(status: &GateStatus) -> String {
    let mut row = String::new();
    for condition in &status.conditions {
        let reason = condition.reason.as_deref().unwrap_or_default();
        write!(row, " {}={}/{reason}", condition.type_, condition.status).unwrap();
    }
    row
}

#[test]
fn every_state_meets_every_event_as_in_the_table() {
    let ours = object(&probe());
    let mut foreign = live(&ours, &available());
    foreign.metadata.owner_references[0].uid = "other".to_owned();
    foreign.metadata.owner_references[0].kind = "Rollout".to_owned();
    let mut terminating = live(&ours, &available());
    terminating.metadata.deletion_timestamp = Some(at(1));
    let deployments = [
        ("none", None),
        ("ours", Some(live(&ours, &available()))),
        ("foreign", Some(foreign)),
        ("leaving", Some(terminating)),
    ];
    let probes = [("valid", probe()), ("absent", Value::Null), ("invalid", json!({"address": ":1"}))];
    let results = [
        ("-", None),
        ("ready", Some(ProbeResult::Ready)),
        ("refused", Some(refused())),
        ("denied", Some(denied())),
    ];

    let mut table = String::new();
    for (deployment, live) in &deployments {
        for (kind, wait_probe) in &probes {
            for (name, result) in &results {
                let asked = Cell::new(false);
                let decision = decide(&object(wait_probe), live.as_ref(), |_, _| {
                    asked.set(true);
                    result.clone()
                });
                if !asked.get() && *name != "-" {
                    continue;
                }
                let asked = if asked.get() { "asks" } else { "" };
                let opened = match &decision {
                    Decision::Open(opened) => format!("open {opened:?}"),
                    other => other.as_str().to_owned(),
                };
                writeln!(table, "{deployment:8} {kind:8} {name:8} {asked:5} {opened}").unwrap();
            }
        }
    }
    let expected = "\
none     valid    -        asks  closed
none     valid    ready    asks  open Answered
none     valid    refused  asks  closed
none     valid    denied   asks  denied
none     absent   -              open NoPrerequisite
none     invalid  -              invalid
ours     valid    -              open Exists
ours     absent   -              open Exists
ours     invalid  -              open Exists
foreign  valid    -              conflict
foreign  absent   -              conflict
foreign  invalid  -              conflict
leaving  valid    -              terminating
leaving  absent   -              terminating
leaving  invalid  -              terminating
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn conditions_follow_the_decision() {
    let ours = object(&probe());
    let address = ours.wait_probe.as_ref().unwrap().resolve().unwrap().0;
    let wait = |result| Decision::Wait { address: address.clone(), result };
    let current = |status: &Value| Applied::Current(Box::new(live(&ours, status)));
    let open = Decision::Open(Opened::Exists);
    let mut behind = live(&ours, &available());
    behind.metadata.annotations.insert(GENERATION_ANNOTATION.to_owned(), "1".to_owned());
    let with = |key: &str, value: Value| {
        let mut status = available();
        status[key] = value;
        status
    };
    let progressing = |status: &str, reason: &str| {
        with("conditions", json!([{"type": "Progressing", "status": status, "reason": reason}]))
    };
    let cases = [
        (wait(None), Applied::NotTried),
        (wait(Some(refused())), Applied::NotTried),
        (wait(Some(denied())), Applied::NotTried),
        (Decision::Conflict { owner: "nobody".to_owned() }, Applied::NotTried),
        (Decision::Terminating, Applied::NotTried),
        (open.clone(), Applied::Rejected("no".to_owned())),
        (open.clone(), Applied::Forbidden("no".to_owned())),
        (open.clone(), Applied::Current(Box::new(behind))),
        (open.clone(), current(&with("observedGeneration", json!(0)))),
        (open.clone(), current(&with("updatedReplicas", json!(0)))),
        (open.clone(), current(&with("replicas", json!(2)))),
        (open.clone(), current(&progressing("False", "ProgressDeadlineExceeded"))),
        (open.clone(), current(&progressing("True", "ReplicaSetUpdated"))),
        (open.clone(), current(&progressing("True", "NewReplicaSetAvailable"))),
        (open.clone(), current(&available())),
    ];
    let mut table = String::new();
    for (decision, applied) in &cases {
        let status = report(&ours, decision, applied, &at(10));
        writeln!(table, "{}", row(&status).trim_start()).unwrap();
    }
    let expected = "\
Ready=Unknown/WaitingForDependencies DependenciesReady=Unknown/Unknown Reconciling=True/WaitingForDependencies Stalled=False/WaitingForDependencies
Ready=False/WaitingForDependencies DependenciesReady=False/Waiting Reconciling=True/WaitingForDependencies Stalled=False/WaitingForDependencies
Ready=False/PolicyDenied DependenciesReady=False/PolicyDenied Reconciling=False/PolicyDenied Stalled=True/PolicyDenied
Ready=False/DeploymentConflict DependenciesReady=Unknown/Unknown Reconciling=False/DeploymentConflict Stalled=True/DeploymentConflict
Ready=False/DeploymentTerminating DependenciesReady=Unknown/Unknown Reconciling=True/DeploymentTerminating Stalled=False/DeploymentTerminating
Ready=False/TemplateRejected DependenciesReady=True/AllReady Reconciling=False/TemplateRejected Stalled=True/TemplateRejected
Ready=False/ApplyForbidden DependenciesReady=True/AllReady Reconciling=False/ApplyForbidden Stalled=True/ApplyForbidden
Ready=False/RolloutInProgress DependenciesReady=True/AllReady Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/RolloutInProgress DependenciesReady=True/AllReady Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/RolloutInProgress DependenciesReady=True/AllReady Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/RolloutInProgress DependenciesReady=True/AllReady Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/ProgressDeadlineExceeded DependenciesReady=True/AllReady Reconciling=False/ProgressDeadlineExceeded Stalled=True/ProgressDeadlineExceeded
Ready=False/RolloutInProgress DependenciesReady=True/AllReady Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/Unavailable DependenciesReady=True/AllReady Reconciling=True/Unavailable Stalled=False/Unavailable
Ready=True/Available DependenciesReady=True/AllReady Reconciling=False/Available Stalled=False/Available
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn the_fragment_says_what_is_waited_for_and_then_no_more() {
    let ours = object(&probe());
    let decision = decide(&ours, None, |_, _| Some(refused()));
    let waiting = report(&ours, &decision, &Applied::NotTried, &at(10));
    let body = waiting.to_apply(&ours);
    assert_eq!(
        body["metadata"],
        json!({"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7"})
    );
    assert_eq!(body["status"]["observedGeneration"], 2);
    assert_eq!(body["status"]["waitingFor"], "postgres:5432 (Refused)");
    let entry = json!({
        "name": "default", "ready": false, "reason": "Refused", "message": "connection refused",
        "lastTransitionTime": "1970-01-01T00:00:10Z",
    });
    assert_eq!(body["status"]["dependencies"], json!([entry]));
    assert_eq!(body["status"]["conditions"][0]["message"], "waiting for postgres:5432: connection refused");

    let applied = Applied::Current(Box::new(live(&ours, &available())));
    let open = report(&ours, &Decision::Open(Opened::Answered), &applied, &at(20)).to_apply(&ours);
    assert_eq!(open["status"].get("waitingFor"), None, "left out, so that the apply removes it");
    assert_eq!(open["status"]["dependencies"][0]["ready"], true);
}

#[test]
fn an_invalid_probe_is_told_while_the_deployment_runs() {
    let ours = object(&json!({"address": "postgres:5432", "timeout": 3}));
    let applied = Applied::Current(Box::new(live(&ours, &available())));
    let status = report(&ours, &Decision::Open(Opened::Exists), &applied, &at(10));
    assert_eq!(status.conditions[0].status, "True", "it still runs");
    let told = &status.conditions[1];
    assert_eq!((told.status.as_str(), told.reason.as_deref()), ("Unknown", Some("InvalidProbe")));
    assert!(told.message.as_deref().unwrap().contains("integers are nanoseconds"));
}

#[test]
fn what_an_earlier_replica_found_out_stands_until_it_is_tried_again() {
    let untried = decide(&object(&probe()), None, |_, _| None);
    let mut ours = object(&probe());
    assert!(!is_still_told(&ours, &untried), "a new object is told about");
    for result in [refused(), denied()] {
        let waits = decide(&object(&probe()), None, |_, _| Some(result.clone()));
        let status = report(&ours, &waits, &Applied::NotTried, &at(10));
        write(&mut ours, &status);
        assert!(is_still_told(&ours, &untried), "after {result:?}");
        assert!(!is_still_told(&ours, &waits), "a result is always told");
    }
    let elsewhere = json!({"address": "postgres:54321", "timeout": "1s"});
    let moved = decide(&object(&elsewhere), None, |_, _| None);
    assert!(!is_still_told(&ours, &moved), "another address that begins alike");
    ours.metadata.generation = Some(ours.generation() + 1);
    assert!(!is_still_told(&ours, &untried), "a new generation");
}

#[test]
fn transition_times_change_with_the_status_only() {
    let mut ours = object(&probe());
    let wait = |result: ProbeResult| decide(&object(&probe()), None, |_, _| Some(result));
    let step = |ours: &mut WaitDeployment, decision: &Decision, now| {
        let status = report(ours, decision, &Applied::NotTried, &at(now));
        write(ours, &status);
        let ready = ours.condition(condition::READY).unwrap();
        (ready.reason.clone().unwrap(), ready.last_transition_time.clone().unwrap().0.as_second())
    };
    assert_eq!(step(&mut ours, &wait(refused()), 10), ("WaitingForDependencies".to_owned(), 10));
    assert_eq!(step(&mut ours, &wait(denied()), 20), ("PolicyDenied".to_owned(), 10), "False both times");
    let untried = decide(&object(&probe()), None, |_, _| None);
    assert_eq!(step(&mut ours, &untried, 30), ("WaitingForDependencies".to_owned(), 30), "now Unknown");
}

#[test]
fn a_long_refusal_is_cut_between_characters() {
    let ours = object(&probe());
    let applied = Applied::Rejected("ä".repeat(2000));
    let status = report(&ours, &Decision::Open(Opened::Exists), &applied, &at(1));
    assert_eq!(status.conditions[0].message.as_deref().unwrap().len(), 1024);
}

fn any_result() -> impl Strategy<Value = Option<ProbeResult>> {
    prop_oneof![Just(None), Just(Some(ProbeResult::Ready)), Just(Some(refused())), Just(Some(denied()))]
}

fn any_applied() -> impl Strategy<Value = Applied> {
    let current = (0..3i64, 0..3i64, 0..2i64, any::<bool>()).prop_map(|(replicas, updated, observed, up)| {
        let up = if up { "True" } else { "False" };
        let status = json!({
            "replicas": replicas, "updatedReplicas": updated, "observedGeneration": observed,
            "conditions": [{"type": "Available", "status": up}],
        });
        Applied::Current(Box::new(live(&object(&probe()), &status)))
    });
    prop_oneof![Just(Applied::Rejected("no".to_owned())), Just(Applied::Forbidden("no".to_owned())), current]
}

proptest! {
    #[test]
    fn a_second_look_at_the_same_state_writes_nothing(
        history in prop::collection::vec((any_result(), any_applied(), any::<bool>()), 1..12),
    ) {
        let mut ours = object(&probe());
        for (round, (result, applied, exists)) in history.into_iter().enumerate() {
            let now = at(i64::try_from(round).unwrap() * 10);
            let live = exists.then(|| live(&ours, &available()));
            let decision = decide(&ours, live.as_ref(), |_, _| result);
            let applied = if matches!(decision, Decision::Open(_)) { applied } else { Applied::NotTried };
            let first = report(&ours, &decision, &applied, &now);
            write(&mut ours, &first);
            let later = at(i64::try_from(round).unwrap() * 10 + 5);
            let second = report(&ours, &decision, &applied, &later);
            prop_assert!(second.is_shown_by(&ours), "{first:?}\n{second:?}");
            let true_ones = first.conditions.iter().filter(|c| c.type_ != condition::DEPENDENCIES_READY && c.status == "True");
            prop_assert!(true_ones.count() <= 1, "{first:?}");
            let types: Vec<_> = first.conditions.iter().map(|c| c.type_.as_str()).collect();
            prop_assert_eq!(types, condition::OF_GATE.to_vec());
        }
    }
}
