//! The status of each state.

use super::*;
use crate::deployment::GENERATION_ANNOTATION;
use crate::reasons::condition;

fn probe() -> WaitDeployment {
    object(&json!({"waitProbe": {"address": "postgres:5432"}}))
}

#[test]
fn conditions_follow_the_decision() {
    let mut scenario = Scenario::new(probe(), &[]);
    scenario.step(10, &[ready()]);
    let scenario = scenario.running();
    let object = &scenario.object;
    let running = scenario.decide();
    let waits = |seen: Observation| Scenario::new(probe(), &[seen]).decide();
    let course = |course| Decision { course, needs: Needs::unknown(), ..running.clone() };
    let current = |status: &Value| Applied::Current(Box::new(live(object, status)));
    let mut behind = live(object, &available());
    behind.metadata.annotations.insert(GENERATION_ANNOTATION.to_owned(), "1".to_owned());
    let with = |key: &str, value: Value| {
        let mut status = available();
        status[key] = value;
        status
    };
    let progressing = |status: &str, reason: &str| {
        with("conditions", json!([{"type": "Progressing", "status": status, "reason": reason}]))
    };
    let (no, yes) = (DryRun::Unknown, DryRun::Accepted);
    let cases = [
        (waits(unknown()), Applied::NotTried, no.clone()),
        (waits(refused()), Applied::NotTried, yes.clone()),
        (waits(denied()), Applied::NotTried, yes.clone()),
        (waits(invalid()), Applied::NotTried, yes.clone()),
        (waits(refused()), Applied::NotTried, refused_dry_run(RefusalKind::Invalid, "no")),
        (waits(refused()), Applied::NotTried, refused_dry_run(RefusalKind::Denied, "no")),
        (waits(refused()), Applied::NotTried, refused_dry_run(RefusalKind::Forbidden, "no")),
        (waits(refused()), Applied::NotTried, refused_dry_run(RefusalKind::Forbidden, "exceeded quota: q")),
        (course(Course::Conflict(Conflict::NeverAdopted)), Applied::NotTried, no.clone()),
        (course(Course::Terminating), Applied::NotTried, no.clone()),
        (running.clone(), refused_write(RefusalKind::Invalid, "no"), no.clone()),
        (running.clone(), refused_write(RefusalKind::Denied, "no"), no.clone()),
        (running.clone(), refused_write(RefusalKind::Forbidden, "no"), no.clone()),
        (running.clone(), Applied::Differs, no.clone()),
        (running.clone(), Applied::Current(Box::new(behind)), no.clone()),
        (running.clone(), current(&with("observedGeneration", json!(0))), no.clone()),
        (running.clone(), current(&with("updatedReplicas", json!(0))), no.clone()),
        (running.clone(), current(&with("replicas", json!(4))), no.clone()),
        (running.clone(), current(&progressing("False", "ProgressDeadlineExceeded")), no.clone()),
        (running.clone(), current(&progressing("True", "ReplicaSetUpdated")), no.clone()),
        (running.clone(), current(&progressing("True", "NewReplicaSetAvailable")), no.clone()),
        (running, current(&available()), no),
    ];
    let mut table = String::new();
    for (decision, applied, dry_run) in &cases {
        let status = report(object, decision, applied, dry_run, &Time(at(10)));
        writeln!(table, "{}", row(&status)).unwrap();
    }
    let expected = "\
False/True/Unknown/WaitingForDependencies Unknown/Unknown          Unknown/Unknown
False/True/False/WaitingForDependencies   False/Waiting            True/Accepted
True/False/False/PolicyDenied             False/PolicyDenied       True/Accepted
True/False/False/InvalidSpec              False/InvalidSpec        True/Accepted
True/False/False/TemplateRejected         False/Waiting            False/Invalid
False/True/False/WaitingForDependencies   False/Waiting            False/AdmissionDenied
False/True/False/WaitingForDependencies   False/Waiting            False/Forbidden
False/True/False/WaitingForDependencies   False/Waiting            False/QuotaExceeded
True/False/False/DeploymentConflict       Unknown/Unknown          Unknown/Unknown
False/True/False/DeploymentTerminating    Unknown/Unknown          Unknown/Unknown
True/False/False/TemplateRejected         True/AllReady            False/Invalid
True/False/False/AdmissionDenied          True/AllReady            False/AdmissionDenied
True/False/False/ApplyForbidden           True/AllReady            False/Forbidden
True/False/False/DeploymentConflict       True/AllReady            Unknown/Unknown
False/True/False/RolloutInProgress        True/AllReady            True/Accepted
False/True/False/RolloutInProgress        True/AllReady            True/Accepted
False/True/False/RolloutInProgress        True/AllReady            True/Accepted
False/True/False/RolloutInProgress        True/AllReady            True/Accepted
True/False/False/ProgressDeadlineExceeded True/AllReady            True/Accepted
False/True/False/RolloutInProgress        True/AllReady            True/Accepted
False/True/False/Unavailable              True/AllReady            True/Accepted
False/False/True/Available                 True/AllReady            True/Accepted
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn the_fragment_has_the_fields_of_a_closed_gate_only_while_it_is_closed() {
    let mut scenario = Scenario::new(probe(), &[refused()]);
    scenario.now = 10;
    let body = json!(scenario.report(&scenario.decide()));
    assert_eq!(body["observedGeneration"], 2);
    assert_eq!(body["waitingFor"], "postgres:5432 (Refused)");
    assert_eq!(body["gateClosedTime"], "1970-01-01T00:00:10Z");
    assert_eq!(body.get("gateOpenedTime"), None);
    let entry = json!({
        "name": "default", "ready": false, "reason": "Refused", "message": "connection refused",
        "lastTransitionTime": "1970-01-01T00:00:10Z",
    });
    assert_eq!(body["dependencies"], json!([entry]));
    assert_eq!(body["conditions"][0]["message"], "waiting for postgres:5432: connection refused");

    scenario.step(10, &[refused()]);
    scenario.now = 20;
    scenario.observations = vec![ready()];
    let open = json!(scenario.report(&scenario.decide()));
    for gone in ["waitingFor", "gateClosedTime", "deadlineTime"] {
        assert_eq!(open.get(gone), None, "{gone} is left out, so that the apply removes it");
    }
    assert_eq!(open["gateOpenedTime"], "1970-01-01T00:00:20Z");
    assert_eq!(open["dependencies"][0]["ready"], true);
}

#[test]
fn several_blocking_dependencies_are_reported_in_short_and_in_full() {
    let seen = [ready(), refused(), denied(), unknown()];
    let mut scenario = Scenario::new(wait_for(&["a", "b", "c", "d"], &json!({})), &seen);
    scenario.step(10, &seen[..2].iter().chain([&refused(), &unknown()]).cloned().collect::<Vec<_>>());
    let status = scenario.object.status.as_ref().unwrap();
    assert_eq!(status.waiting_for.as_deref(), Some("b (Refused) +2"));
    let ready = scenario.object.condition(condition::READY).unwrap();
    let message = ready.message.as_deref();
    assert_eq!(message, Some("waiting for b: connection refused; and c (Refused), d (Unknown)"));
    scenario.step(20, &seen);
    let ready = scenario.object.condition(condition::READY).unwrap();
    assert_eq!(ready.message.as_deref(), Some("c is not probed: because"), "a user has to act");
    scenario.step(30, &[unknown(), unknown(), unknown(), unknown()]);
    assert_eq!(scenario.condition("Ready"), "False/PolicyDenied", "until the next check");
}

#[test]
fn an_invalid_probe_is_reported_while_the_deployment_runs() {
    let object = object(&json!({"waitProbe": {"address": "postgres:5432", "timeout": 3}}));
    let mut scenario = Scenario::new(object, &[]).running();
    scenario.step(10, &[]);
    assert_eq!(scenario.condition("Ready"), "True/Available", "it still runs");
    assert_eq!(scenario.condition("DependenciesReady"), "Unknown/InvalidProbe");
    let condition = scenario.object.condition(condition::DEPENDENCIES_READY).unwrap();
    assert!(condition.message.as_deref().unwrap().contains("integers are nanoseconds"));
    scenario.live = None;
    scenario.step(20, &[]);
    assert_eq!(scenario.condition("Ready"), "False/InvalidProbe");
    assert_eq!(scenario.condition("Stalled"), "True/InvalidProbe");
}

#[test]
fn a_result_of_an_earlier_process_stays_until_the_next_check() {
    for seen in [refused(), denied(), invalid()] {
        let mut scenario = Scenario::new(probe(), &[]);
        scenario.step(10, std::slice::from_ref(&seen));
        scenario.now = 20;
        scenario.observations = vec![unknown()];
        let again = scenario.report(&scenario.decide());
        assert!(is_shown(&again, &scenario.object), "after {seen:?}: {}", row(&again));
        scenario.object.metadata.generation = Some(3);
        let edited = scenario.report(&scenario.decide());
        assert_eq!(edited.conditions[0].status, "Unknown", "a new generation may name something else");
    }
    let mut scenario = Scenario::new(probe(), &[]);
    scenario.step(10, &[ready()]);
    scenario.observations = vec![unknown()];
    assert_eq!(scenario.decide().course, Course::Wait, "an earlier result opens no gate");
}

#[test]
fn transition_times_change_with_the_status_only() {
    let mut scenario = Scenario::new(probe(), &[]);
    let mut step = |now, seen| {
        scenario.step(now, &[seen]);
        let ready = scenario.object.condition(condition::READY).unwrap();
        (ready.reason.clone().unwrap(), ready.last_transition_time.clone().unwrap().0.as_second())
    };
    assert_eq!(step(5, unknown()), ("WaitingForDependencies".to_owned(), 5));
    assert_eq!(step(10, refused()), ("WaitingForDependencies".to_owned(), 10), "no longer Unknown");
    assert_eq!(step(20, denied()), ("PolicyDenied".to_owned(), 10), "False both times");
}

#[test]
fn an_expired_deadline_sets_the_conditions_of_on_deadline() {
    for (on_deadline, progress) in [("Fail", ["False", "True"]), ("KeepWaiting", ["True", "False"])] {
        let others = json!({"deadlineSeconds": 60, "onDeadline": on_deadline});
        let mut scenario = Scenario::new(wait_for(&["a"], &others), &[]);
        scenario.step(10, &[refused()]);
        assert_eq!(
            scenario.object.status.as_ref().unwrap().deadline_time,
            Some(Time(at(70))),
            "in the status from the beginning"
        );
        scenario.step(70, &[refused()]);
        assert_eq!(scenario.condition("Ready"), "False/DeadlineExceeded");
        let [reconciling, stalled] = progress;
        assert_eq!(scenario.condition("Reconciling"), format!("{reconciling}/DeadlineExceeded"));
        assert_eq!(scenario.condition("Stalled"), format!("{stalled}/DeadlineExceeded"));
    }
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let scenario = Scenario::new(object(&json!({})), &[]);
    let applied = refused_write(RefusalKind::Invalid, &"ä".repeat(2000));
    let status = report(&scenario.object, &scenario.decide(), &applied, &DryRun::Unknown, &Time(at(1)));
    assert_eq!(status.conditions[0].message.as_deref().unwrap().len(), 1024);
}
