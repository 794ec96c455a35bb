//! Writing the Deployment, and the dry run of a Deployment that is held back.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use mainstay::client::Live;
use mainstay::reconcile::ReconcileError;
use mainstay_api::WaitDeployment;
use serde_json::Value;
use tracing::info;

use super::adopt::ManagedFieldsTooLarge;
use super::gate::{Applied, DryRun, PlannedWrite, Refusal, RefusalKind, Replicas, Write};
use super::memory::Attempt;
use super::refused::{invalid_refusal, is_dry_run_unsupported, refusal_that_may_pass};
use super::{FoundDeployment, Run, WaitDeploymentReconciler};
use crate::deployment::{
    LiveDeployment, LiveTemplate, guarded, with_no_replicas, with_replicas_held, with_template_held,
};
use crate::reasons::condition;

/// Delay before a write of the Deployment that RBAC, a quota or admission refused is retried: another object
/// has to change first, and no event announces that.
pub(super) const FORBIDDEN_RETRY: Duration = Duration::from_mins(1);

/// The result of one run of the reconciler for the Deployment: of its write and its dry run.
#[derive(Debug)]
pub(super) struct WriteResult {
    pub(super) applied: Applied,
    pub(super) dry_run: DryRun,
    pub(super) write: Write,
    /// The error that the reconcile returns after the status is written; `None` without an error.
    pub(super) error: Option<ReconcileError>,
}

// === impl WriteResult ===

impl WriteResult {
    pub(super) fn not_tried() -> Self {
        Self::of(Applied::NotTried, Write::None)
    }

    fn of(applied: Applied, write: Write) -> Self {
        Self { applied, dry_run: DryRun::Unknown, write, error: None }
    }

    fn refused(refusal: Refusal, error: ReconcileError) -> Self {
        Self { error: Some(error), ..Self::of(Applied::Refused(refusal), Write::None) }
    }

    /// Adds the outcome of the dry run of the Deployment to the result.
    pub(super) fn with(self, dry_run: Result<DryRun, ReconcileError>) -> Self {
        match dry_run {
            Ok(dry_run) => Self { dry_run, ..self },
            Err(error) => Self { error: Some(error), ..self },
        }
    }

    /// Returns a reference to the Deployment that was written, for Events about it; `None` if it was not
    /// written.
    pub(super) fn deployment(&self, object: &WaitDeployment) -> Option<ObjectReference> {
        let Applied::Current(live) = &self.applied else { return None };
        Some(ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            uid: Some(live.metadata.uid.clone()),
            ..object.object_ref(&())
        })
    }
}

// === impl Run ===

