//! Adoption of a Deployment that has no controller.
//!
//! Adoption alone does not restart Pods: the spec is applied afterwards, and an equal template starts no
//! rollout.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GetParams, Patch, PatchParams, PostParams};
use kube::core::Request as ApiRequest;
use kube::{Api, Resource as _};
use mainstay::cache::Entry;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Context, ReconcileError};
use mainstay_api::wait_for::Adoption;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Run;
use super::refused::{denies, refusal_that_may_pass};
use crate::deployment::{FIELD_MANAGER, LiveDeployment, LiveTemplate, managed_fields, template_only};

/// Delay before the adoption of a Deployment is retried if the cache does not show its latest version yet.
const CHANGED_RETRY: Duration = Duration::from_secs(1);

/// Maximum size of a Deployment's `managedFields` that are decoded, in bytes: any client may add entries, and
/// a decoded entry takes many times the memory of its text.
const MAX_MANAGED_FIELDS: usize = 256 << 10;

/// Error: a Deployment cannot be adopted, because its `managedFields` are too large to be decoded. A retry
/// helps only after they have shrunk.
#[derive(Debug, thiserror::Error)]
#[error(
    "managedFields of the Deployment have {0} bytes, more than {MAX_MANAGED_FIELDS}; \
     remove the entries of managers that are gone"
)]
pub(super) struct ManagedFieldsTooLarge(usize);

#[derive(Deserialize)]
struct Live {
    metadata: LiveMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LiveMetadata {
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
    managed_fields: Option<Box<RawValue>>,
}

// === impl Run ===

impl Run<'_> {
    /// Moves fields of the Deployment from its creator to the field manager of the gate, so that a
    /// field which is later removed from the spec disappears.
    ///
    /// Returns the resourceVersion of the Deployment then; `None` if it must not be adopted: its template
    /// differs, and adoption is `IfIdentical`.
    pub(super) async fn adopt(
        &self,
        found: &Entry<LiveDeployment>,
        desired: &Value,
    ) -> Result<Option<String>, ReconcileError> {
        let Self { request, object, cx, .. } = *self;
        let deployments = deployments(request, cx);
        if object.spec.adoption() == Adoption::IfIdentical
            && !is_identical(&deployments, found, desired).await?
        {
            return Ok(None);
        }
        // The cache leaves managedFields out.
        let url = Deployment::url_path(&(), request.namespace());
        let get = ApiRequest::new(url).get(request.name(), &GetParams::default());
        let Live { metadata: live } = cx.client().request(get.map_err(kube::Error::BuildRequest)?).await?;
        // Another client has adopted, deleted or replaced the Deployment; the cache will show that soon.
        if !live.is_still(found) {
            let changed = "the Deployment has changed since it was found without a controller";
            return Err(ReconcileError::retry_after(changed, CHANGED_RETRY));
        }
        let mut version = live.resource_version.clone();
        let is_current = version == found.meta().resource_version.to_string();
        if let Some(moved) = managed_fields::with_creators_fields(live.managed_fields()?, desired) {
            // A precondition: the version that was read, of the Deployment that the decision was made for.
            let metadata = json!({
                "uid": found.meta().uid.to_string(),
                "resourceVersion": live.resource_version,
                "managedFields": moved,
            });
            let params =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let patch = Patch::Merge(json!({"metadata": metadata}));
            let moved = deployments.patch(request.name(), &params, &patch).await?;
            version = moved.metadata.resource_version.unwrap_or_default();
        }
        // The decision does not cover a version that the cache has not shown: with the cached version the
        // write conflicts, and the next run decides again.
        Ok(Some(if is_current { version } else { found.meta().resource_version.to_string() }))
    }

    /// Returns whether the Deployment, which has no template hash, has the template of the object. Returns
    /// false if the comparison is refused: the write or its dry run is refused as well then, and the status
    /// reports that.
    pub(super) async fn has_same_template(
        &self,
        found: &Entry<LiveDeployment>,
        desired: &Value,
    ) -> Result<bool, ReconcileError> {
        match is_identical(&deployments(self.request, self.cx), found, desired).await {
            Err(error) if refusal_that_may_pass(error.source()).is_some() => Ok(false),
            answer => answer,
        }
    }
}

// === impl LiveMetadata ===

impl LiveMetadata {
    /// Returns whether the API server's answer is about the Deployment `found` of the cache, by its uid, and
    /// that Deployment is still not being deleted and still has no controller.
    fn is_still(&self, found: &Entry<LiveDeployment>) -> bool {
        self.uid == *found.meta().uid.to_string()
            && self.deletion_timestamp.is_none()
            && self.owner_references.iter().all(|owner| owner.controller != Some(true))
    }

    fn managed_fields(&self) -> Result<Vec<Value>, ReconcileError> {
        let Some(raw) = &self.managed_fields else { return Ok(Vec::new()) };
        let text = raw.get();
        if text.len() > MAX_MANAGED_FIELDS {
            return Err(ReconcileError::terminal(ManagedFieldsTooLarge(text.len())));
        }
        Ok(serde_json::from_str(text)?)
    }
}

// === private ===

fn deployments(request: &NamespacedName, cx: &Context) -> Api<DynamicObject> {
    let namespace = request.namespace().unwrap_or_default();
    Api::namespaced_with(cx.client().clone(), namespace, &ApiResource::erase::<Deployment>(&()))
}

/// Returns whether the cached Deployment has the Pod template of `desired`. The API server fills in all
/// defaults first, by a dry run of a create under a generated name: a comparison in the manager would need
/// every default of every Kubernetes version.
async fn is_identical(
    deployments: &Api<DynamicObject>,
    found: &Entry<LiveDeployment>,
    desired: &Value,
) -> Result<bool, ReconcileError> {
    let mut fresh = desired.clone();
    if let Some(metadata) = fresh["metadata"].as_object_mut() {
        metadata.remove("name");
        metadata.remove("ownerReferences");
        metadata.insert("generateName".to_owned(), json!("mainstay-compare-"));
    }
    let fresh: DynamicObject = serde_json::from_value(fresh)?;
    let params = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_owned()) };
    let answer = match deployments.create(&params, &fresh).await {
        // An invalid template equals no existing one.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) && !denies(&status) => {
            return Ok(false);
        }
        answer => answer?,
    };
    let live = found.view().decode::<LiveTemplate>()?;
    Ok(template_only(&answer.data["spec"]["template"]) == template_only(&live.spec.template))
}

#[cfg(test)]
mod tests {
    use mainstay::reconcile::Retry;

    use super::super::gate::Applied;
    use super::super::write::refused;
    use super::*;

    #[test]
    fn too_large_managed_fields_are_reported_and_not_decoded() {
        let live = |bytes: usize| {
            let fields = json!([{"manager": "x".repeat(bytes)}]);
            let metadata = json!({"uid": "d1", "resourceVersion": "5", "managedFields": fields});
            serde_json::from_str::<LiveMetadata>(&metadata.to_string()).unwrap().managed_fields()
        };
        assert_eq!(live(1000).unwrap().len(), 1);
        let result = refused(live(MAX_MANAGED_FIELDS).unwrap_err()).unwrap();
        assert_eq!(result.error.unwrap().retry(), Retry::Never);
        let Applied::Refused(refusal) = result.applied else { panic!("{:?}", result.applied) };
        assert!(refusal.message.contains("have 262160 bytes, more than 262144"), "{refusal:?}");
    }
}
