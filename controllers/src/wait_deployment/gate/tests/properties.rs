//! What holds over all histories.

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
pub(super) enum Happens {
    Seen(Vec<Observation>),
    Deleted,
    Edited,
    Scaled(i64),
    Outage(bool),
    Time(i64),
}

pub(super) fn anything() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => prop::collection::vec(any_observation(), 2).prop_map(Happens::Seen),
        1 => Just(Happens::Deleted),
        1 => Just(Happens::Edited),
        1 => (0..4i64).prop_map(Happens::Scaled),
        1 => any::<bool>().prop_map(Happens::Outage),
        3 => (1..40i64).prop_map(Happens::Time),
    ]
}

pub(super) fn stage(spec: &Value) -> Stage {
    let stage = Stage::new(wait_for(&["a", "b"], spec), &[unknown(), unknown()]);
    assert!(stage.object.plan().is_ok(), "{:?}", stage.object.plan());
    stage
}

/// What is applied; `template` is that of the live Deployment.
pub(super) fn body(stage: &Stage, write: Write, template: &Value) -> Value {
    let mut body = desired(&stage.object, &[]);
    if let Some(live) = stage.live.as_ref().filter(|_| write.holds_template) {
        body = with_template_held(&body, live, template);
    }
    match write.replicas {
        Replicas::AsAsked => body,
        Replicas::Held => with_replicas_held(&body, stage.live.as_ref()),
        Replicas::TakenAway => with_no_replicas(&body),
    }
}

/// What the server makes of a write.
fn perform(stage: &mut Stage, decision: &Decision) {
    let Some(write) = decision.write() else { return };
    let mut body = body(stage, write, &json!({}));
    body["metadata"]["uid"] = json!("d1");
    body["metadata"]["generation"] = json!(1);
    body["status"] = available();
    stage.live = Some(serde_json::from_value(body).unwrap());
}

pub(super) fn happen(stage: &mut Stage, what: Happens) {
    match what {
        Happens::Seen(observations) => stage.observations = observations,
        Happens::Deleted => stage.live = None,
        Happens::Edited => {
            let next = stage.object.generation() + 1;
            stage.object.metadata.generation = Some(next);
            stage.object.spec.template.insert("edit".to_owned(), next.into());
        }
        Happens::Scaled(replicas) => {
            if let Some(live) = &mut stage.live {
                live.spec.replicas = Some(replicas);
            }
        }
        Happens::Outage(outage) => stage.outage = outage,
        Happens::Time(seconds) => stage.now += seconds,
    }
}

/// One reconcile, with all its writes.
fn reconcile(stage: &mut Stage) -> Decision {
    reconcile_unless_refused(stage, true)
}

/// One whose status may meet a version of the object that is newer, or whose process ends before it is written.
fn reconcile_unless_refused(stage: &mut Stage, written: bool) -> Decision {
    let decision = stage.decide();
    let status = stage.report(&decision);
    perform(stage, &decision);
    if written {
        write(&mut stage.object, &status);
    }
    decision
}

fn history(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(Happens, bool)>> {
    prop::collection::vec((anything(), prop::bool::weighted(0.7)), length)
}

proptest! {
    #[test]
    fn a_second_look_at_the_same_state_writes_nothing(
        spec in any_spec(),
        history in history(1..24),
    ) {
        let mut stage = stage(&spec);
        for (what, written) in history {
            happen(&mut stage, what);
            reconcile_unless_refused(&mut stage, written);
            // What was let through changes what is looked at: a few passes, and then rest.
            for _ in 0..3 {
                reconcile(&mut stage);
            }
            let status = stage.report(&stage.decide());
            prop_assert!(status.is_shown_by(&stage.object), "{:#?}\n{status:#?}", stage.object.status);
            let true_ones = [condition::READY, condition::RECONCILING, condition::STALLED];
            let true_ones = true_ones.iter().filter(|type_| stage.condition(type_).starts_with("True"));
            prop_assert!(true_ones.count() <= 1, "{}", row(&status));
        }
    }

    #[test]
    fn a_deployment_is_made_and_grows_only_when_it_may(
        spec in any_spec(),
        history in history(1..24),
    ) {
        let mut stage = stage(&spec);
        let wants = |gate: &str| spec["gates"].as_array().unwrap().contains(&json!(gate));
        for (what, written) in history {
            happen(&mut stage, what);
            let before = stage.live.clone();
            let decision = reconcile_unless_refused(&mut stage, written);
            let Some(write) = decision.write() else { continue };
            let may = decision.needs.hold() || write.proceeds;
            if before.is_none() && wants("Create") {
                prop_assert!(may, "created while {:?}", stage.observations);
            }
            let was = before.as_ref().map_or(0, |live| live.spec.replicas.unwrap_or_default());
            let is = stage.live.as_ref().unwrap().spec.replicas.unwrap_or_default();
            if was == 0 && is > 0 && wants("ScaleFromZero") {
                prop_assert!(may, "scaled up while {:?}", stage.observations);
            }
            if was > 0 && is == 0 {
                prop_assert!(spec["onLoss"] == "ScaleToZero" && decision.needs.seen == Seen::Fails && !stage.outage);
            }
            if write.proceeds {
                prop_assert_eq!(&spec["onDeadline"], "Proceed");
            }
        }
    }

    #[test]
    fn whatever_has_happened_the_end_depends_on_what_is_true_in_the_end(
        spec in any_spec(),
        history in history(0..24),
        edits in 0..3,
    ) {
        let mut stage = stage(&spec);
        for (what, written) in history {
            if !matches!(what, Happens::Edited) {
                happen(&mut stage, what);
            }
            reconcile_unless_refused(&mut stage, written);
        }
        for _ in 0..edits {
            happen(&mut stage, Happens::Edited);
        }
        stage.outage = false;
        stage.observations = vec![ready(), ready()];
        for _ in 0..3 {
            reconcile(&mut stage);
        }
        prop_assert_eq!(stage.condition("Ready"), "True/Available");
        // Where neither the start nor the running depends on them, nobody has looked.
        if spec["onLoss"] != "Ignore" || spec["gates"].as_array().unwrap().contains(&json!("Create")) {
            prop_assert_eq!(stage.condition("DependenciesReady"), "True/AllReady");
        }
        let live = stage.live.as_ref().unwrap();
        prop_assert_eq!(live.spec.replicas, Some(3));
        prop_assert_eq!(live.written_for(), Some(stage.object.generation()));
        prop_assert_eq!(stage.decide().as_str(), "open");
    }
}
