//! Deployments: a ReplicaSet for each Pod template, and rollouts from one to the next.
//!
//! Each pass returns the requests of one step of kube-controller-manager's controller: it ends at the first
//! write of an object that a later step would read, and the event of that write starts the next pass.

mod revision;
mod rollout;
mod size;
mod status;
mod template;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::Decision;
use super::claim::claim;
use super::object::Object as _;
use super::resources;
use rollout::Rollout;

/// Returns the requests of a Deployment, given the ReplicaSets and Pods of its namespace.
pub(super) fn decide(
    deployment: &Value,
    sets: &[&Arc<Value>],
    pods: &[&Arc<Value>],
    now: Timestamp,
) -> Decision {
    if deployment.at("/spec/selector").as_object().is_none_or(serde_json::Map::is_empty) {
        return Rollout::new(deployment, &[], sets, now).refuse_selector();
    }
    let claim = claim(deployment, "Deployment", &resources::replica_sets(), sets.iter().copied());
    if !claim.requests.is_empty() {
        return claim.requests.into();
    }
    let rollout = Rollout::new(deployment, &claim.owned, sets, now);
    let decision = rollout.decide(pods);
    let again_at = if decision.requests.is_empty() { status::next_check(deployment) } else { None };
    Decision { again_at, ..decision }
}

#[cfg(test)]
mod tests;
