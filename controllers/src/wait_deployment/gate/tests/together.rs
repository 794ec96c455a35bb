//! Gate, mirror and Deployment controller together: they run in any order, on caches of any age, and status
//! writes may be lost. Once no event arrives any more, every order ends in the same state without further
//! writes.

use proptest::prelude::*;

use super::properties::{Event, any_event, any_spec, apply_event, body, scenario};
use super::*;
use crate::status_mirror::mirror;

/// Maximum number of rounds until no actor writes any more: a write of one actor may cause writes of the
/// others.
const ROUNDS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    Gate,
    /// The gate acts with a cache that does not show the last edit yet.
    StaleGate,
    Mirror,
    Controller,
}

/// An API server with one WaitDeployment. Its status has two field managers.
#[derive(Clone, Debug)]
struct World {
    scenario: Scenario,
    /// The WaitDeployment before its last edit.
    past: WaitDeployment,
    /// The Deployment's whole spec; `scenario` has only the decoded part.
    spec: Value,
    /// Number of Deployments created so far.
    created: u32,
    of_gate: Value,
    of_mirror: Value,
}

fn any_actor() -> impl Strategy<Value = Actor> {
    prop::sample::select(vec![Actor::Gate, Actor::StaleGate, Actor::Mirror, Actor::Controller])
}

// === impl World ===

impl World {
    fn new(spec: &Value) -> Self {
        let scenario = scenario(spec);
        let past = scenario.object.clone();
        Self { scenario, past, spec: Value::Null, created: 0, of_gate: json!({}), of_mirror: json!({}) }
    }

    fn apply_event(&mut self, event: Event) {
        match event {
            Event::Scaled(replicas) => {
                if self.scenario.live.is_some() {
                    self.spec["replicas"] = replicas.into();
                    let body = self.live_body();
                    self.apply(body);
                }
            }
            Event::Edited => {
                self.past = self.scenario.object.clone();
                apply_event(&mut self.scenario, event);
            }
            other => apply_event(&mut self.scenario, other),
        }
    }

