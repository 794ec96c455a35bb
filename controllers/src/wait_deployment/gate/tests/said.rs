//! What each state looks like from outside.

use super::*;
use crate::deployment::GENERATION_ANNOTATION;
use crate::reasons::condition;

fn probe() -> WaitDeployment {
    object(&json!({"waitProbe": {"address": "postgres:5432"}}))
}

#[test]
fn conditions_follow_the_decision() {
    let mut stage = Stage::new(probe(), &[]);
    stage.step(10, &[ready()]);
    let stage = stage.running();
    let ours = &stage.object;
    let running = stage.decide();
    let waits = |seen: Observation| Stage::new(probe(), &[seen]).decide();
    let course = |course| Decision { course, needs: Needs::unknown(), ..running.clone() };
    let current = |status: &Value| Applied::Current(Box::new(live(ours, status)));
    let mut behind = live(ours, &available());
    behind.metadata.annotations.insert(GENERATION_ANNOTATION.to_owned(), "1".to_owned());
    let with = |key: &str, value: Value| {
        let mut status = available();
        status[key] = value;
        status
    };
    let progressing = |status: &str, reason: &str| {
        with("conditions", json!([{"type": "Progressing", "status": status, "reason": reason}]))
    };
    let (no, yes) = (Trial::Unknown, Trial::Accepted);
    let cases = [
        (waits(unknown()), Applied::NotTried, no.clone()),
        (waits(refused()), Applied::NotTried, yes.clone()),
        (waits(denied()), Applied::NotTried, yes.clone()),
        (waits(invalid()), Applied::NotTried, yes.clone()),
        (waits(refused()), Applied::NotTried, Trial::Rejected("no".to_owned())),
        (waits(refused()), Applied::NotTried, Trial::Denied("no".to_owned())),
        (waits(refused()), Applied::NotTried, Trial::Forbidden("no".to_owned())),
        (waits(refused()), Applied::NotTried, Trial::Forbidden("exceeded quota: q".to_owned())),
        (course(Course::Conflict(Conflict::NeverAdopted)), Applied::NotTried, no.clone()),
        (course(Course::Terminating), Applied::NotTried, no.clone()),
        (running.clone(), Applied::Rejected("no".to_owned()), no.clone()),
        (running.clone(), Applied::Denied("no".to_owned()), no.clone()),
        (running.clone(), Applied::Forbidden("no".to_owned()), no.clone()),
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
    for (decision, applied, trial) in &cases {
        let status = report(ours, decision, applied, trial, &Time(at(10)));
        writeln!(table, "{}", row(&status)).unwrap();
    }
    let expected = "\
Ready=Unknown/WaitingForDependencies DependenciesReady=Unknown/Unknown TemplateAccepted=Unknown/Unknown Reconciling=True/WaitingForDependencies Stalled=False/WaitingForDependencies
Ready=False/WaitingForDependencies DependenciesReady=False/Waiting TemplateAccepted=True/Accepted Reconciling=True/WaitingForDependencies Stalled=False/WaitingForDependencies
Ready=False/PolicyDenied DependenciesReady=False/PolicyDenied TemplateAccepted=True/Accepted Reconciling=False/PolicyDenied Stalled=True/PolicyDenied
Ready=False/InvalidSpec DependenciesReady=False/InvalidSpec TemplateAccepted=True/Accepted Reconciling=False/InvalidSpec Stalled=True/InvalidSpec
Ready=False/TemplateRejected DependenciesReady=False/Waiting TemplateAccepted=False/Invalid Reconciling=False/TemplateRejected Stalled=True/TemplateRejected
Ready=False/WaitingForDependencies DependenciesReady=False/Waiting TemplateAccepted=False/AdmissionDenied Reconciling=True/WaitingForDependencies Stalled=False/WaitingForDependencies
Ready=False/WaitingForDependencies DependenciesReady=False/Waiting TemplateAccepted=False/Forbidden Reconciling=True/WaitingForDependencies Stalled=False/WaitingForDependencies
Ready=False/WaitingForDependencies DependenciesReady=False/Waiting TemplateAccepted=False/QuotaExceeded Reconciling=True/WaitingForDependencies Stalled=False/WaitingForDependencies
Ready=False/DeploymentConflict DependenciesReady=Unknown/Unknown TemplateAccepted=Unknown/Unknown Reconciling=False/DeploymentConflict Stalled=True/DeploymentConflict
Ready=False/DeploymentTerminating DependenciesReady=Unknown/Unknown TemplateAccepted=Unknown/Unknown Reconciling=True/DeploymentTerminating Stalled=False/DeploymentTerminating
Ready=False/TemplateRejected DependenciesReady=True/AllReady TemplateAccepted=False/Invalid Reconciling=False/TemplateRejected Stalled=True/TemplateRejected
Ready=False/AdmissionDenied DependenciesReady=True/AllReady TemplateAccepted=False/AdmissionDenied Reconciling=False/AdmissionDenied Stalled=True/AdmissionDenied
Ready=False/ApplyForbidden DependenciesReady=True/AllReady TemplateAccepted=False/Forbidden Reconciling=False/ApplyForbidden Stalled=True/ApplyForbidden
Ready=False/DeploymentConflict DependenciesReady=True/AllReady TemplateAccepted=Unknown/Unknown Reconciling=False/DeploymentConflict Stalled=True/DeploymentConflict
Ready=False/RolloutInProgress DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/RolloutInProgress DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/RolloutInProgress DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/RolloutInProgress DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/ProgressDeadlineExceeded DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=False/ProgressDeadlineExceeded Stalled=True/ProgressDeadlineExceeded
Ready=False/RolloutInProgress DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=True/RolloutInProgress Stalled=False/RolloutInProgress
Ready=False/Unavailable DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=True/Unavailable Stalled=False/Unavailable
Ready=True/Available DependenciesReady=True/AllReady TemplateAccepted=True/Accepted Reconciling=False/Available Stalled=False/Available
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn the_fragment_says_what_is_waited_for_and_then_no_more() {
    let mut stage = Stage::new(probe(), &[refused()]);
    stage.now = 10;
    let body = json!(stage.report(&stage.decide()));
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

    stage.step(10, &[refused()]);
    stage.now = 20;
    stage.observations = vec![ready()];
    let open = json!(stage.report(&stage.decide()));
    for gone in ["waitingFor", "gateClosedTime", "deadlineTime"] {
        assert_eq!(open.get(gone), None, "{gone} is left out, so that the apply removes it");
    }
    assert_eq!(open["gateOpenedTime"], "1970-01-01T00:00:20Z");
    assert_eq!(open["dependencies"][0]["ready"], true);
}

#[test]
fn several_are_told_in_short_and_in_full() {
    let seen = [ready(), refused(), denied(), unknown()];
    let mut stage = Stage::new(wait_for(&["a", "b", "c", "d"], &json!({})), &seen);
    stage.step(10, &seen[..2].iter().chain([&refused(), &unknown()]).cloned().collect::<Vec<_>>());
    let status = stage.object.status.as_ref().unwrap();
    assert_eq!(status.waiting_for.as_deref(), Some("b (Refused) +2"));
    let ready = stage.object.condition(condition::READY).unwrap();
    let message = ready.message.as_deref();
    assert_eq!(message, Some("waiting for b: connection refused; and c (Refused), d (Unknown)"));
    stage.step(20, &seen);
    let ready = stage.object.condition(condition::READY).unwrap();
    assert_eq!(ready.message.as_deref(), Some("c is not probed: because"), "a person has to see to that");
    stage.step(30, &[unknown(), unknown(), unknown(), unknown()]);
    assert_eq!(stage.condition("Ready"), "False/PolicyDenied", "until it has been tried again");
}

#[test]
fn an_invalid_probe_is_told_while_the_deployment_runs() {
    let object = object(&json!({"waitProbe": {"address": "postgres:5432", "timeout": 3}}));
    let mut stage = Stage::new(object, &[]).running();
    stage.step(10, &[]);
    assert_eq!(stage.condition("Ready"), "True/Available", "it still runs");
    assert_eq!(stage.condition("DependenciesReady"), "Unknown/InvalidProbe");
    let told = stage.object.condition(condition::DEPENDENCIES_READY).unwrap();
    assert!(told.message.as_deref().unwrap().contains("integers are nanoseconds"));
    stage.live = None;
    stage.step(20, &[]);
    assert_eq!(stage.condition("Ready"), "False/InvalidProbe");
    assert_eq!(stage.condition("Stalled"), "True/InvalidProbe");
}

#[test]
fn what_an_earlier_replica_found_out_stands_until_it_is_tried_again() {
    for seen in [refused(), denied(), invalid()] {
        let mut stage = Stage::new(probe(), &[]);
        stage.step(10, std::slice::from_ref(&seen));
        stage.now = 20;
        stage.observations = vec![unknown()];
        let again = stage.report(&stage.decide());
        assert!(again.is_shown_by(&stage.object), "after {seen:?}: {}", row(&again));
        stage.object.metadata.generation = Some(3);
        let edited = stage.report(&stage.decide());
        assert_eq!(edited.conditions[0].status, "Unknown", "a new generation may name something else");
    }
    let mut stage = Stage::new(probe(), &[]);
    stage.step(10, &[ready()]);
    stage.observations = vec![unknown()];
    assert_eq!(stage.decide().course, Course::Wait, "of what was ready before nothing opens");
}

#[test]
fn transition_times_change_with_the_status_only() {
    let mut stage = Stage::new(probe(), &[]);
    let mut step = |now, seen| {
        stage.step(now, &[seen]);
        let ready = stage.object.condition(condition::READY).unwrap();
        (ready.reason.clone().unwrap(), ready.last_transition_time.clone().unwrap().0.as_second())
    };
    assert_eq!(step(5, unknown()), ("WaitingForDependencies".to_owned(), 5));
    assert_eq!(step(10, refused()), ("WaitingForDependencies".to_owned(), 10), "no longer Unknown");
    assert_eq!(step(20, denied()), ("PolicyDenied".to_owned(), 10), "False both times");
}

#[test]
fn a_deadline_is_told_as_what_follows_from_it() {
    for (on_deadline, progress) in [("Fail", ["False", "True"]), ("KeepWaiting", ["True", "False"])] {
        let others = json!({"deadlineSeconds": 60, "onDeadline": on_deadline});
        let mut stage = Stage::new(wait_for(&["a"], &others), &[]);
        stage.step(10, &[refused()]);
        assert_eq!(
            stage.object.status.as_ref().unwrap().deadline_time,
            Some(Time(at(70))),
            "told from the beginning"
        );
        stage.step(70, &[refused()]);
        assert_eq!(stage.condition("Ready"), "False/DeadlineExceeded");
        let [reconciling, stalled] = progress;
        assert_eq!(stage.condition("Reconciling"), format!("{reconciling}/DeadlineExceeded"));
        assert_eq!(stage.condition("Stalled"), format!("{stalled}/DeadlineExceeded"));
    }
}

#[test]
fn a_long_refusal_is_cut_between_characters() {
    let stage = Stage::new(object(&json!({})), &[]);
    let applied = Applied::Rejected("ä".repeat(2000));
    let status = report(&stage.object, &stage.decide(), &applied, &Trial::Unknown, &Time(at(1)));
    assert_eq!(status.conditions[0].message.as_deref().unwrap().len(), 1024);
}
