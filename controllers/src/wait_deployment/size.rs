//! Objects that are too large to be decoded: their conditions say so, with the size and the limit.
//!
//! Nothing is known of such an object but its metadata. So only the conditions that sum it up are written, under a field
//! manager of their own: what else the gate remembers in the status stays there, and its first report after the object
//! has shrunk takes them over.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay::cache::{ReadError, Uid};
use mainstay::key::NamespacedName;
use mainstay::reconcile::{Action, Context, Outcome};
use parking_lot::Mutex;

use super::WaitDeploymentReconciler;
use super::gate::TooLargeStatus;
use crate::deployment::FIELD_MANAGER_OF_SIZES;
use crate::status::StatusWriter;

/// The term, and of which object and generation.
type Told = (u64, Uid, Option<i64>);

/// What was told of objects that are too large.
#[derive(Debug)]
pub(super) struct Sizes {
    status: StatusWriter,
    /// Once for each: the status says it, but cannot be read.
    told: Mutex<HashMap<NamespacedName, Told>>,
}

// === impl Sizes ===

impl Sizes {
    pub(super) fn new(status: &StatusWriter) -> Self {
        Self { status: status.of(FIELD_MANAGER_OF_SIZES), told: Mutex::default() }
    }

    /// Forgets an object that can be read, or is gone.
    pub(super) fn forget(&self, request: &NamespacedName) {
        self.told.lock().remove(request);
    }
}

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Says in the status that the object, or its Deployment, is too large.
    pub(super) async fn tell_too_large(
        &self,
        request: &NamespacedName,
        error: &ReadError,
        cx: &Context,
    ) -> Outcome {
        let Some(entry) = self.objects.entry(request)? else { return Ok(Action::Done) };
        let meta = entry.meta();
        let told = (cx.term(), meta.uid.clone(), meta.generation);
        if meta.deleting {
            return Ok(Action::Done);
        }
        self.metrics.observe(request, "too_large");
        if self.sizes.told.lock().get(request) == Some(&told) {
            return Ok(Action::Done);
        }
        let now = Time((self.clock)());
        let status = TooLargeStatus::new(meta.generation.unwrap_or_default(), &error.to_string(), &now);
        if self.sizes.status.write(cx, request, &meta.uid.to_string(), &status).await? {
            self.sizes.told.lock().insert(request.clone(), told);
            self.tell_unreadable(request, &error.to_string(), cx);
        }
        Ok(Action::Done)
    }
}
