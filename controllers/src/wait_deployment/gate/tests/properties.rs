//! Properties of the gate over random histories.

use proptest::prelude::*;

use super::*;
use crate::deployment::{with_no_replicas, with_replicas_held, with_template_held};
use crate::reasons::condition;

fn any_observation() -> impl Strategy<Value = Observation> {
    prop_oneof![
        Just(unknown()),
        Just(ready()),
        Just(refused()),
        Just(blind()),
        Just(denied()),
        Just(invalid())
    ]
}

pub(super) fn any_spec() -> impl Strategy<Value = Value> {
    let gates = prop::sample::subsequence(vec!["Create", "Update", "ScaleFromZero"], 1..=3);
    let policy = prop::sample::select(vec!["All", "Any"]);
    let on_loss = prop::sample::select(vec!["Ignore", "Report", "ScaleToZero"]);
    let on_deadline = prop::sample::select(vec!["Fail", "Proceed", "KeepWaiting"]);
    (gates, policy, on_loss, on_deadline, prop::option::of(1..60)).prop_map(
        |(gates, policy, on_loss, on_deadline, deadline)| {
            let mut spec = json!({"gates": gates, "match": policy, "onLoss": on_loss});
            if let Some(deadline) = deadline {
                spec["deadlineSeconds"] = json!(deadline);
                spec["onDeadline"] = json!(on_deadline);
            }
            if on_loss != "Ignore" {
                spec["lossGraceSeconds"] = json!(20);
            }
            spec
        },
    )
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Seen(Vec<Observation>),
    Deleted,
    Edited,
    Scaled(i64),
    Outage(bool),
    Time(i64),
}

pub(super) fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop::collection::vec(any_observation(), 2).prop_map(Event::Seen),
        1 => Just(Event::Deleted),
        1 => Just(Event::Edited),
        1 => (0..4i64).prop_map(Event::Scaled),
        1 => any::<bool>().prop_map(Event::Outage),
        3 => (1..40i64).prop_map(Event::Time),
    ]
}

pub(super) fn scenario(spec: &Value) -> Scenario {
    let scenario = Scenario::new(wait_for(&["a", "b"], spec), &[unknown(), unknown()]);
    assert!(scenario.object.plan().is_ok(), "{:?}", scenario.object.plan());
    scenario
}

/// Returns the Deployment that a planned write sends; `template` is that of the live Deployment.
pub(super) fn body(scenario: &Scenario, planned: PlannedWrite, template: &Value) -> Value {
    let mut body = desired(&scenario.object, &[]);
    if let Some(live) = scenario.live.as_ref().filter(|_| planned.holds_template) {
        body = with_template_held(body, live, template);
    }
    match planned.replicas {
        Replicas::AsSpecified => body,
        Replicas::Held => with_replicas_held(body, scenario.live.as_ref()),
        Replicas::ScaledToZero => with_no_replicas(body),
    }
}

/// Applies the planned write of a decision to the Deployment of the scenario.
fn perform(scenario: &mut Scenario, decision: &Decision) {
    let Some(write) = decision.write() else { return };
    let mut body = body(scenario, write, &json!({}));
    body["metadata"]["uid"] = json!("d1");
    body["metadata"]["generation"] = json!(1);
    body["status"] = available();
    scenario.live = Some(serde_json::from_value(body).unwrap());
}

pub(super) fn apply_event(scenario: &mut Scenario, event: Event) {
    match event {
        Event::Seen(observations) => scenario.observations = observations,
        Event::Deleted => scenario.live = None,
        Event::Edited => {
            let next = scenario.object.generation() + 1;
            scenario.object.metadata.generation = Some(next);
            scenario.object.spec.template.insert("edit".to_owned(), next.into());
        }
        Event::Scaled(replicas) => {
            if let Some(live) = &mut scenario.live {
                live.spec.replicas = Some(replicas);
            }
        }
        Event::Outage(outage) => scenario.outage = outage,
        Event::Time(seconds) => scenario.now += seconds,
    }
}

/// Runs one reconcile of the scenario with all its writes.
fn reconcile(scenario: &mut Scenario) -> Decision {
    reconcile_once(scenario, true)
}

