//! What was done and could not be told: the write of a status may be refused, or never made.

use super::*;

fn probe() -> Stage {
    Stage::new(object(&json!({"waitProbe": {"address": "postgres:5432"}})), &[])
}

fn is_looked_at(stage: &Stage) -> bool {
    looks(&stage.object, &stage.object.plan().unwrap(), stage.live.as_ref())
}

/// The Deployment is written, and nothing is told.
fn lose(mut stage: Stage, now: i64, seen: &[Observation]) -> Stage {
    stage.now = now;
    stage.observations = seen.to_vec();
    assert!(stage.decide().write().is_some(), "it opens");
    stage.running()
}

fn opened_by(stage: &Stage) -> Option<OpenedBy> {
    let decision = stage.decide();
    let (object, after, now) = (&stage.object, &stage.report(&decision), at(stage.now));
    Change { object, decision: &decision, deed: Deed::Nothing, after, now }.opening().map(|found| found.by)
}

#[test]
fn an_opening_that_was_not_told_is_told_the_next_time() {
    let mut stage = probe();
    stage.step(1_000, &[refused()]);
    let mut stage = lose(stage, 1_010, &[ready()]);
    assert!(is_looked_at(&stage), "though losses are ignored");
    assert_eq!(opened_by(&stage), Some(OpenedBy::Dependencies));
    stage.step(1_011, &[ready()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
    let status = stage.object.status.as_ref().unwrap();
    assert_eq!((&status.gate_closed_time, &status.gate_opened_time), (&None, &Some(Time(at(1_011)))));
    assert!(!is_looked_at(&stage), "an outage is no business of an app that runs");
}

#[test]
fn after_a_restart_nothing_is_told_of_the_opening_before_somebody_has_looked() {
    for told in [unknown(), refused()] {
        let mut stage = probe();
        stage.step(1_000, &[told]);
        let before = stage.condition("DependenciesReady");
        let mut stage = lose(stage, 1_010, &[ready()]);
        stage.step(1_020, &[unknown()]);
        assert_eq!((opened_by(&stage), stage.condition("DependenciesReady")), (None, before));
        assert!(stage.object.status.as_ref().unwrap().gate_closed_time.is_some());
        stage.step(1_030, &[refused()]);
        assert_eq!(stage.condition("DependenciesReady"), "False/Waiting", "it is true by now");
        assert!(is_looked_at(&stage), "and is not left standing");
        stage.step(1_040, &[ready()]);
        assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
        assert!(!is_looked_at(&stage));
    }
}

#[test]
fn one_that_was_never_told_of_is_looked_at_until_it_can_be() {
    let mut stage = lose(probe(), 1_000, &[ready()]);
    stage.step(1_010, &[unknown()]);
    assert!(is_looked_at(&stage));
    stage.step(1_020, &[ready()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
    assert!(!is_looked_at(&stage));
}

#[test]
fn that_a_gate_went_on_without_is_no_success_the_next_time_either() {
    let others = json!({"deadlineSeconds": 10, "onDeadline": "Proceed", "onLoss": "Ignore"});
    let mut stage = Stage::new(wait_for(&["a"], &others), &[]);
    stage.step(1_000, &[refused()]);
    let mut stage = lose(stage, 1_010, &[refused()]);
    stage.now = 1_011;
    assert_eq!(opened_by(&stage), Some(OpenedBy::Deadline));
    stage.step(1_011, &[refused()]);
    assert_eq!(stage.condition("DependenciesReady"), "False/Waiting");
    assert_eq!(opened_by(&stage), None, "once");
}

#[test]
fn an_edit_that_leaves_nothing_to_hold_back_is_not_told_as_a_success() {
    let others = json!({"gates": ["Update"], "onLoss": "Ignore"});
    let mut stage = Stage::new(wait_for(&["a"], &others), &[]).running();
    let before = stage.object.clone();
    stage.object.spec.template.insert("spec".to_owned(), json!({}));
    stage.step(1_000, &[refused()]);
    assert_eq!(stage.condition("UpdateHeld"), "True/TemplateHeld");
    stage.object.spec = before.spec;
    stage.now = 1_010;
    assert_eq!(opened_by(&stage), Some(OpenedBy::Spec));
}

#[test]
fn what_held_keeps_its_words_whatever_the_spec_names_by_now() {
    let mut stage = probe();
    stage.step(1_000, &[ready()]);
    let mut stage = stage.running();
    stage.object.metadata.generation = Some(3);
    stage.step(1_010, &[]);
    let entry = &stage.object.status.as_ref().unwrap().dependencies[0];
    assert_eq!((entry.ready, entry.message.as_deref()), (true, Some("connected")));
}

#[test]
fn why_nobody_can_look_is_said_of_a_closed_gate_and_takes_nothing_from_an_open_one() {
    for before in [unknown(), refused()] {
        let mut stage = Stage::new(wait_for(&["a"], &json!({})), &[]);
        stage.step(1_000, &[before]);
        // The second time after a restart, when nobody has looked yet.
        for (now, seen) in [(1_010, blind()), (1_020, unknown()), (1_030, blind())] {
            stage.step(now, &[seen]);
            let status = stage.object.status.as_ref().unwrap();
            assert_eq!(status.waiting_for.as_deref(), Some("a (ServicesUnknown)"));
            let told = stage.object.condition("Ready").unwrap();
            let text = "waiting for a: Services cannot be read: the watch is down";
            assert_eq!((told.status.as_str(), told.message.as_deref()), ("False", Some(text)));
            assert_eq!(stage.condition("DependenciesReady"), "Unknown/Unknown");
        }
    }
    let mut stage = Stage::new(wait_for(&["a"], &json!({})), &[]);
    stage.step(1_000, &[ready()]);
    let mut stage = stage.running();
    stage.step(1_010, &[blind()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady", "no loss");
    let text = "held when last looked at; a cannot be looked at: Services cannot be read: the watch is down";
    assert_eq!(stage.object.condition("DependenciesReady").unwrap().message.as_deref(), Some(text));
    let entry = &stage.object.status.as_ref().unwrap().dependencies[0];
    assert_eq!((entry.ready, entry.message.as_deref()), (true, Some("connected")), "what held stands");
}

#[test]
fn an_update_is_held_while_nobody_can_look_and_says_so() {
    let mut stage = Stage::new(wait_for(&["a"], &json!({"gates": ["Create", "Update"]})), &[]);
    stage.step(1_000, &[ready()]);
    let mut stage = stage.running();
    stage.object.spec.template.insert("edit".to_owned(), 1.into());
    assert!(stage.step(1_010, &[blind()]).write().unwrap().holds_template);
    assert_eq!(stage.object.status.as_ref().unwrap().waiting_for.as_deref(), Some("a (ServicesUnknown)"));
    let told = stage.object.condition("Ready").unwrap().message.clone().unwrap();
    assert_eq!(told, "an update is held back: waiting for a: Services cannot be read: the watch is down");
}

#[test]
fn a_deployment_of_before_with_the_same_template_is_not_held() {
    for (adoption, same, holds) in
        [("IfUnowned", false, true), ("IfUnowned", true, false), ("IfIdentical", false, false)]
    {
        let others = json!({"gates": ["Create", "Update"], "adoption": adoption});
        let mut stage = Stage::new(wait_for(&["a"], &others), &[refused()]).running();
        let live = stage.live.as_mut().unwrap();
        live.metadata.owner_references.clear();
        live.metadata.annotations.clear();
        stage.same_template = same;
        let write = stage.decide().write().unwrap();
        assert_eq!((write.adopts, write.holds_template), (true, holds), "{adoption} {same}");
    }
}
