//! Writing the Deployment, and asking the server beforehand whether it would take it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use mainstay::cache::Entry;
use mainstay::client::{Live, WriteError, refusal};
use mainstay::key::NamespacedName;
use mainstay::reconcile::{Context, ReconcileError};
use mainstay_api::WaitDeployment;
use serde_json::Value;
use tracing::info;

use super::WaitDeploymentReconciler;
use super::adopt::ManagedFieldsTooLarge;
use super::gate::{Applied, Deed, Replicas, Trial, Write};
use super::refused::{is_denial, is_no_dry_run, is_rejection, words_of};
use super::written::{Attempt, TRIAL_RETRY};
use crate::deployment::{
    LiveDeployment, LiveTemplate, guarded, guarded_version, with_no_replicas, with_replicas_held,
    with_template_held,
};
use crate::reasons::condition;

/// How long a refusal by RBAC, quota or admission rests: somebody has to change something elsewhere, and no event
/// tells when they have.
pub(super) const FORBIDDEN_RETRY: Duration = Duration::from_mins(1);

/// What became of a decision.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) applied: Applied,
    pub(super) trial: Trial,
    pub(super) deed: Deed,
    /// Ends the run, after the status has told what is known.
    pub(super) error: Option<ReconcileError>,
    /// When to try again what nobody waits for.
    pub(super) next: Option<Duration>,
}

/// The live Deployment, undecoded and decoded.
pub(super) type Found<'a> = (&'a Entry<LiveDeployment>, Arc<LiveDeployment>);

// === impl Done ===

impl Done {
    pub(super) fn nothing() -> Self {
        Self::of(Applied::NotTried, Deed::Nothing)
    }

    fn of(applied: Applied, deed: Deed) -> Self {
        Self { applied, trial: Trial::Unknown, deed, error: None, next: None }
    }

    fn failed(applied: Applied, error: ReconcileError) -> Self {
        Self { error: Some(error), ..Self::of(applied, Deed::Nothing) }
    }

    /// Returns the Deployment that was written, for Events about it.
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

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Brings the Deployment to the current spec, but for what is held back, unless it is there already.
    pub(super) async fn write(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        found: Option<Found<'_>>,
        write: Write,
        cx: &Context,
    ) -> Result<Done, ReconcileError> {
        let live = found.as_ref().map(|(_, live)| Arc::clone(live));
        let body = body(self.desired(object), found.as_ref(), write)?;
        let attempt = Attempt::new(object, body, live.clone(), cx.term());
        let mut done = match self.memory.recall(request, &attempt) {
            Some(known) => Done::of(known, Deed::Nothing),
            None => self.send(request, object, found.as_ref(), &attempt, write, cx).await?,
        };
        // Two such bodies of a large object are twice its memory.
        drop(attempt);
        if write.holds() && matches!(done.applied, Applied::Current(_)) {
            // What is held back would otherwise be found wrong only when it is let through.
            let Done { trial, error, next, .. } = self.try_out(request, object, live.as_deref(), cx).await;
            done = Done { trial, error, next, ..done };
        }
        Ok(done)
    }

    async fn send(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        found: Option<&Found<'_>>,
        attempt: &Attempt,
        write: Write,
        cx: &Context,
    ) -> Result<Done, ReconcileError> {
        let live = attempt.live.as_deref();
        let mut version = live.map(|live| live.metadata.resource_version.clone());
        if let Some((entry, _)) = found.filter(|_| write.adopts) {
            version = match self.take_over(request, object, entry, &attempt.desired, cx).await {
                Ok(version) => version,
                Err(error) => return refused(error),
            };
            if version.is_none() {
                self.memory.remember_different(request, attempt);
                return Ok(Done::of(Applied::Differs, Deed::Nothing));
            }
        }
        let body = match live {
            // The template was copied from this version, and would undo what a user has changed since.
            Some(live) if write.holds_template => {
                guarded_version(&attempt.desired, live, &version.unwrap_or_default())
            }
            _ => guarded(&attempt.desired, live),
        };
        match self.write_deployment.apply(cx, &body).await {
            Ok(now) => {
                self.memory.remember_written(request, attempt, &now);
                let same =
                    live.is_some_and(|live| live.metadata.resource_version == now.metadata.resource_version);
                let deed = match live {
                    None => Deed::Created,
                    Some(_) if write.adopts => Deed::Adopted,
                    Some(_) if same => Deed::Nothing,
                    Some(_) => Deed::Updated,
                };
                if deed != Deed::Nothing {
                    info!(deployment = %request, generation = object.generation(), ?deed, "wrote the Deployment");
                }
                Ok(Done::of(Applied::Current(Box::new((*now).clone())), deed))
            }
            Err(error) if is_rejection(&error) => {
                let message = words_of(&error);
                self.memory.remember_rejected(request, attempt, &message);
                Ok(Done::failed(Applied::Rejected(message), ReconcileError::terminal(error)))
            }
            Err(error) => refused(error.into()),
        }
    }

