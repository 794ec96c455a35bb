//! What the controllers report about a WaitDeployment.
//!
//! Every field of a DeploymentStatus stands at its usual place; the rest says what is waited for. Two writers share
//! it by server-side apply with disjoint fields: the mirror owns the counters, `collisionCount`, `selector`,
//! `deployment` and the conditions Available, Progressing and ReplicaFailure; the gate owns all else.

#![expect(
    clippy::doc_markdown,
    reason = "field docs become the descriptions of the CRD, which are plain text"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a WaitDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitDeploymentStatus {
    /// Newest generation of this WaitDeployment that the gate has acted on. The Deployment's own numbers stand in
    /// `deployment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods that are not terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods that run the current template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Pods that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Pods that have been ready for at least minReadySeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// Pods still needed for full availability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_replicas: Option<i32>,
    /// Pods that are terminating, where the cluster counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// Hash collisions the Deployment met when naming its ReplicaSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// The label selector as a string, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The Deployment these numbers come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentReference>,
    /// What is waited for, in a few words; empty when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// When the gate last opened; absent while it is closed for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_opened_time: Option<Time>,
    /// When the gate last closed; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_closed_time: Option<Time>,
    /// When onDeadline applies; absent while the gate is open, and without a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_time: Option<Time>,
    /// The prerequisites, one entry each. Nothing here changes while a prerequisite stays as it is.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyStatus>,
    /// Latest observations of this object's state.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The Deployment a status was taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentReference {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its metadata.generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Its status.observedGeneration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// One prerequisite as last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependencyStatus {
    /// Its name; the one of `waitProbe` is called default.
    pub name: String,
    /// Whether it holds.
    pub ready: bool,
    /// Why, in one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When `ready` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// One observation. A superset of the condition of a Deployment (lastUpdateTime) and of metav1 (observedGeneration).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Kind of observation in CamelCase, such as Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// Generation of this WaitDeployment the observation is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the Deployment's condition was last updated; set on mirrored conditions only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, in one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Go writes a nil slice as `null`.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
