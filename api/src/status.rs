//! Status of a WaitDeployment.
//!
//! All fields of a DeploymentStatus are in their usual places; the others are about dependencies and the
//! gate. Two writers use server-side apply with disjoint fields: the mirror owns the counters,
//! `collisionCount`, `selector`, `deployment` and the conditions Available, Progressing and ReplicaFailure;
//! the gate owns all other fields.

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
    /// Newest generation of this WaitDeployment that the gate has processed. The generations of the
    /// Deployment are in deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of Pods of the Deployment that are not terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of Pods that run the current template of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Number of Pods of the Deployment that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Number of Pods that have been ready for at least minReadySeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// Number of Pods that are still needed for full availability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_replicas: Option<i32>,
    /// Number of terminating Pods; absent if the cluster does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// Number of hash collisions of the Deployment when it named its ReplicaSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Label selector of the Pods as a string, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The Deployment from which the numbers of Pods in this status are copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentReference>,
    /// Dependencies that the gate waits for, in a few words; empty if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// Time at which the gate last opened; absent while it is closed for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_opened_time: Option<Time>,
    /// Time at which the gate last closed; absent while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_closed_time: Option<Time>,
    /// Time at which onDeadline applies; absent while the gate is open, and without a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_time: Option<Time>,
    /// One entry for each dependency. An entry changes only with the state of its dependency.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<DependencyStatus>,
    /// Latest observations of this object's state.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The Deployment from which a status was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentReference {
    /// Name of the Deployment.
    pub name: String,
    /// UID of the Deployment.
    pub uid: String,
    /// metadata.generation of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// status.observedGeneration of the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// State of one dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DependencyStatus {
    /// Name of the dependency; the dependency of waitProbe is named default.
    pub name: String,
    /// Whether the dependency holds.
    pub ready: bool,
    /// Reason of the dependency's state, as one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Explanation of the dependency's state for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time at which the dependency's field ready last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// One condition. A superset of the conditions of a Deployment (lastUpdateTime) and of metav1
/// (observedGeneration).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition in CamelCase, such as Ready.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition: True, False or Unknown.
    pub status: String,
    /// Generation of this WaitDeployment for which the condition was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time at which the Deployment's condition was last updated; only in conditions copied from the
    /// Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Time at which the status of the condition last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason of the condition's status, as one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Explanation of the condition's status for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

// === impl WaitDeploymentStatus ===

impl WaitDeploymentStatus {
    /// Returns the condition of type `type_` in this status, if there is one.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

/// Decodes a list; `null`, which Go writes for a nil slice, becomes an empty list.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<Vec<T>>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
