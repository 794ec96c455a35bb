//! What a WaitDeployment's status shows of its Deployment: a pure function.
//!
//! Called by the `deployment-status-mirror` reconciler. The Deployment's status is read as JSON with a list of known
//! fields, so that neither a field nor a value of a newer cluster can make it fail.
//!
//! `status.observedGeneration` is not copied: it counts the Deployment's edits, while `kubectl wait` compares it with
//! the generation of the object it waits for. The raw pair stands in `status.deployment`.
//!
//! # Invariants
//! 1. Only a Deployment controlled by this object's uid is shown; any other counts as none.
//! 2. A mirrored condition carries generation G of the WaitDeployment only once the Deployment controller has seen
//!    what was written for G; before that, an older one.
//! 3. Mirroring onto a status that shows it already changes nothing.

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_api::{Condition, DeploymentReference, WaitDeployment, WaitDeploymentStatus};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::conditions::condition_of;
use crate::deployment::{LiveDeployment, text};
use crate::reasons::{self, condition};
use crate::selector;

/// Who owns the mirrored fields of the status.
pub const FIELD_MANAGER: &str = "waitdeployment-status";

/// The part of a status that the mirror owns. Everything else in the inner value is empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MirrorStatus(WaitDeploymentStatus);

/// Returns what the status of `object` is to show of the live Deployment of its name.
pub fn mirror(object: &WaitDeployment, live: Option<&LiveDeployment>, now: &Time) -> MirrorStatus {
    let selector = Some(selector::text_of(&object.spec.selector));
    let live = live.filter(|live| live.is_controlled_by(object));
    MirrorStatus(match live {
        Some(live) => WaitDeploymentStatus { selector, ..of_deployment(object, live, now) },
        None => WaitDeploymentStatus { selector, ..of_nothing(object, now) },
    })
}

// === impl MirrorStatus ===

impl MirrorStatus {
    /// Returns whether the object already shows this and nothing else of the mirror's.
    pub fn is_shown_by(&self, object: &WaitDeployment) -> bool {
        object.status.as_ref().is_some_and(|status| owned_part(status) == self.0)
    }
}

// === private ===

/// Takes from a live status what the mirror owns, in the order in which the mirror writes it.
fn owned_part(status: &WaitDeploymentStatus) -> WaitDeploymentStatus {
    let conditions = condition::OF_MIRROR.iter();
    let conditions = conditions
        .filter_map(|type_| status.conditions.iter().find(|condition| condition.type_ == *type_).cloned());
    WaitDeploymentStatus {
        observed_generation: None,
        waiting_for: None,
        gate_opened_time: None,
        gate_closed_time: None,
        deadline_time: None,
        dependencies: Vec::new(),
        conditions: conditions.collect(),
        ..status.clone()
    }
}

fn of_nothing(object: &WaitDeployment, now: &Time) -> WaitDeploymentStatus {
    let message = "no Deployment of this WaitDeployment exists";
    let generation = object.generation();
    WaitDeploymentStatus {
        replicas: Some(0),
        updated_replicas: Some(0),
        ready_replicas: Some(0),
        available_replicas: Some(0),
        unavailable_replicas: Some(0),
        conditions: vec![unknown_available(object, reasons::DEPLOYMENT_NOT_FOUND, message, generation, now)],
        ..WaitDeploymentStatus::default()
    }
}

fn of_deployment(object: &WaitDeployment, live: &LiveDeployment, now: &Time) -> WaitDeploymentStatus {
    let count = |field| integer(&live.status, field);
    let or_zero = |field| count(field).or(Some(0));
    let generation = observed_generation(object, live);
    let mut conditions: Vec<Condition> =
        condition::OF_MIRROR.iter().filter_map(|type_| copied(live.condition(type_)?, generation)).collect();
    if conditions.first().is_none_or(|first| first.type_ != condition::AVAILABLE) {
        let message = "the Deployment has not reported yet";
        conditions.insert(0, unknown_available(object, reasons::NOT_REPORTED, message, generation, now));
    }
    WaitDeploymentStatus {
        replicas: or_zero("replicas"),
        updated_replicas: or_zero("updatedReplicas"),
        ready_replicas: or_zero("readyReplicas"),
        available_replicas: or_zero("availableReplicas"),
        unavailable_replicas: or_zero("unavailableReplicas"),
        // Only some clusters count it, so absent is not zero.
        terminating_replicas: count("terminatingReplicas"),
        collision_count: count("collisionCount"),
        deployment: Some(DeploymentReference {
            name: live.metadata.name.clone(),
            uid: live.metadata.uid.clone(),
            generation: Some(live.metadata.generation),
            observed_generation: Some(live.count("observedGeneration")),
        }),
        conditions,
        ..WaitDeploymentStatus::default()
    }
}

/// Returns the generation of the WaitDeployment that the Deployment's conditions speak of.
///
/// While the Deployment controller lags behind, what was shown before still holds, if it was about this Deployment;
/// 0 otherwise, since `kubectl wait` takes an absent number for the current one.
fn observed_generation(object: &WaitDeployment, live: &LiveDeployment) -> i64 {
    let written_for = live.written_for().unwrap_or_default();
    if live.is_observed() {
        return written_for;
    }
    let shown = object.status.as_ref().and_then(|status| status.deployment.as_ref());
    if shown.is_none_or(|shown| shown.uid != live.metadata.uid) {
        return 0;
    }
    let earlier = object.condition(condition::AVAILABLE).and_then(|condition| condition.observed_generation);
    earlier.unwrap_or_default().min(written_for)
}

/// Copies the fields that the CRD knows; one more would be pruned and never compare equal. `None` for a condition
/// without a usable status.
fn copied(condition: &Map<String, Value>, generation: i64) -> Option<Condition> {
    let status = text(condition, "status");
    if !["True", "False", "Unknown"].contains(&status) {
        return None;
    }
    let time = |key| serde_json::from_value::<Time>(condition.get(key)?.clone()).ok();
    let optional = |key| condition.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Condition {
        type_: text(condition, "type").to_owned(),
        status: status.to_owned(),
        observed_generation: Some(generation),
        last_update_time: time("lastUpdateTime"),
        last_transition_time: time("lastTransitionTime"),
        reason: optional("reason"),
        message: optional("message"),
    })
}

fn unknown_available(
    object: &WaitDeployment,
    reason: &'static str,
    message: &str,
    generation: i64,
    now: &Time,
) -> Condition {
    let saying = ("Unknown", reason, message.to_owned());
    let condition = condition_of(object, condition::AVAILABLE, &saying, now);
    Condition { observed_generation: Some(generation), ..condition }
}

fn integer(status: &Map<String, Value>, field: &str) -> Option<i32> {
    status.get(field)?.as_i64().and_then(|value| i32::try_from(value).ok())
}
