//! Objects that are too large to be decoded: their conditions report the size and the limit.
//!
//! Only the metadata of such an object is known. So only the three summary conditions are written, under a
//! field manager of their own: all other status fields of the gate stay, and its first report after the
//! object has shrunk takes the three conditions over.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay::cache::{ReadError, Uid};
use mainstay::key::NamespacedName;
use mainstay::reconcile::{Action, Context, Outcome};
use parking_lot::Mutex;

use super::WaitDeploymentReconciler;
use super::gate::report_too_large;
use crate::deployment::SIZE_FIELD_MANAGER;
use crate::status::StatusWriter;

/// The leadership term, uid and generation of a report.
type Version = (u64, Uid, Option<i64>);

/// Reports that an object is too large, once per version: the status that shows the report cannot be decoded.
#[derive(Debug)]
pub(super) struct TooLargeReports {
    status: StatusWriter,
    reported: Mutex<HashMap<NamespacedName, Version>>,
}

// === impl TooLargeReports ===

impl TooLargeReports {
    pub(super) fn new(status: &StatusWriter) -> Self {
        Self { status: status.with_field_manager(SIZE_FIELD_MANAGER), reported: Mutex::default() }
    }

    /// Forgets an object that can be decoded, or is gone.
    pub(super) fn forget(&self, request: &NamespacedName) {
        self.reported.lock().remove(request);
    }
}

// === impl WaitDeploymentReconciler ===

impl WaitDeploymentReconciler {
    /// Reports in the status and by an Event that the object, or its Deployment, is too large.
    pub(super) async fn report_too_large(
        &self,
        request: &NamespacedName,
        error: &ReadError,
        cx: &Context,
    ) -> Outcome {
        let Some(entry) = self.objects.entry(request)? else { return Ok(Action::Done) };
        let meta = entry.meta();
        if meta.deleting {
            return Ok(Action::Done);
        }
        self.metrics.observe(request, "too_large");
        let version = (cx.term(), meta.uid.clone(), meta.generation);
        if self.too_large.reported.lock().get(request) == Some(&version) {
            return Ok(Action::Done);
        }
        let now = Time(Timestamp::now());
        let status = report_too_large(meta.generation.unwrap_or_default(), &error.to_string(), &now);
        if self.too_large.status.write(cx, request, &meta.uid.to_string(), &status).await? {
            self.too_large.reported.lock().insert(request.clone(), version);
            self.send_unreadable(request, &error.to_string(), cx);
        }
        Ok(Action::Done)
    }
}
