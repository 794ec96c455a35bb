//! The part of a WaitDeployment's status that mirrors its Deployment: a pure function.
//!
//! Called by the `deployment-status-mirror` reconciler. The known fields of the Deployment's status are read
//! from JSON, so no field or value of a newer cluster can make it fail.
//!
//! `status.observedGeneration` is not copied: it counts the Deployment's edits, while `kubectl wait` compares
//! it with the generation of the object it waits for. `status.deployment` has both numbers of the Deployment.
//!
//! # Invariants
//! 1. Only a Deployment that is controlled by this object's uid is shown; any other one counts as missing.
//! 2. A mirrored condition carries generation G of the WaitDeployment only once the Deployment controller has
//!    observed the Deployment written for G; before that, an older generation.
//! 3. Mirroring an unchanged Deployment again gives an equal status.

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_api::{Condition, DeploymentReference, WaitDeployment, WaitDeploymentStatus};
use serde_json::{Map, Value};

use crate::conditions::condition_of;
use crate::deployment::{LiveDeployment, text};
use crate::reasons::{self, condition};
use crate::selector;

/// Field manager of the fields of a WaitDeployment's status that are copied from its Deployment.
pub const FIELD_MANAGER: &str = "waitdeployment-status";

/// Returns the part of the status of `object` that is copied from its Deployment; the fields that the gate
/// writes are empty. `live` is the Deployment of the object's name.
pub fn mirror(object: &WaitDeployment, live: Option<&LiveDeployment>, now: &Time) -> WaitDeploymentStatus {
    let live = live.filter(|live| live.is_controlled_by(object));
    let none = Map::new();
    let status = live.map_or(&none, |live| &live.status);
    let count = |field| integer(status, field);
    let or_zero = |field| count(field).or(Some(0));
    WaitDeploymentStatus {
        selector: Some(selector::text_of(&object.spec.selector)),
        replicas: or_zero("replicas"),
        updated_replicas: or_zero("updatedReplicas"),
        ready_replicas: or_zero("readyReplicas"),
        available_replicas: or_zero("availableReplicas"),
        unavailable_replicas: or_zero("unavailableReplicas"),
        // Not every cluster counts them, so an absent count is not zero.
        terminating_replicas: count("terminatingReplicas"),
        collision_count: count("collisionCount"),
        deployment: live.map(|live| DeploymentReference {
            name: live.metadata.name.clone(),
            uid: live.metadata.uid.clone(),
            generation: Some(live.metadata.generation),
            observed_generation: Some(live.count("observedGeneration")),
        }),
        conditions: conditions(object, live, now),
        ..WaitDeploymentStatus::default()
    }
}

/// Returns whether the part of the object's status that is copied from its Deployment already equals
/// `status`.
pub fn is_shown(status: &WaitDeploymentStatus, object: &WaitDeployment) -> bool {
    object.status.as_ref().is_some_and(|shown| owned_part(shown) == *status)
}

// === private ===

/// Returns the part of a live status that the mirror writes, with conditions in the order in which it writes
/// them.
fn owned_part(status: &WaitDeploymentStatus) -> WaitDeploymentStatus {
    let conditions = condition::OF_MIRROR.iter().filter_map(|type_| status.condition(type_).cloned());
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

fn conditions(object: &WaitDeployment, live: Option<&LiveDeployment>, now: &Time) -> Vec<Condition> {
    let unknown = |reason, message: &str, generation| {
        let fields = ("Unknown", reason, message.to_owned());
        let condition = condition_of(object, condition::AVAILABLE, &fields, now);
        Condition { observed_generation: Some(generation), ..condition }
    };
    let Some(live) = live else {
        let message = "no Deployment of this WaitDeployment exists";
        return vec![unknown(reasons::DEPLOYMENT_NOT_FOUND, message, object.generation())];
    };
    let generation = observed_generation(object, live);
    let copied = |type_: &&str| copied(live.condition(type_)?, generation);
    let mut conditions: Vec<Condition> = condition::OF_MIRROR.iter().filter_map(copied).collect();
    if conditions.first().is_none_or(|first| first.type_ != condition::AVAILABLE) {
        let message = "the Deployment has no condition Available yet";
        conditions.insert(0, unknown(reasons::NOT_REPORTED, message, generation));
    }
    conditions
}

/// Returns the generation of the WaitDeployment that the conditions of its Deployment are about.
///
/// While the Deployment controller lags behind, the generation shown before stays, if it was about this
/// Deployment; otherwise 0, because `kubectl wait` takes an absent generation for the current one.
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

/// Copies the fields of a Deployment's condition that are in the CRD; the API server would prune any other
/// one, and the status would never compare equal. `None` for a condition with an invalid status.
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

fn integer(status: &Map<String, Value>, field: &str) -> Option<i32> {
    status.get(field)?.as_i64().and_then(|value| i32::try_from(value).ok())
}
