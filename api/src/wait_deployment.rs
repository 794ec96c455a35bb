//! A Deployment that starts only once its prerequisite answers.
//!
//! `spec` is a DeploymentSpec: the same keys at the same places, so that image transformers, scanners and scale
//! clients find what they look for. Everything the controller only passes on is carried as JSON, so a field that
//! a newer cluster knows survives a read and a write here.
//!
//! # Invariants
//! 1. Decoding and encoding a spec loses no key and changes no value below `strategy`, `template`, `waitFor` or any key
//!    that this version does not know.
//! 2. `replicas` has no default: absent means that somebody else, such as an autoscaler on the Deployment, owns it.

#![expect(
    clippy::doc_markdown,
    reason = "field docs become the descriptions of the CRD, which are plain text"
)]

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::status::WaitDeploymentStatus;
use crate::wait_for::WaitFor;
use crate::wait_probe::WaitProbe;

/// API group of the custom resources.
pub const GROUP: &str = "apps.mainstay.dev";
/// The one served and stored version.
pub const VERSION: &str = "v1alpha1";
/// Kind as written in manifests.
pub const KIND: &str = "WaitDeployment";
/// Resource name as written in paths and RBAC rules.
pub const PLURAL: &str = "waitdeployments";

/// A Deployment that starts only once its prerequisite answers.
///
/// Serialises with `apiVersion` and `kind`, which decoding ignores: the path an object was read from already says
/// what it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitDeployment {
    /// Standard object metadata.
    #[schemars(skip)]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The Deployment to start, as a DeploymentSpec.
    pub spec: WaitDeploymentSpec,
    /// The prerequisite. Without it the Deployment is created at once.
    #[serde(default)]
    pub wait_probe: Option<WaitProbe>,
    /// What the controllers report; never read as an instruction.
    #[serde(default)]
    pub status: Option<WaitDeploymentStatus>,
}

/// A DeploymentSpec whose template is carried as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitDeploymentSpec {
    /// Number of desired Pods, 0 or more. Leave it out when something else scales the Deployment: a value given
    /// here is enforced, an absent one is never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Which Pods belong to the Deployment; must match the template's labels and cannot be changed later.
    pub selector: LabelSelector,
    /// How old Pods are replaced by new ones, as in a Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Map<String, Value>>,
    /// Seconds a new Pod must be ready before it counts as available; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// How many old ReplicaSets are kept for a rollback; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
    /// Whether the Deployment's rollout is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Seconds a rollout may make no progress before it is reported as failed; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub progress_deadline_seconds: Option<i32>,
    /// What must hold before the Deployment starts. Never passed on to the Deployment.
    // As JSON, so that what a newer version wrote neither is lost nor makes the object unreadable; its fields are
    // given by the method of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WaitFor>")]
    pub wait_for: Option<Value>,
    /// The Pods to create, as in a Deployment. Carried verbatim; the API server checks it when the Deployment is
    /// written.
    pub template: Map<String, Value>,
    /// Keys of a DeploymentSpec newer than this version; passed on unchanged.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

// === impl WaitDeployment ===

impl WaitDeployment {
    /// Returns the generation of the spec; 0 for an object no server has seen.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// Returns whether the object is on its way out.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the condition of the given type from the last known status.
    pub fn condition(&self, type_: &str) -> Option<&crate::status::Condition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

impl Resource for WaitDeployment {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Serialize for WaitDeployment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire {
            api_version: WaitDeployment::api_version(&()),
            kind: KIND,
            metadata: &self.metadata,
            spec: &self.spec,
            wait_probe: self.wait_probe.as_ref(),
            status: self.status.as_ref(),
        }
        .serialize(serializer)
    }
}

/// What goes over the wire, `apiVersion` and `kind` included.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    api_version: Cow<'a, str>,
    kind: &'static str,
    metadata: &'a ObjectMeta,
    spec: &'a WaitDeploymentSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_probe: Option<&'a WaitProbe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a WaitDeploymentStatus>,
}

#[cfg(test)]
mod tests;
