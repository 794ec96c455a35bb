//! Runs with a lost status write: it was refused, or the process ended before it.

use super::*;

fn probe() -> Scenario {
    Scenario::new(object(&json!({"waitProbe": {"address": "postgres:5432"}})), &[])
}

fn is_checked(scenario: &Scenario) -> bool {
    needs_checks(&scenario.object, &scenario.object.plan().unwrap(), scenario.live.as_ref())
}

/// Runs the gate once: writes the Deployment and loses the write of the status.
fn lose_status(mut scenario: Scenario, now: i64, seen: &[Observation]) -> Scenario {
    scenario.now = now;
    scenario.observations = seen.to_vec();
    assert!(scenario.decide().write().is_some(), "the gate opens");
    scenario.running()
}

fn opened_by(scenario: &Scenario) -> Option<OpenedBy> {
    let decision = scenario.decide();
    let (object, after, now) = (&scenario.object, &scenario.report(&decision), at(scenario.now));
    StatusChange { object, decision: &decision, write: Write::None, after, now }
        .opening()
        .map(|found| found.by)
}

#[test]
fn an_unreported_opening_is_reported_by_the_next_run() {
    let mut scenario = probe();
    scenario.step(1_000, &[refused()]);
    let mut scenario = lose_status(scenario, 1_010, &[ready()]);
    assert!(is_checked(&scenario), "checked although losses are ignored");
    assert_eq!(opened_by(&scenario), Some(OpenedBy::Dependencies));
    scenario.step(1_011, &[ready()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
    let status = scenario.object.status.as_ref().unwrap();
    assert_eq!((&status.gate_closed_time, &status.gate_opened_time), (&None, &Some(Time(at(1_011)))));
    assert!(!is_checked(&scenario), "an open gate is not checked");
}

#[test]
fn after_a_restart_an_opening_is_reported_only_after_a_check() {
    for reported in [unknown(), refused()] {
        let mut scenario = probe();
        scenario.step(1_000, &[reported]);
        let before = scenario.condition("DependenciesReady");
        let mut scenario = lose_status(scenario, 1_010, &[ready()]);
        scenario.step(1_020, &[unknown()]);
        assert_eq!((opened_by(&scenario), scenario.condition("DependenciesReady")), (None, before));
        assert!(scenario.object.status.as_ref().unwrap().gate_closed_time.is_some());
        scenario.step(1_030, &[refused()]);
        assert_eq!(scenario.condition("DependenciesReady"), "False/Waiting", "the present state");
        assert!(is_checked(&scenario), "checked until it is ready");
        scenario.step(1_040, &[ready()]);
        assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
        assert!(!is_checked(&scenario));
    }
}

#[test]
fn an_unreported_dependency_is_checked_until_it_is_reported() {
    let mut scenario = lose_status(probe(), 1_000, &[ready()]);
    scenario.step(1_010, &[unknown()]);
    assert!(is_checked(&scenario));
    scenario.step(1_020, &[ready()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
    assert!(!is_checked(&scenario));
}

#[test]
fn an_unreported_opening_at_the_deadline_is_reported_as_such() {
    let others = json!({"deadlineSeconds": 10, "onDeadline": "Proceed", "onLoss": "Ignore"});
    let mut scenario = Scenario::new(wait_for(&["a"], &others), &[]);
    scenario.step(1_000, &[refused()]);
    let mut scenario = lose_status(scenario, 1_010, &[refused()]);
    scenario.now = 1_011;
    assert_eq!(opened_by(&scenario), Some(OpenedBy::Deadline));
    scenario.step(1_011, &[refused()]);
    assert_eq!(scenario.condition("DependenciesReady"), "False/Waiting");
    assert_eq!(opened_by(&scenario), None, "reported once");
}

#[test]
fn an_edit_that_opens_the_gate_is_not_reported_as_ready_dependencies() {
    let others = json!({"gates": ["Update"], "onLoss": "Ignore"});
    let mut scenario = Scenario::new(wait_for(&["a"], &others), &[]).running();
    let before = scenario.object.clone();
    scenario.object.spec.template.insert("spec".to_owned(), json!({}));
    scenario.step(1_000, &[refused()]);
    assert_eq!(scenario.condition("UpdateHeld"), "True/TemplateHeld");
    scenario.object.spec = before.spec;
    scenario.now = 1_010;
    assert_eq!(opened_by(&scenario), Some(OpenedBy::Spec));
}

#[test]
fn a_ready_entry_keeps_its_message_after_an_edit() {
    let mut scenario = probe();
    scenario.step(1_000, &[ready()]);
    let mut scenario = scenario.running();
    scenario.object.metadata.generation = Some(3);
    scenario.step(1_010, &[]);
    let entry = &scenario.object.status.as_ref().unwrap().dependencies[0];
    assert_eq!((entry.ready, entry.message.as_deref()), (true, Some("connected")));
}

#[test]
fn a_check_failure_is_reported_for_a_closed_gate_and_keeps_the_entry_of_an_open_one() {
    for before in [unknown(), refused()] {
        let mut scenario = Scenario::new(wait_for(&["a"], &json!({})), &[]);
        scenario.step(1_000, &[before]);
        // The second step is after a restart, before the first check.
        for (now, seen) in [(1_010, blind()), (1_020, unknown()), (1_030, blind())] {
            scenario.step(now, &[seen]);
            let status = scenario.object.status.as_ref().unwrap();
            assert_eq!(status.waiting_for.as_deref(), Some("a (ServicesUnknown)"));
            let ready = scenario.object.condition("Ready").unwrap();
            let text = "waiting for a: Services cannot be read: the watch is down";
            assert_eq!((ready.status.as_str(), ready.message.as_deref()), ("False", Some(text)));
            assert_eq!(scenario.condition("DependenciesReady"), "Unknown/Unknown");
        }
    }
    let mut scenario = Scenario::new(wait_for(&["a"], &json!({})), &[]);
    scenario.step(1_000, &[ready()]);
    let mut scenario = scenario.running();
    scenario.step(1_010, &[blind()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady", "not a loss");
    let text = "ready at the last check; a cannot be checked: Services cannot be read: the watch is down";
    assert_eq!(scenario.object.condition("DependenciesReady").unwrap().message.as_deref(), Some(text));
    let entry = &scenario.object.status.as_ref().unwrap().dependencies[0];
    assert_eq!((entry.ready, entry.message.as_deref()), (true, Some("connected")), "the entry stays");
}

#[test]
fn an_update_is_held_back_while_a_check_cannot_be_carried_out() {
    let mut scenario = Scenario::new(wait_for(&["a"], &json!({"gates": ["Create", "Update"]})), &[]);
    scenario.step(1_000, &[ready()]);
    let mut scenario = scenario.running();
    scenario.object.spec.template.insert("edit".to_owned(), 1.into());
    assert!(scenario.step(1_010, &[blind()]).write().unwrap().holds_template);
    assert_eq!(scenario.object.status.as_ref().unwrap().waiting_for.as_deref(), Some("a (ServicesUnknown)"));
    let message = scenario.object.condition("Ready").unwrap().message.clone().unwrap();
    assert_eq!(message, "an update is held back: waiting for a: Services cannot be read: the watch is down");
}

#[test]
fn an_adopted_deployment_with_the_same_template_is_not_held_back() {
    for (adoption, same, holds) in
        [("IfUnowned", false, true), ("IfUnowned", true, false), ("IfIdentical", false, false)]
    {
        let others = json!({"gates": ["Create", "Update"], "adoption": adoption});
        let mut scenario = Scenario::new(wait_for(&["a"], &others), &[refused()]).running();
        let live = scenario.live.as_mut().unwrap();
        live.metadata.owner_references.clear();
        live.metadata.annotations.clear();
        scenario.same_template = same;
        let write = scenario.decide().write().unwrap();
        assert_eq!((write.adopts, write.holds_template), (true, holds), "{adoption} {same}");
    }
}
