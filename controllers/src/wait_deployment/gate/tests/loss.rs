//! What follows from a dependency that had held.

use super::*;

fn stage(others: &Value) -> Stage {
    let mut stage = Stage::new(wait_for(&["a", "b"], others), &[]);
    stage.step(1_000, &[ready(), ready()]);
    stage.running()
}

fn scales(decision: &Decision) -> bool {
    decision.write().is_some_and(|write| write.replicas == Replicas::TakenAway)
}

#[test]
fn nobody_looks_where_losses_are_ignored() {
    let stage = stage(&json!({"onLoss": "Ignore"}));
    let plan = stage.object.plan().unwrap();
    assert!(!looks(&stage.object, &plan, stage.live.as_ref()));
    assert!(looks(&stage.object, &plan, None), "the gate closes again without a Deployment");
}

#[test]
fn a_loss_is_told_after_its_grace_and_takes_nothing_away() {
    let mut stage = stage(&json!({"lossGraceSeconds": 30}));
    stage.step(1_100, &[ready(), ready()]);
    let decision = stage.step(1_200, &[ready(), refused()]);
    assert_eq!(decision.next, Some(Duration::from_secs(30)));
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady", "tolerated so far");
    stage.step(1_229, &[ready(), refused()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
    let decision = stage.step(1_230, &[ready(), refused()]);
    assert_eq!(stage.condition("DependenciesReady"), "False/Lost");
    assert_eq!(stage.condition("Ready"), "True/Available", "reported, nothing else");
    assert_eq!((scales(&decision), decision.next), (false, None));
    stage.step(1_300, &[ready(), ready()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
}

#[test]
fn a_loss_that_passes_within_its_grace_is_never_told_and_begins_anew_next_time() {
    let mut stage = stage(&json!({"lossGraceSeconds": 30}));
    stage.step(1_200, &[ready(), refused()]);
    stage.step(1_229, &[ready(), ready()]);
    stage.step(1_230, &[ready(), refused()]);
    stage.step(1_259, &[ready(), refused()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
}

#[test]
fn what_never_held_cannot_be_lost() {
    let others = json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 0, "deadlineSeconds": 10, "onDeadline": "Proceed"});
    let mut stage = Stage::new(wait_for(&["a"], &others), &[]);
    stage.step(1_000, &[refused()]);
    assert!(stage.step(1_010, &[refused()]).write().is_some_and(|write| write.proceeds));
    let mut stage = stage.running();
    let decision = stage.step(2_000, &[refused()]);
    assert_eq!(
        (stage.condition("DependenciesReady"), scales(&decision)),
        ("False/Waiting".to_owned(), false)
    );
    // Once it has held, it can.
    stage.step(2_100, &[ready()]);
    assert_eq!(stage.step(2_200, &[refused()]).next, Some(Duration::from_secs(30)));
    assert_eq!(stage.condition("DependenciesReady"), "False/Lost", "told at once");
    assert!(!scales(&stage.step(2_229, &[refused()])), "more may fall silent, and the cause be here");
    assert!(scales(&stage.step(2_230, &[refused()])));
}

#[test]
fn a_lost_dependency_takes_the_replicas_and_gives_them_back() {
    let mut stage =
        stage(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30, "recoveryDeadlineSeconds": 300}));
    assert!(!scales(&stage.step(1_200, &[refused(), ready()])));
    let decision = stage.step(1_230, &[refused(), ready()]);
    assert!(scales(&decision));
    assert_eq!(decision.next, Some(Duration::from_secs(270)), "the recovery deadline");
    assert_eq!(stage.condition("Ready"), "False/ScaledToZero");
    assert_eq!(stage.condition("Reconciling"), "True/ScaledToZero");
    assert_eq!(stage.object.status.as_ref().unwrap().waiting_for.as_deref(), Some("a (Refused)"));
    stage.live.as_mut().unwrap().spec.replicas = Some(0);
    assert!(
        scales(&stage.step(1_300, &[unknown(), unknown()])),
        "a restart of the manager gives nothing back"
    );
    assert!(scales(&stage.step(1_500, &[refused(), ready()])));
    assert_eq!(stage.condition("Stalled"), "True/RecoveryDeadlineExceeded");
    assert!(!scales(&stage.step(1_600, &[ready(), ready()])));
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
}

#[test]
fn nothing_is_scaled_by_what_an_earlier_process_saw() {
    let mut stage = stage(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    stage.step(1_200, &[refused(), ready()]);
    assert!(!scales(&stage.step(1_300, &[unknown(), unknown()])), "nobody has looked since the restart");
    assert!(!scales(&stage.step(1_301, &[denied(), ready()])), "a policy is no loss");
    assert!(scales(&stage.step(1_302, &[refused(), ready()])));
}

#[test]
fn what_nobody_can_look_at_is_no_loss() {
    let mut stage = stage(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    for now in [1_200, 1_230, 5_000] {
        let decision = stage.step(now, &[blind(), ready()]);
        assert_eq!((&decision.loss, scales(&decision)), (&None, false));
        assert_eq!(stage.condition("Ready"), "True/Available");
    }
    assert!(!scales(&stage.step(5_001, &[refused(), ready()])), "the grace begins with what is seen");
    assert!(scales(&stage.step(5_031, &[refused(), ready()])));
    stage.live.as_mut().unwrap().spec.replicas = Some(0);
    assert!(scales(&stage.step(5_040, &[blind(), ready()])), "nor does it bring back what a loss took");
    let lost = "a is lost: connection refused";
    assert_eq!(stage.object.condition("DependenciesReady").unwrap().message.as_deref(), Some(lost));
    // What failed is back, and the other cannot be looked at: it is not what was lost.
    let decision = stage.step(5_045, &[ready(), blind()]);
    assert!(scales(&decision));
    assert_eq!(decision.loss.unwrap().since, at(5_031), "as old as it was told");
    let seen = stage.object.condition("DependenciesReady").unwrap().message.clone().unwrap();
    assert!(seen.starts_with("b cannot be looked at since a loss: "), "{seen}");
    assert!(!scales(&stage.step(5_050, &[ready(), ready()])));
}

#[test]
fn any_is_lost_with_the_last_that_held() {
    let mut stage = stage(&json!({"match": "Any", "lossGraceSeconds": 30}));
    stage.step(1_200, &[refused(), ready()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
    stage.step(1_210, &[refused(), blind()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
    let told = stage.object.condition("DependenciesReady").unwrap().message.clone().unwrap();
    assert!(told.starts_with("held when last looked at; b cannot be looked at: "), "{told}");
    stage.step(1_220, &[refused(), ready()]);
    stage.step(1_300, &[refused(), refused()]);
    stage.step(1_329, &[refused(), refused()]);
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady", "the grace is that of the last one");
    stage.step(1_330, &[refused(), refused()]);
    assert_eq!(stage.condition("DependenciesReady"), "False/Lost");
}

#[test]
fn a_suspected_outage_freezes_what_is_told_and_done() {
    let mut stage = stage(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    stage.outage = true;
    let decision = stage.step(1_200, &[refused(), refused()]);
    assert_eq!(decision.loss, None, "what fails now is not believed");
    assert_eq!(decision.next, Some(Duration::from_secs(10)), "looked at again, though nothing may change");
    assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");

    // One that was lost before keeps its replicas until the grace has passed in calm.
    stage.outage = false;
    stage.step(1_210, &[refused(), ready()]);
    stage.outage = true;
    assert!(!scales(&stage.step(1_300, &[refused(), ready()])));
    stage.outage = false;
    stage.now = 1_310;
    let decision = stage.decide_after(Some(1_300));
    assert_eq!((scales(&decision), decision.next), (false, Some(Duration::from_secs(20))));
    stage.now = 1_330;
    assert!(scales(&stage.decide_after(Some(1_300))));
}

#[test]
fn what_is_at_zero_stays_there_while_an_outage_is_suspected() {
    let mut stage = stage(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 0}));
    stage.step(1_200, &[refused(), ready()]);
    assert!(scales(&stage.step(1_230, &[refused(), ready()])));
    stage.live.as_mut().unwrap().spec.replicas = Some(0);
    stage.outage = true;
    assert!(scales(&stage.step(1_300, &[refused(), refused()])));
}

#[test]
fn a_spec_that_cannot_be_acted_on_gives_nothing_back() {
    let mut stage = stage(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    stage.step(1_200, &[refused(), ready()]);
    assert!(scales(&stage.step(1_230, &[refused(), ready()])));
    stage.live.as_mut().unwrap().spec.replicas = Some(0);
    stage.object.metadata.generation = Some(3);
    stage.object.spec.wait_for.as_mut().unwrap()["dependencies"][0]["fromTheFuture"] = json!(1);
    stage.object.spec.wait_for.as_mut().unwrap()["dependencies"][0]["tcpSocket"] = json!("odd");
    for now in [1_300, 1_400] {
        assert!(scales(&stage.step(now, &[])), "nobody can tell whether it holds again");
        assert_eq!(stage.condition("Stalled"), "True/InvalidSpec");
        assert_eq!(stage.condition("DependenciesReady"), "False/Lost");
    }
    stage.object.spec.wait_for.as_mut().unwrap()["dependencies"][0]["tcpSocket"] =
        json!({"host": "a", "port": 1});
    stage.object.metadata.generation = Some(4);
    assert!(scales(&stage.step(1_500, &[unknown(), unknown()])));
    assert!(!scales(&stage.step(1_600, &[ready(), ready()])));
}
