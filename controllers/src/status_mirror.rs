//! The controller `deployment-status-mirror`: keeps a WaitDeployment's status equal to what its Deployment reports.
//!
//! What is shown is [`mirror`]'s to say; here is only what reads and writes.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay::cache::Store;
use mainstay::client::Applier;
use mainstay::key::Request;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_api::WaitDeployment;

use crate::deployment::LiveDeployment;
use crate::mirror::mirror;

/// Name in metrics, logs and configuration.
pub const NAME: &str = "deployment-status-mirror";

/// Mirrors the status of owned Deployments.
#[derive(Debug)]
pub struct StatusMirror {
    objects: Store<WaitDeployment>,
    deployments: Store<LiveDeployment>,
    write_status: Applier<WaitDeployment>,
    clock: fn() -> Timestamp,
}

// === impl StatusMirror ===

impl StatusMirror {
    /// Makes the reconciler; `write_status` is in the name of [`FIELD_MANAGER`](crate::mirror::FIELD_MANAGER).
    pub fn new(
        objects: &Store<WaitDeployment>,
        deployments: &Store<Deployment>,
        write_status: Applier<WaitDeployment>,
    ) -> Self {
        Self {
            objects: objects.clone(),
            deployments: deployments.view(),
            write_status,
            clock: Timestamp::now,
        }
    }
}

impl Reconciler for StatusMirror {
    async fn reconcile(&self, request: &Request, cx: &Context) -> Outcome {
        let Some(object) = self.objects.get(request)? else { return Ok(Action::Done) };
        if object.is_deleting() {
            return Ok(Action::Done);
        }
        let live = self.deployments.get(request)?;
        let status = mirror(&object, live.as_deref(), &Time((self.clock)()));
        if status.is_shown_by(&object) {
            return Ok(Action::Done);
        }
        match self.write_status.apply_status(cx, &status.to_apply(&object)).await {
            Ok(_) => Ok(Action::Done),
            // Gone: there is nothing left to show.
            Err(error) if error.is_not_found() => Ok(Action::Done),
            Err(error) => Err(error.into()),
        }
    }
}
