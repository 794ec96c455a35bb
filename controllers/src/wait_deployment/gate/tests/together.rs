//! Gate, mirror and Deployment controller act in any order, on what they happen to know, and their writes may be refused:
//! once nothing happens any more they come to the same, and rest.

use proptest::prelude::*;

use super::properties::{Happens, any_spec, anything, body, happen, stage};
use super::*;
use crate::status_mirror::mirror::mirror;

/// Rounds after which they have to rest: what one of them writes, the others may have to answer, and so once more.
const ROUNDS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    Gate,
    /// It does not know the last edit yet, and says so.
    GateOfThePast,
    Mirror,
    Controller,
}

/// A server that keeps two parts of one status by their owners.
#[derive(Clone, Debug)]
struct World {
    stage: Stage,
    /// The object before its last edit.
    past: WaitDeployment,
    /// The Deployment's spec, of which `stage` shows but a part.
    spec: Value,
    /// Deployments made so far.
    births: u32,
    of_gate: Value,
    of_mirror: Value,
}

fn any_actor() -> impl Strategy<Value = Actor> {
    prop::sample::select(vec![Actor::Gate, Actor::GateOfThePast, Actor::Mirror, Actor::Controller])
}

// === impl World ===

impl World {
    fn new(spec: &Value) -> Self {
        let stage = stage(spec);
        let past = stage.object.clone();
        Self { stage, past, spec: Value::Null, births: 0, of_gate: json!({}), of_mirror: json!({}) }
    }

    fn happens(&mut self, what: Happens) {
        match what {
            Happens::Scaled(replicas) => {
                if self.stage.live.is_some() {
                    self.spec["replicas"] = replicas.into();
                    let body = self.live_body();
                    self.apply(body);
                }
            }
            Happens::Edited => {
                self.past = self.stage.object.clone();
                happen(&mut self.stage, what);
            }
            other => happen(&mut self.stage, other),
        }
    }

    /// One turn. A status that is written is lost unless it `lands`.
    fn act(&mut self, actor: Actor, lands: bool) {
        match actor {
            Actor::Gate => {
                if let Some(status) = self.gate().filter(|_| lands) {
                    self.of_gate = status;
                }
            }
            Actor::GateOfThePast => {
                let now = self.stage.object.clone();
                let past = WaitDeployment { status: now.status.clone(), ..self.past.clone() };
                self.stage.object = past;
                if let Some(status) = self.gate().filter(|_| lands) {
                    self.of_gate = status;
                }
                self.stage.object = now;
            }
            Actor::Mirror => {
                let (object, live) = (&self.stage.object, self.stage.live.as_ref());
                let status = mirror(object, live, &Time(at(self.stage.now)));
                if lands && !status.is_shown_by(object) {
                    self.of_mirror = json!(status);
                }
            }
            Actor::Controller => {
                let Some(live) = &mut self.stage.live else { return };
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

    /// Decides, writes the Deployment, and returns the status if it has to be written.
    fn gate(&mut self) -> Option<Value> {
        let decision = self.stage.decide();
        if let Some(write) = decision.write() {
            self.apply(body(&self.stage, write, &self.spec["template"]));
        }
        let status = self.stage.report(&decision);
        (!status.is_shown_by(&self.stage.object)).then(|| json!(status))
    }

    /// The server's side of an apply of the Deployment.
    fn apply(&mut self, mut body: Value) {
        let before = self.stage.live.take();
        let is_new = before.is_none();
        self.births += u32::from(is_new);
        let generation = before.as_ref().map_or(0, |live| live.metadata.generation);
        let changed = is_new || body["spec"] != self.spec;
        self.spec = body["spec"].clone();
        body["metadata"]["uid"] = format!("d{}", self.births).into();
        body["metadata"]["generation"] = json!(generation + i64::from(changed));
        body["status"] = before.map_or_else(|| json!({}), |live| live.status.into());
        self.stage.live = Some(serde_json::from_value(body).unwrap());
    }

    /// What somebody else than the gate applies: all is as it is, but for the spec.
    fn live_body(&self) -> Value {
        let live = self.stage.live.as_ref().unwrap();
        let mut body = desired(&self.stage.object, &[]);
        body["metadata"]["annotations"] = json!(live.metadata.annotations);
        body["spec"] = self.spec.clone();
        body
    }

    /// Shows both parts as one status. No field and no condition has two owners.
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
        self.stage.object.status = Some(serde_json::from_value(status).unwrap());
    }

    /// Has everybody act in this order until nobody has anything to do.
    fn rest(&mut self, order: &[Actor]) {
        for _ in 0..ROUNDS {
            let before = (self.of_gate.clone(), self.of_mirror.clone(), self.stage.live.clone());
            for actor in order {
                self.act(*actor, true);
            }
            if before == (self.of_gate.clone(), self.of_mirror.clone(), self.stage.live.clone()) {
                return;
            }
        }
        panic!("they do not come to rest: {self:#?}");
    }

    /// What people see, but for times, and for how often things were made.
    fn summary(&self, watched: bool) -> String {
        let (object, live) = (&self.stage.object, self.stage.live.as_ref().unwrap());
        let status = object.status.as_ref().unwrap();
        let mut text = format!("{:?} {:?}\n", live.spec, live.metadata.annotations);
        for condition in &status.conditions {
            let (type_, generation) = (&condition.type_, condition.observed_generation);
            // Where neither the start nor the running depends on them, it matters when somebody looked last.
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
    fn all_orders_of_all_histories_end_alike(
        spec in any_spec(),
        history in prop::collection::vec(
            (prop::option::of(anything()), any_actor(), prop::bool::weighted(0.8)), 0..32,
        ),
        order in order(),
    ) {
        let mut world = World::new(&spec);
        for (what, actor, lands) in history {
            if let Some(what) = what {
                world.happens(what);
            }
            world.act(actor, lands);
        }
        let mut fresh = World::new(&spec);
        fresh.stage.object.spec = world.stage.object.spec.clone();
        fresh.stage.object.metadata.generation = world.stage.object.metadata.generation;
        for (world, order) in
            [(&mut world, &order[..]), (&mut fresh, &[Actor::Gate, Actor::Controller, Actor::Mirror])]
        {
            world.happens(Happens::Outage(false));
            world.happens(Happens::Seen(vec![ready(), ready()]));
            world.rest(order);
        }
        let watched = spec["onLoss"] != "Ignore" || spec["gates"].as_array().unwrap().contains(&json!("Create"));
        prop_assert_eq!(world.summary(watched), fresh.summary(watched));
    }
}
