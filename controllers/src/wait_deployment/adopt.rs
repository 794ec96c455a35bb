//! Taking over a Deployment that nobody controls.
//!
//! Its Pods are not touched by that: what is applied afterwards is the spec, and an equal template is no new one.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GetParams, Patch, PatchParams, PostParams};
use kube::core::Request as ApiRequest;
use kube::{Api, Resource as _};
use mainstay::cache::Entry;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Context, ReconcileError};
use mainstay_api::WaitDeployment;
use mainstay_api::wait_for::Adoption;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::WaitDeploymentReconciler;
use super::refused::{denies, may_pass};
use crate::deployment::{FIELD_MANAGER, LiveDeployment, LiveTemplate, ownership, template_only};

/// When to look again at what the cache does not show as it is yet.
const CHANGED_RETRY: Duration = Duration::from_secs(1);

/// Most bytes of managedFields that are decoded. Any client may add entries, and decoded they take many times their text.
const MAX_MANAGED_FIELDS: usize = 256 << 10;

/// Somebody was faster.
#[derive(Debug, thiserror::Error)]
#[error("the Deployment has changed since it was found to be nobody's")]
struct Changed;

/// The Deployment cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[error(
    "managedFields of the Deployment have {0} bytes, more than {MAX_MANAGED_FIELDS}; remove the entries of managers that \
     are gone"
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

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Makes the creator's fields ours, so that what is left out of the spec later goes away.
    ///
    /// Returns the version it has then; `None` if it has to be left alone: its template is another one, and only an
    /// identical one may be taken over.
    pub(super) async fn take_over(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        found: &Entry<LiveDeployment>,
        desired: &Value,
        cx: &Context,
    ) -> Result<Option<String>, ReconcileError> {
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
        // What was decided on may be long gone; the cache will show it soon.
        if !live.is_still(found) {
            return Err(ReconcileError::retry_after(Changed, CHANGED_RETRY));
        }
        let mut version = live.resource_version.clone();
        let is_current = version == found.meta().resource_version.to_string();
        if let Some(moved) = ownership::with_creators_fields(live.managed_fields()?, desired) {
            // Of the version that was read, and of the Deployment that was decided about.
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
        // Of what the cache has not shown nothing was decided: its own version leads to a conflict, and another look.
        Ok(Some(if is_current { version } else { found.meta().resource_version.to_string() }))
    }

    /// Returns whether the Deployment, which bears no mark of ours, has the object's template all the same. Not known to
    /// have it while the comparison is denied: the write, or its trial, is refused alike then, and the status tells it.
    pub(super) async fn has_same_template(
        &self,
        request: &NamespacedName,
        found: &Entry<LiveDeployment>,
        desired: &Value,
        cx: &Context,
    ) -> Result<bool, ReconcileError> {
        match is_identical(&deployments(request, cx), found, desired).await {
            Err(error) if may_pass(error.source()) => Ok(false),
            answer => answer,
        }
    }
}

// === impl LiveMetadata ===

impl LiveMetadata {
    /// Returns whether it is the one that was found, and still nobody's.
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

/// Asks the server what the Deployment would be with all defaults, under a name that is free, and compares the templates:
/// a comparison of ours would have to know every default of every version.
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
        // Nothing that exists is identical with what the server refuses as invalid.
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

    use super::super::deed::refused;
    use super::super::gate::Applied;
    use super::*;

    #[test]
    fn managed_fields_that_are_too_large_are_told_and_not_decoded() {
        let live = |bytes: usize| {
            let fields = json!([{"manager": "x".repeat(bytes)}]);
            let metadata = json!({"uid": "d1", "resourceVersion": "5", "managedFields": fields});
            serde_json::from_str::<LiveMetadata>(&metadata.to_string()).unwrap().managed_fields()
        };
        assert_eq!(live(1000).unwrap().len(), 1);
        let done = refused(live(MAX_MANAGED_FIELDS).unwrap_err()).unwrap();
        assert_eq!(done.error.unwrap().retry(), Retry::Never);
        let Applied::Rejected(told) = done.applied else { panic!("{:?}", done.applied) };
        assert!(told.contains("have 262160 bytes, more than 262144"), "{told}");
    }
}
