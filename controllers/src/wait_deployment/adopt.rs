//! Taking over a Deployment that nobody controls.
//!
//! Its Pods are not touched by that: what is applied afterwards is the spec, and an equal template is no new one.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use mainstay::cache::Entry;
use mainstay::client::refusal;
use mainstay::key::{Key as _, Request};
use mainstay::reconcile::{Context, ReconcileError};
use mainstay_api::WaitDeployment;
use mainstay_api::wait_for::Adoption;
use serde_json::{Value, json};

use super::WaitDeploymentReconciler;
use super::deed::FORBIDDEN_RETRY;
use super::refused::is_denial;
use crate::deployment::{FIELD_MANAGER, LiveDeployment, LiveTemplate, ownership, template_only};

/// When to look again at what the cache does not show as it is yet.
const CHANGED_RETRY: Duration = Duration::from_secs(1);

/// Somebody was faster.
#[derive(Debug, thiserror::Error)]
#[error("the Deployment has changed since it was found to be nobody's")]
struct Changed;

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Makes the creator's fields ours, so that what is left out of the spec later goes away.
    ///
    /// Returns the version it has then; `None` if it has to be left alone: its template is another one, and only an
    /// identical one may be taken over.
    pub(super) async fn take_over(
        &self,
        request: &Request,
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
        let live = deployments.get(request.name()).await?;
        // What was decided on may be long gone; the cache will show it soon.
        if !is_still(&live.metadata, found) {
            return Err(ReconcileError::retry_after(Changed, CHANGED_RETRY));
        }
        let mut version = live.metadata.resource_version.clone().unwrap_or_default();
        let is_current = version == found.meta().resource_version.to_string();
        let managed = serde_json::to_value(&live.metadata.managed_fields)?;
        if let Some(moved) = ownership::with_creators_fields(&managed, desired) {
            // Of the version that was read, and of the Deployment that was decided about.
            let metadata = json!({
                "uid": found.meta().uid.to_string(),
                "resourceVersion": live.metadata.resource_version,
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

    /// Returns whether the Deployment, which bears no mark of ours, has the object's template all the same.
    pub(super) async fn has_same_template(
        &self,
        request: &Request,
        found: &Entry<LiveDeployment>,
        desired: &Value,
        cx: &Context,
    ) -> Result<bool, ReconcileError> {
        is_identical(&deployments(request, cx), found, desired).await
    }
}

// === private ===

fn deployments(request: &Request, cx: &Context) -> Api<DynamicObject> {
    let namespace = request.namespace().unwrap_or_default();
    Api::namespaced_with(cx.client().clone(), namespace, &ApiResource::erase::<Deployment>(&()))
}

/// Returns whether it is the one that was found, and still nobody's.
fn is_still(live: &ObjectMeta, found: &Entry<LiveDeployment>) -> bool {
    let owners = live.owner_references.as_deref().unwrap_or_default();
    live.uid.as_deref() == Some(&*found.meta().uid.to_string())
        && live.deletion_timestamp.is_none()
        && owners.iter().all(|owner| owner.controller != Some(true))
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
        Err(error) if is_denial(&error) || refusal(&error).is_some_and(|status| status.code == 403) => {
            return Err(ReconcileError::retry_after(error, FORBIDDEN_RETRY));
        }
        // Nothing that exists is identical with what the server refuses as invalid.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => return Ok(false),
        answer => answer?,
    };
    let live = found.view().decode::<LiveTemplate>()?;
    Ok(template_only(&answer.data["spec"]["template"]) == template_only(&live.spec.template))
}