    /// Runs one actor once. Unless `written`, its status write is lost.
    fn act(&mut self, actor: Actor, written: bool) {
        match actor {
            Actor::Gate => {
                if let Some(status) = self.gate().filter(|_| written) {
                    self.of_gate = status;
                }
            }
            Actor::StaleGate => {
                let now = self.scenario.object.clone();
                let past = WaitDeployment { status: now.status.clone(), ..self.past.clone() };
                self.scenario.object = past;
                if let Some(status) = self.gate().filter(|_| written) {
                    self.of_gate = status;
                }
                self.scenario.object = now;
            }
            Actor::Mirror => {
                let (object, live) = (&self.scenario.object, self.scenario.live.as_ref());
                let status = mirror::mirror(object, live, &Time(at(self.scenario.now)));
                if written && !mirror::is_shown(&status, object) {
                    self.of_mirror = json!(status);
                }
            }
            Actor::Controller => {
                let Some(live) = &mut self.scenario.live else { return };
                let (replicas, generation) = (live.spec.replicas, live.metadata.generation);
                let conditions = json!([
                    {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
                ]);
                let status = json!({
                    "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                    "readyReplicas": replicas, "availableReplicas": replicas, "conditions": conditions,
                });
                live.status = status.as_object().unwrap().clone();
            }
        }
        self.show();
    }

    /// Runs the gate: writes the Deployment, and returns the status if it differs.
    fn gate(&mut self) -> Option<Value> {
        let decision = self.scenario.decide();
        if let Some(write) = decision.write() {
            self.apply(body(&self.scenario, write, &self.spec["template"]));
        }
        let status = self.scenario.report(&decision);
        (!is_shown(&status, &self.scenario.object)).then(|| json!(status))
    }

    /// Applies the Deployment as the API server does.
    fn apply(&mut self, mut body: Value) {
        let before = self.scenario.live.take();
        let is_new = before.is_none();
        self.created += u32::from(is_new);
        let generation = before.as_ref().map_or(0, |live| live.metadata.generation);
        let changed = is_new || body["spec"] != self.spec;
        self.spec = body["spec"].clone();
        body["metadata"]["uid"] = format!("d{}", self.created).into();
        body["metadata"]["generation"] = json!(generation + i64::from(changed));
        body["status"] = before.map_or_else(|| json!({}), |live| live.status.into());
        self.scenario.live = Some(serde_json::from_value(body).unwrap());
    }

    /// Returns the body of another client's write, which changes only the spec.
    fn live_body(&self) -> Value {
        let live = self.scenario.live.as_ref().unwrap();
        let mut body = desired(&self.scenario.object, &[]);
        body["metadata"]["annotations"] = json!(live.metadata.annotations);
        body["spec"] = self.spec.clone();
        body
    }

    /// Merges the parts of both field managers into one status, and asserts that no field and no condition
    /// has two owners.
    fn show(&mut self) {
        let mut status = self.of_gate.clone();
        for (key, value) in self.of_mirror.as_object().unwrap() {
            match (key.as_str(), status.get_mut(key)) {
                ("conditions", Some(conditions)) => {
                    let all = conditions.as_array_mut().unwrap();
                    for condition in value.as_array().unwrap() {
                        assert!(all.iter().all(|other| other["type"] != condition["type"]), "{condition}");
                        all.push(condition.clone());
                    }
                }
                (_, None) => status[key] = value.clone(),
                (_, Some(_)) => panic!("{key} has two owners"),
            }
        }
        self.scenario.object.status = Some(serde_json::from_value(status).unwrap());
    }

    /// Runs the actors in this order until none of them writes.
    fn settle(&mut self, order: &[Actor]) {
        for _ in 0..ROUNDS {
            let before = (self.of_gate.clone(), self.of_mirror.clone(), self.scenario.live.clone());
            for actor in order {
                self.act(*actor, true);
            }
            if before == (self.of_gate.clone(), self.of_mirror.clone(), self.scenario.live.clone()) {
                return;
            }
        }
        panic!("the actors do not stop writing: {self:#?}");
    }

    /// Returns the visible state of the WaitDeployment and its Deployment without times and counts of
    /// Deployments.
    fn summary(&self, watched: bool) -> String {
        let (object, live) = (&self.scenario.object, self.scenario.live.as_ref().unwrap());
        let status = object.status.as_ref().unwrap();
        let mut text = format!("{:?} {:?}\n", live.spec, live.metadata.annotations);
        for condition in &status.conditions {
            let (type_, generation) = (&condition.type_, condition.observed_generation);
            // Without the gate Create and a reaction to losses, it depends on when the last check was.
            if watched || type_ != "DependenciesReady" {
                let reason = condition.reason.as_deref().unwrap_or_default();
                writeln!(text, "{type_}={}/{reason} of {generation:?}", condition.status).unwrap();
            }
        }
        let reference = status.deployment.as_ref().unwrap();
        assert_eq!(
            (&reference.uid, reference.generation),
            (&live.metadata.uid, Some(live.metadata.generation))
        );
        assert_eq!(reference.observed_generation, reference.generation);
        let open = (status.gate_opened_time.is_some(), &status.gate_closed_time, &status.deadline_time);
        let counts = (status.replicas, status.updated_replicas, status.available_replicas);
        write!(text, "{:?} {open:?} {counts:?} {:?}", status.observed_generation, status.waiting_for)
            .unwrap();
        text
    }
}

fn order() -> impl Strategy<Value = Vec<Actor>> {
    Just(vec![Actor::Gate, Actor::Mirror, Actor::Controller]).prop_shuffle()
}

proptest! {
    #[test]
    fn every_order_of_every_history_ends_in_the_same_state(
        spec in any_spec(),
        history in prop::collection::vec(
            (prop::option::of(any_event()), any_actor(), prop::bool::weighted(0.8)), 0..32,
        ),
        order in order(),
    ) {
        let mut world = World::new(&spec);
        for (event, actor, written) in history {
            if let Some(event) = event {
                world.apply_event(event);
            }
            world.act(actor, written);
        }
        let mut fresh = World::new(&spec);
        fresh.scenario.object.spec = world.scenario.object.spec.clone();
        fresh.scenario.object.metadata.generation = world.scenario.object.metadata.generation;
        for (world, order) in
            [(&mut world, &order[..]), (&mut fresh, &[Actor::Gate, Actor::Controller, Actor::Mirror])]
        {
            world.apply_event(Event::Outage(false));
            world.apply_event(Event::Seen(vec![ready(), ready()]));
            world.settle(order);
        }
        let gates = spec["gates"].as_array().unwrap();
        let watched = spec["onLoss"] != "Ignore" || gates.contains(&json!("Create"));
        prop_assert_eq!(world.summary(watched), fresh.summary(watched));
    }
}
