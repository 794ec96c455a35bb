//! A scenario for the gate: one object, its Deployment, and the results of its checks.

mod delays;
mod loss;
mod lost_status_writes;
mod properties;
mod status;
mod table;
mod together;

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use mainstay_api::{Condition, WaitDeploymentStatus};
use serde_json::{Value, json};

use super::*;
use crate::dependency::observation::State;
use crate::deployment::desired;
use crate::reasons;

/// A WaitDeployment, the Deployment of its name, and the results of its checks.
#[derive(Clone, Debug)]
struct Scenario {
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
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "generation": 2,
        },
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

/// Returns a WaitDeployment that waits for these TCP targets, with other fields of `waitFor`.
fn wait_for(names: &[&str], others: &Value) -> WaitDeployment {
    let one = |name: &&str| json!({"name": name, "tcpSocket": {"host": name, "port": 1}});
    let mut wait_for = json!({"dependencies": names.iter().map(one).collect::<Vec<_>>()});
    for (key, value) in others.as_object().into_iter().flatten() {
        wait_for[key] = value.clone();
    }
    object(&json!({"waitFor": wait_for}))
}

/// Returns the Deployment as written for `object`, with this status.
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

fn refused_dry_run(kind: RefusalKind, message: &str) -> DryRun {
    DryRun::Refused(Refusal { kind, message: message.to_owned() })
}

fn refused_write(kind: RefusalKind, message: &str) -> Applied {
    Applied::Refused(Refusal { kind, message: message.to_owned() })
}

fn invalid() -> Observation {
    Observation { state: State::Invalid, reason: reasons::INVALID_SPEC, message: "no such kind".to_owned() }
}

/// Applies the status to the object: the fragment replaces all fields of the gate.
fn write(object: &mut WaitDeployment, status: &WaitDeploymentStatus) {
    let text = serde_json::to_string(status).unwrap();
    object.status = Some(serde_json::from_str::<WaitDeploymentStatus>(&text).unwrap());
}

// === impl Scenario ===

impl Scenario {
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

    /// Adds the Deployment to the scenario, as written for the object.
    fn running(mut self) -> Self {
        self.live = Some(live(&self.object, &available()));
        self
    }

    fn decide(&self) -> Decision {
        self.decide_after(None)
    }

    fn decide_after(&self, last_outage: Option<i64>) -> Decision {
        let plan = self.object.plan();
        let are_checked =
            plan.as_ref().is_ok_and(|plan| super::needs_checks(&self.object, plan, self.live.as_ref()));
        decide(&Facts {
            object: &self.object,
            plan: plan.as_ref(),
            live: self.live.as_ref(),
            observations: if are_checked { &self.observations } else { &[] },
            outage: self.outage,
            last_outage: last_outage.map(at),
            same_template: self.same_template,
            now: at(self.now),
        })
    }

    /// Returns the result of the decision's write if the API server accepts every write.
    fn applied(&self, decision: &Decision) -> Applied {
        match decision.course {
            Course::Write(_) => {
                let live = self.live.clone().unwrap_or_else(|| live(&self.object, &available()));
                Applied::Current(Box::new(live))
            }
            _ => Applied::NotTried,
        }
    }

    fn report(&self, decision: &Decision) -> WaitDeploymentStatus {
        let now = Time(at(self.now));
        report(&self.object, decision, &self.applied(decision), &DryRun::Accepted, &now)
    }

    /// Runs the gate once at the time `now`: makes the decision and writes the status.
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
        condition.map_or_else(|| "-".to_owned(), text)
    }
}

/// Returns the conditions of a status in one line: the statuses of Stalled, Reconciling and Ready with their
/// shared reason, then `DependenciesReady` and `TemplateAccepted`, then any other one with its type.
fn row(status: &WaitDeploymentStatus) -> String {
    let types: Vec<_> = status.conditions.iter().take(5).map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, reasons::condition::OF_GATE[..5], "{status:?}");
    let [ready, dependencies, template, reconciling, stalled, others @ ..] = &status.conditions[..] else {
        panic!("{status:?}");
    };
    assert!([reconciling, stalled].iter().all(|one| one.reason == ready.reason), "one reason: {status:?}");
    let [shared, dependencies, template] = [ready, dependencies, template].map(text);
    let mut row =
        format!("{}/{}/{shared:30} {dependencies:24} {template}", stalled.status, reconciling.status);
    for condition in others {
        write!(row, " {}={}", condition.type_, text(condition)).unwrap();
    }
    row
}

/// Returns the status and the reason of a condition.
fn text(condition: &Condition) -> String {
    format!("{}/{}", condition.status, condition.reason.as_deref().unwrap_or_default())
}
