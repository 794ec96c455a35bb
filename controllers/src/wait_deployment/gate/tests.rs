//! One object on a small stage: what it asks for, what the world shows, and what the gate makes of it.

mod delays;
mod loss;
mod properties;
mod said;
mod table;
mod together;
mod untold;

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mainstay_api::WaitDeploymentStatus;
use serde_json::{Value, json};

use super::*;
use crate::dependency::observation::State;
use crate::deployment::desired;
use crate::reasons;

/// An object, the Deployment of its name, and what is known of its dependencies.
#[derive(Clone, Debug)]
struct Stage {
    object: WaitDeployment,
    live: Option<LiveDeployment>,
    observations: Vec<Observation>,
    outage: bool,
    same_template: bool,
    now: i64,
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn object(spec: &Value) -> WaitDeployment {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "generation": 2},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {}},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        match key.as_str() {
            "waitProbe" => object["waitProbe"] = value.clone(),
            _ => object["spec"][key] = value.clone(),
        }
    }
    serde_json::from_value(object).unwrap()
}

/// Waits for these, each a TCP address, with other fields of `waitFor`.
fn wait_for(names: &[&str], others: &Value) -> WaitDeployment {
    let one = |name: &&str| json!({"name": name, "tcpSocket": {"host": name, "port": 1}});
    let mut wait_for = json!({"dependencies": names.iter().map(one).collect::<Vec<_>>()});
    for (key, value) in others.as_object().into_iter().flatten() {
        wait_for[key] = value.clone();
    }
    object(&json!({"waitFor": wait_for}))
}

/// The Deployment as it was let through for `object`, with this status.
fn live(object: &WaitDeployment, status: &Value) -> LiveDeployment {
    let mut live = desired(object, &[]);
    live["metadata"]["uid"] = json!("d1");
    live["metadata"]["generation"] = json!(1);
    live["status"] = status.clone();
    serde_json::from_value(live).unwrap()
}

fn available() -> Value {
    json!({
        "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3,
        "conditions": [{"type": "Available", "status": "True"}],
    })
}

fn unknown() -> Observation {
    Observation::unknown()
}

fn ready() -> Observation {
    Observation { state: State::Ready, reason: reasons::probe::CONNECTED, message: "connected".to_owned() }
}

fn refused() -> Observation {
    let message = "connection refused".to_owned();
    Observation { state: State::NotReady, reason: reasons::probe::REFUSED, message }
}

fn blind() -> Observation {
    let message = "Services cannot be read: the watch is down".to_owned();
    Observation { state: State::Blind, reason: reasons::probe::SERVICES_UNKNOWN, message }
}

fn denied() -> Observation {
    Observation { state: State::Denied, reason: reasons::POLICY_DENIED, message: "because".to_owned() }
}

fn invalid() -> Observation {
    Observation { state: State::Invalid, reason: reasons::INVALID_SPEC, message: "no such kind".to_owned() }
}

/// The server's side of an apply: the fragment replaces what the gate owns.
fn write(object: &mut WaitDeployment, status: &GateStatus) {
    let text = serde_json::to_string(status).unwrap();
    object.status = Some(serde_json::from_str::<WaitDeploymentStatus>(&text).unwrap());
}

// === impl Stage ===

impl Stage {
    fn new(object: WaitDeployment, observations: &[Observation]) -> Self {
        Self {
            object,
            live: None,
            observations: observations.to_vec(),
            outage: false,
            same_template: false,
            now: 1_000,
        }
    }

    /// The Deployment is there, as it was let through.
    fn running(mut self) -> Self {
        self.live = Some(live(&self.object, &available()));
        self
    }

    fn decide(&self) -> Decision {
        self.decide_after(None)
    }

    fn decide_after(&self, outage_until: Option<i64>) -> Decision {
        let plan = self.object.plan();
        let looked = plan.as_ref().is_ok_and(|plan| super::looks(&self.object, plan, self.live.as_ref()));
        decide(&Facts {
            object: &self.object,
            plan: plan.as_ref(),
            live: self.live.as_ref(),
            observations: if looked { &self.observations } else { &[] },
            outage: self.outage,
            outage_until: outage_until.map(at),
            same_template: self.same_template,
            cycle: None,
            now: at(self.now),
        })
    }

    /// What the decision comes to where the server accepts everything.
    fn applied(&self, decision: &Decision) -> Applied {
        match decision.course {
            Course::Write(_) => {
                let live = self.live.clone().unwrap_or_else(|| live(&self.object, &available()));
                Applied::Current(Box::new(live))
            }
            _ => Applied::NotTried,
        }
    }

    fn report(&self, decision: &Decision) -> GateStatus {
        let now = Time(at(self.now));
        report(&self.object, decision, &self.applied(decision), &Trial::Accepted, &now)
    }

    /// Decides, and writes the status.
    fn step(&mut self, now: i64, observations: &[Observation]) -> Decision {
        self.now = now;
        self.observations = observations.to_vec();
        let decision = self.decide();
        let status = self.report(&decision);
        write(&mut self.object, &status);
        decision
    }

    fn condition(&self, type_: &str) -> String {
        let condition = self.object.condition(type_);
        condition.map_or_else(
            || "-".to_owned(),
            |condition| format!("{}/{}", condition.status, condition.reason.as_deref().unwrap_or_default()),
        )
    }
}

fn row(status: &GateStatus) -> String {
    let mut row = String::new();
    for condition in &status.conditions {
        let reason = condition.reason.as_deref().unwrap_or_default();
        write!(row, " {}={}/{reason}", condition.type_, condition.status).unwrap();
    }
    row.trim_start().to_owned()
}
