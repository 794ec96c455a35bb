//! The loss of a dependency that was ready.

use super::*;

fn scenario(others: &Value) -> Scenario {
    let mut scenario = Scenario::new(wait_for(&["a", "b"], others), &[]);
    scenario.step(1_000, &[ready(), ready()]);
    scenario.running()
}

fn scales(decision: &Decision) -> bool {
    decision.write().is_some_and(|write| write.replicas == Replicas::ScaledToZero)
}

#[test]
fn dependencies_are_not_checked_while_losses_are_ignored() {
    let scenario = scenario(&json!({"onLoss": "Ignore"}));
    let plan = scenario.object.plan().unwrap();
    assert!(!needs_checks(&scenario.object, &plan, scenario.live.as_ref()));
    assert!(needs_checks(&scenario.object, &plan, None), "the gate closes again without a Deployment");
}

#[test]
fn a_loss_is_reported_after_its_grace_and_changes_no_replicas() {
    let mut scenario = scenario(&json!({"lossGraceSeconds": 30}));
    scenario.step(1_100, &[ready(), ready()]);
    let decision = scenario.step(1_200, &[ready(), refused()]);
    assert_eq!(decision.next, Some(Duration::from_secs(30)));
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady", "tolerated during the grace");
    scenario.step(1_229, &[ready(), refused()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
    let decision = scenario.step(1_230, &[ready(), refused()]);
    assert_eq!(scenario.condition("DependenciesReady"), "False/Lost");
    assert_eq!(scenario.condition("Ready"), "True/Available", "only reported");
    assert_eq!((scales(&decision), decision.next), (false, None));
    scenario.step(1_300, &[ready(), ready()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
}

#[test]
fn a_loss_shorter_than_its_grace_is_not_reported_and_the_next_grace_starts_anew() {
    let mut scenario = scenario(&json!({"lossGraceSeconds": 30}));
    scenario.step(1_200, &[ready(), refused()]);
    scenario.step(1_229, &[ready(), ready()]);
    scenario.step(1_230, &[ready(), refused()]);
    scenario.step(1_259, &[ready(), refused()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
}

#[test]
fn a_dependency_that_was_never_ready_cannot_be_lost() {
    let mut others = json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 0});
    (others["deadlineSeconds"], others["onDeadline"]) = (10.into(), "Proceed".into());
    let mut scenario = Scenario::new(wait_for(&["a"], &others), &[]);
    scenario.step(1_000, &[refused()]);
    assert!(scenario.step(1_010, &[refused()]).write().is_some_and(|write| write.proceeds));
    let mut scenario = scenario.running();
    let decision = scenario.step(2_000, &[refused()]);
    assert_eq!(
        (scenario.condition("DependenciesReady"), scales(&decision)),
        ("False/Waiting".to_owned(), false)
    );
    // Once it was ready, it can be lost.
    scenario.step(2_100, &[ready()]);
    assert_eq!(scenario.step(2_200, &[refused()]).next, Some(Duration::from_secs(30)));
    assert_eq!(scenario.condition("DependenciesReady"), "False/Lost", "reported at once");
    assert!(!scales(&scenario.step(2_229, &[refused()])), "the cause may be the manager's own network");
    assert!(scales(&scenario.step(2_230, &[refused()])));
}

#[test]
fn a_loss_scales_to_zero_and_a_recovery_scales_up_again() {
    let mut scenario =
        scenario(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30, "recoveryDeadlineSeconds": 300}));
    assert!(!scales(&scenario.step(1_200, &[refused(), ready()])));
    let decision = scenario.step(1_230, &[refused(), ready()]);
    assert!(scales(&decision));
    assert_eq!(decision.next, Some(Duration::from_secs(270)), "the recovery deadline");
    assert_eq!(scenario.condition("Ready"), "False/ScaledToZero");
    assert_eq!(scenario.condition("Reconciling"), "True/ScaledToZero");
    assert_eq!(scenario.object.status.as_ref().unwrap().waiting_for.as_deref(), Some("a (Refused)"));
    scenario.live.as_mut().unwrap().spec.replicas = Some(0);
    assert!(
        scales(&scenario.step(1_300, &[unknown(), unknown()])),
        "a restart of the manager does not scale up"
    );
    assert!(scales(&scenario.step(1_500, &[refused(), ready()])));
    assert_eq!(scenario.condition("Stalled"), "True/RecoveryDeadlineExceeded");
    assert!(!scales(&scenario.step(1_600, &[ready(), ready()])));
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
}

#[test]
fn a_result_of_an_earlier_process_does_not_scale_down() {
    let mut scenario = scenario(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    scenario.step(1_200, &[refused(), ready()]);
    assert!(!scales(&scenario.step(1_300, &[unknown(), unknown()])), "no check since the restart");
    assert!(!scales(&scenario.step(1_301, &[denied(), ready()])), "a denial by the policy is not a loss");
    assert!(scales(&scenario.step(1_302, &[refused(), ready()])));
}

#[test]
fn a_check_that_cannot_be_carried_out_is_not_a_loss() {
    let mut scenario = scenario(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    for now in [1_200, 1_230, 5_000] {
        let decision = scenario.step(now, &[blind(), ready()]);
        assert_eq!((&decision.loss, scales(&decision)), (&None, false));
        assert_eq!(scenario.condition("Ready"), "True/Available");
    }
    assert!(
        !scales(&scenario.step(5_001, &[refused(), ready()])),
        "the grace begins with an observed failure"
    );
    assert!(scales(&scenario.step(5_031, &[refused(), ready()])));
    scenario.live.as_mut().unwrap().spec.replicas = Some(0);
    assert!(scales(&scenario.step(5_040, &[blind(), ready()])), "replicas of an earlier loss stay at 0");
    let lost = "a is lost: connection refused";
    assert_eq!(scenario.object.condition("DependenciesReady").unwrap().message.as_deref(), Some(lost));
    // The failed dependency is ready again, and the other one, which was not lost, cannot be checked.
    let decision = scenario.step(5_045, &[ready(), blind()]);
    assert!(scales(&decision));
    assert_eq!(decision.loss.unwrap().since, at(5_031), "since the time in the status");
    let message = scenario.object.condition("DependenciesReady").unwrap().message.clone().unwrap();
    assert!(message.starts_with("b cannot be checked since a loss: "), "{message}");
    assert!(!scales(&scenario.step(5_050, &[ready(), ready()])));
}

#[test]
fn any_is_lost_with_the_last_ready_dependency() {
    let mut scenario = scenario(&json!({"match": "Any", "lossGraceSeconds": 30}));
    scenario.step(1_200, &[refused(), ready()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
    scenario.step(1_210, &[refused(), blind()]);
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
    let message = scenario.object.condition("DependenciesReady").unwrap().message.clone().unwrap();
    assert!(message.starts_with("ready at the last check; b cannot be checked: "), "{message}");
    scenario.step(1_220, &[refused(), ready()]);
    scenario.step(1_300, &[refused(), refused()]);
    scenario.step(1_329, &[refused(), refused()]);
    assert_eq!(
        scenario.condition("DependenciesReady"),
        "True/AllReady",
        "the grace begins with the last failure"
    );
    scenario.step(1_330, &[refused(), refused()]);
    assert_eq!(scenario.condition("DependenciesReady"), "False/Lost");
}

#[test]
fn a_suspected_outage_freezes_the_status_and_the_replicas() {
    let mut scenario = scenario(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    scenario.outage = true;
    let decision = scenario.step(1_200, &[refused(), refused()]);
    assert_eq!(decision.loss, None, "failures are ignored");
    assert_eq!(decision.next, Some(Duration::from_secs(10)), "decided again without an event");
    assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");

    // A Deployment with an earlier loss keeps its replicas until the grace has passed without an outage.
    scenario.outage = false;
    scenario.step(1_210, &[refused(), ready()]);
    scenario.outage = true;
    assert!(!scales(&scenario.step(1_300, &[refused(), ready()])));
    scenario.outage = false;
    scenario.now = 1_310;
    let decision = scenario.decide_after(Some(1_300));
    assert_eq!((scales(&decision), decision.next), (false, Some(Duration::from_secs(20))));
    scenario.now = 1_330;
    assert!(scales(&scenario.decide_after(Some(1_300))));
}

#[test]
fn a_suspected_outage_does_not_scale_up() {
    let mut scenario = scenario(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 0}));
    scenario.step(1_200, &[refused(), ready()]);
    assert!(scales(&scenario.step(1_230, &[refused(), ready()])));
    scenario.live.as_mut().unwrap().spec.replicas = Some(0);
    scenario.outage = true;
    assert!(scales(&scenario.step(1_300, &[refused(), refused()])));
}

#[test]
fn an_invalid_spec_does_not_scale_up() {
    let mut scenario = scenario(&json!({"onLoss": "ScaleToZero", "lossGraceSeconds": 30}));
    scenario.step(1_200, &[refused(), ready()]);
    assert!(scales(&scenario.step(1_230, &[refused(), ready()])));
    scenario.live.as_mut().unwrap().spec.replicas = Some(0);
    scenario.object.metadata.generation = Some(3);
    scenario.object.spec.wait_for.as_mut().unwrap()["dependencies"][0]["fromTheFuture"] = json!(1);
    scenario.object.spec.wait_for.as_mut().unwrap()["dependencies"][0]["tcpSocket"] = json!("odd");
    for now in [1_300, 1_400] {
        assert!(scales(&scenario.step(now, &[])), "the dependency cannot be checked");
        assert_eq!(scenario.condition("Stalled"), "True/InvalidSpec");
        assert_eq!(scenario.condition("DependenciesReady"), "False/Lost");
    }
    scenario.object.spec.wait_for.as_mut().unwrap()["dependencies"][0]["tcpSocket"] =
        json!({"host": "a", "port": 1});
    scenario.object.metadata.generation = Some(4);
    assert!(scales(&scenario.step(1_500, &[unknown(), unknown()])));
    assert!(!scales(&scenario.step(1_600, &[ready(), ready()])));
}