    /// Asks the server what it would say to the whole Deployment, with nothing held back: once for each that is asked
    /// for, and again only after a refusal that may pass.
    pub(super) async fn try_out(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        live: Option<&LiveDeployment>,
        cx: &Context,
    ) -> Done {
        let attempt = Attempt::new(object, self.desired(object), None, cx.term());
        let mut done = Done::nothing();
        let known = self.memory.recall_trial(request, &attempt);
        done.trial = match known {
            Some(trial) => trial,
            // Another replica has asked, or this one before it was restarted.
            None if is_told_accepted(object) => Trial::Accepted,
            None => match self.ask(object, &attempt, live, cx).await {
                Ok(trial) => {
                    self.memory.remember_trial(request, &attempt, trial.clone());
                    trial
                }
                Err(error) => {
                    done.error = Some(error.into());
                    Trial::Unknown
                }
            },
        };
        done.next = done.trial.may_pass().then_some(TRIAL_RETRY);
        done
    }

    async fn ask(
        &self,
        object: &WaitDeployment,
        attempt: &Attempt,
        live: Option<&LiveDeployment>,
        cx: &Context,
    ) -> Result<Trial, WriteError> {
        let body = guarded(&attempt.desired, live);
        match self.write_deployment.dry_run(cx, None::<&Live>, &body).await {
            Ok(_) => Ok(Trial::Accepted),
            Err(error) if is_no_dry_run(&error) => {
                info!(object = ?object.metadata.name, "the Deployment cannot be tried out: {}", words_of(&error));
                Ok(Trial::Unknown)
            }
            Err(error) if is_rejection(&error) => Ok(Trial::Rejected(words_of(&error))),
            Err(error) if is_denial(&error) => Ok(Trial::Denied(words_of(&error))),
            Err(error) if error.is_forbidden() => Ok(Trial::Forbidden(words_of(&error))),
            Err(error) => Err(error),
        }
    }
}

// === private ===

/// Ends a write that failed. A refusal that may pass without an edit goes into the status and is retried slowly.
pub(super) fn refused(error: ReconcileError) -> Result<Done, ReconcileError> {
    if let Some(too_large) = error.source().downcast_ref::<ManagedFieldsTooLarge>() {
        return Ok(Done::failed(Applied::Rejected(too_large.to_string()), error));
    }
    let status = refusal(error.source()).map(|status| (status.code, status.message.clone()));
    let applied = match status {
        Some((_, words)) if is_denial(error.source()) => Applied::Denied(words),
        Some((403, words)) => Applied::Forbidden(words),
        _ => return Err(error),
    };
    Ok(Done::failed(applied, ReconcileError::retry_after(error.to_string(), FORBIDDEN_RETRY)))
}

/// Returns what is to be written now of the whole Deployment.
fn body(mut body: Value, found: Option<&Found<'_>>, write: Write) -> Result<Value, ReconcileError> {
    if let Some((entry, live)) = found.filter(|_| write.holds_template) {
        let template = entry.view().decode::<LiveTemplate>()?;
        body = with_template_held(&body, live, &template.spec.template);
    }
    Ok(match write.replicas {
        Replicas::AsAsked => body,
        Replicas::Held => with_replicas_held(&body, found.map(|(_, live)| &**live)),
        Replicas::TakenAway => with_no_replicas(&body),
    })
}

fn is_told_accepted(object: &WaitDeployment) -> bool {
    let told = object.condition(condition::TEMPLATE_ACCEPTED);
    told.is_some_and(|told| told.status == "True" && told.observed_generation == Some(object.generation()))
}
