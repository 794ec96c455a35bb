//! `WaitDeployment`: a Deployment that starts only once its dependencies hold.
//!
//! `spec` is a DeploymentSpec with the same keys in the same places, so that image transformers, scanners and
//! scale clients work with it. Parts that the controller only passes on are kept as JSON, so fields of a
//! newer cluster survive decoding and encoding.
//!
//! # Invariants
//! 1. Decoding and encoding a spec loses no key and changes no value below `strategy`, `template`, `waitFor`
//!    and any key unknown to this version.
//! 2. `replicas` has no default: absent means that another client, such as an autoscaler of the Deployment,
//!    owns it.

#![expect(
    clippy::doc_markdown,
    reason = "field docs become the descriptions of the CRD, which are plain text"
)]

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use schemars::JsonSchema;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::status::{Condition, WaitDeploymentStatus};
use crate::wait_for::WaitFor;
use crate::wait_probe::WaitProbe;

/// API group of the custom resources.
pub const GROUP: &str = "apps.mainstay.dev";
/// The only API version of the custom resource, which is served and stored.
pub const VERSION: &str = "v1alpha1";
/// Kind of the custom resource as written in manifests.
pub const KIND: &str = "WaitDeployment";
/// Plural name of the custom resource as written in paths and RBAC rules.
pub const PLURAL: &str = "waitdeployments";

/// A Deployment that starts only once its dependencies hold.
///
/// Serialized with `apiVersion` and `kind`; decoding ignores both, since the path of a request implies them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitDeployment {
    /// Standard object metadata.
    #[schemars(skip)]
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The Deployment to start, as a DeploymentSpec.
    pub spec: WaitDeploymentSpec,
    /// A TCP address to wait for, as the short form of spec.waitFor. Without both, the Deployment is created
    /// at once.
    #[serde(default)]
    pub wait_probe: Option<WaitProbe>,
    /// State reported by the controllers; edits have no effect.
    #[serde(default)]
    pub status: Option<WaitDeploymentStatus>,
}

/// The spec of a WaitDeployment: a DeploymentSpec with its template kept as JSON, and the field waitFor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitDeploymentSpec {
    /// Number of desired Pods, 0 or more. Leave it out if an autoscaler scales the Deployment: a value given
    /// here is enforced, an absent one is never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Selects the Pods of the Deployment; must match the template's labels and cannot be changed later.
    pub selector: LabelSelector,
    /// Strategy to replace old Pods by new ones, as in a Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Map<String, Value>>,
    /// Seconds for which a new Pod must be ready before it counts as available; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// Number of old ReplicaSets kept for a rollback; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub revision_history_limit: Option<i32>,
    /// Whether the Deployment's rollout is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Seconds for which a rollout may make no progress before it is reported as failed; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub progress_deadline_seconds: Option<i32>,
    /// Dependencies to wait for before the Deployment starts. Not part of the Deployment.
    // Kept as JSON, so that fields of a newer version are not lost and do not make the object unreadable. The
    // method of this name decodes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WaitFor>")]
    pub wait_for: Option<Value>,
    /// Template of the Pods, as in a Deployment. Passed on unchanged; the API server checks it when the
    /// Deployment is written.
    pub template: Map<String, Value>,
    /// Keys of a DeploymentSpec newer than this version, passed on unchanged.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

// === impl WaitDeployment ===

impl WaitDeployment {
    /// Returns `metadata.generation` of the object, which grows with each change of its spec; 0 for an object
    /// that was never stored.
    pub fn generation(&self) -> i64 {
        self.metadata.generation.unwrap_or_default()
    }

    /// Returns whether the object is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the condition of type `type_` in the status of the object, if there is one.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.as_ref()?.condition(type_)
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
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("apiVersion", &Self::api_version(&()))?;
        object.serialize_entry("kind", KIND)?;
        object.serialize_entry("metadata", &self.metadata)?;
        object.serialize_entry("spec", &self.spec)?;
        if let Some(probe) = &self.wait_probe {
            object.serialize_entry("waitProbe", probe)?;
        }
        if let Some(status) = &self.status {
            object.serialize_entry("status", status)?;
        }
        object.end()
    }
}

#[cfg(test)]
mod tests;