impl Run<'_> {
    /// Applies the current spec to the Deployment except for the parts that are held back, unless the
    /// Deployment is up to date. If a part is held back, runs a dry run of the whole Deployment too, so that
    /// an error in that part is reported early.
    pub(super) async fn write(
        &self,
        found: Option<&FoundDeployment>,
        planned: PlannedWrite,
    ) -> Result<WriteResult, ReconcileError> {
        let live = found.map(|found| &*found.live);
        let body = body(self.desired(), found, planned)?;
        let attempt = Attempt::new(self.object, body, live, self.cx.term());
        let mut result = match self.reconciler.memory.recall(self.request, &attempt, live) {
            Some(applied) => WriteResult::of(applied, Write::None),
            None => self.send(found, &attempt, planned).await?,
        };
        // Drops the body before the dry run makes another one: both may be large.
        drop(attempt);
        if planned.holds() && matches!(result.applied, Applied::Current(_)) {
            result = result.with(self.dry_run(live).await);
        }
        Ok(result)
    }

    async fn send(
        &self,
        found: Option<&FoundDeployment>,
        attempt: &Attempt,
        planned: PlannedWrite,
    ) -> Result<WriteResult, ReconcileError> {
        let Self { reconciler: WaitDeploymentReconciler { memory, write_deployment, .. }, request, .. } =
            *self;
        let live = found.map(|found| &*found.live);
        let mut version = live.map(|live| live.metadata.resource_version.clone());
        if let Some(found) = found.filter(|_| planned.adopts) {
            version = match self.adopt(&found.entry, &attempt.desired).await {
                Ok(version) => version,
                Err(error) => return refused(error),
            };
            if version.is_none() {
                memory.remember_failed(request, attempt, Applied::Differs);
                return Ok(WriteResult::of(Applied::Differs, Write::None));
            }
        }
        // The template was copied from this version: written to a later one, it would revert a user's change.
        let version = version.filter(|_| planned.holds_template);
        let body = guarded(&attempt.desired, live, version);
        let now = match write_deployment.apply(self.cx, &body).await {
            Ok(now) => now,
            Err(error) => match invalid_refusal(&error) {
                Some(refusal) => {
                    memory.remember_failed(request, attempt, Applied::Refused(refusal.clone()));
                    return Ok(WriteResult::refused(refusal, ReconcileError::terminal(error)));
                }
                None => return refused(error.into()),
            },
        };
        memory.remember_written(request, attempt, &now);
        let write = match live {
            None => Write::Created,
            Some(_) if planned.adopts => Write::Adopted,
            Some(live) if live.metadata.resource_version == now.metadata.resource_version => Write::None,
            Some(_) => Write::Updated,
        };
        if write != Write::None {
            let generation = self.object.generation();
            info!(deployment = %request, generation, ?write, "wrote the Deployment");
        }
        Ok(WriteResult::of(Applied::Current(Box::new((*now).clone())), write))
    }

    /// Returns whether the API server would accept the whole Deployment, without holding any part back. The
    /// request is made once per desired Deployment, and again only after a refusal that may pass.
    pub(super) async fn dry_run(&self, live: Option<&LiveDeployment>) -> Result<DryRun, ReconcileError> {
        let Self { reconciler: WaitDeploymentReconciler { memory, write_deployment, .. }, request, .. } =
            *self;
        let attempt = Attempt::new(self.object, self.desired(), None, self.cx.term());
        if let Some(known) = memory.recall_dry_run(request, &attempt) {
            return Ok(known);
        }
        // From another replica, or from before a restart.
        if status_shows_accepted(self.object) {
            return Ok(DryRun::Accepted);
        }
        let body = guarded(&attempt.desired, live, None);
        let answer = match write_deployment.dry_run(self.cx, None::<&Live>, &body).await {
            Ok(_) => DryRun::Accepted,
            Err(error) if is_dry_run_unsupported(&error) => {
                info!(deployment = %request, %error, "the Deployment cannot be dry-run");
                DryRun::Unknown
            }
            Err(error) => match invalid_refusal(&error).or_else(|| refusal_that_may_pass(&error)) {
                Some(refusal) => DryRun::Refused(refusal),
                None => return Err(error.into()),
            },
        };
        memory.remember_dry_run(request, &attempt, answer.clone());
        Ok(answer)
    }
}

// === private ===

/// Returns the result of a write of the Deployment that failed. A refusal that may pass without an edit is
/// reported in the status and retried slowly; any other error is returned.
pub(super) fn refused(error: ReconcileError) -> Result<WriteResult, ReconcileError> {
    if let Some(too_large) = error.source().downcast_ref::<ManagedFieldsTooLarge>() {
        let refusal = Refusal { kind: RefusalKind::Invalid, message: too_large.to_string() };
        return Ok(WriteResult::refused(refusal, error));
    }
    let Some(refusal) = refusal_that_may_pass(error.source()) else { return Err(error) };
    Ok(WriteResult::refused(refusal, ReconcileError::retry_after(error.to_string(), FORBIDDEN_RETRY)))
}

/// Returns the Deployment to write: `body` without the parts of the spec that are held back.
fn body(
    mut body: Value,
    found: Option<&FoundDeployment>,
    planned: PlannedWrite,
) -> Result<Value, ReconcileError> {
    if let Some(FoundDeployment { entry, live }) = found.filter(|_| planned.holds_template) {
        let template = entry.view().decode::<LiveTemplate>()?;
        body = with_template_held(body, live, &template.spec.template);
    }
    Ok(match planned.replicas {
        Replicas::AsSpecified => body,
        Replicas::Held => with_replicas_held(body, found.map(|found| &*found.live)),
        Replicas::ScaledToZero => with_no_replicas(body),
    })
}

fn status_shows_accepted(object: &WaitDeployment) -> bool {
    let shown = object.condition(condition::TEMPLATE_ACCEPTED);
    shown
        .is_some_and(|shown| shown.status == "True" && shown.observed_generation == Some(object.generation()))
}