/// Runs one reconcile of the scenario; unless `written`, its status write is lost.
fn reconcile_once(scenario: &mut Scenario, written: bool) -> Decision {
    let decision = scenario.decide();
    let status = scenario.report(&decision);
    perform(scenario, &decision);
    if written {
        write(&mut scenario.object, &status);
    }
    decision
}

fn history(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(Event, bool)>> {
    prop::collection::vec((any_event(), prop::bool::weighted(0.7)), length)
}

proptest! {
    #[test]
    fn a_second_run_in_the_same_state_writes_nothing(
        spec in any_spec(),
        history in history(1..24),
    ) {
        let mut scenario = scenario(&spec);
        for (event, written) in history {
            apply_event(&mut scenario, event);
            reconcile_once(&mut scenario, written);
            // A written Deployment changes which checks are needed, so a few runs may follow.
            for _ in 0..3 {
                reconcile(&mut scenario);
            }
            let status = scenario.report(&scenario.decide());
            prop_assert!(is_shown(&status, &scenario.object), "{:#?}\n{status:#?}", scenario.object.status);
            let true_ones = [condition::READY, condition::RECONCILING, condition::STALLED];
            let true_ones = true_ones.iter().filter(|type_| scenario.condition(type_).starts_with("True"));
            prop_assert!(true_ones.count() <= 1, "{}", row(&status));
        }
    }

    #[test]
    fn a_deployment_is_created_and_scaled_up_only_when_the_gate_allows(
        spec in any_spec(),
        history in history(1..24),
    ) {
        let mut scenario = scenario(&spec);
        let wants = |gate: &str| spec["gates"].as_array().unwrap().contains(&json!(gate));
        for (event, written) in history {
            apply_event(&mut scenario, event);
            let before = scenario.live.clone();
            let decision = reconcile_once(&mut scenario, written);
            let Some(write) = decision.write() else { continue };
            let may = decision.needs.are_ready() || write.proceeds;
            if before.is_none() && wants("Create") {
                prop_assert!(may, "created while {:?}", scenario.observations);
            }
            let was = before.as_ref().map_or(0, |live| live.spec.replicas.unwrap_or_default());
            let is = scenario.live.as_ref().unwrap().spec.replicas.unwrap_or_default();
            if was == 0 && is > 0 && wants("ScaleFromZero") {
                prop_assert!(may, "scaled up while {:?}", scenario.observations);
            }
            if was > 0 && is == 0 {
                let has_failed = decision.needs.observed == State::NotReady && !scenario.outage;
                prop_assert!(spec["onLoss"] == "ScaleToZero" && has_failed);
            }
            if write.proceeds {
                prop_assert_eq!(&spec["onDeadline"], "Proceed");
            }
        }
    }

    #[test]
    fn the_final_status_depends_only_on_the_final_state(
        spec in any_spec(),
        history in history(0..24),
        edits in 0..3,
    ) {
        let mut scenario = scenario(&spec);
        for (event, written) in history {
            if !matches!(event, Event::Edited) {
                apply_event(&mut scenario, event);
            }
            reconcile_once(&mut scenario, written);
        }
        for _ in 0..edits {
            apply_event(&mut scenario, Event::Edited);
        }
        scenario.outage = false;
        scenario.observations = vec![ready(), ready()];
        for _ in 0..3 {
            reconcile(&mut scenario);
        }
        prop_assert_eq!(scenario.condition("Ready"), "True/Available");
        // With neither the gate Create nor a reaction to losses, the dependencies are never checked.
        if spec["onLoss"] != "Ignore" || spec["gates"].as_array().unwrap().contains(&json!("Create")) {
            prop_assert_eq!(scenario.condition("DependenciesReady"), "True/AllReady");
        }
        let live = scenario.live.as_ref().unwrap();
        prop_assert_eq!(live.spec.replicas, Some(3));
        prop_assert_eq!(live.written_for(), Some(scenario.object.generation()));
        prop_assert_eq!(scenario.decide().as_str(), "open");
    }
}
