//! The controller `deployment-status-mirror`: copies the status of a Deployment to its WaitDeployment.
//!
//! [`mod@mirror`] makes the status; this file reads and writes objects, and limits the writes so that a
//! rollout does not cost one write per Pod.
//!
//! # Invariants
//! 1. A change is written at most `PAUSE` after the previous write: changes within the pause are written
//!    together, and further changes do not extend it.

mod metrics;
pub mod mirror;

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay::cache::{ReadError, Store};
use mainstay::key::NamespacedName;
use mainstay::metrics::Registry;
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError, Reconciler};
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::deployment::LiveDeployment;
use crate::status::{StatusWriter, uid_of};
use metrics::MirrorMetrics;
use mirror::{is_shown, mirror};

/// Name of the controller that copies statuses of Deployments, in metrics, logs and configuration.
pub const NAME: &str = "deployment-status-mirror";

/// Least time between two writes of the status of one WaitDeployment. A rollout changes the Deployment's
/// status several times a second; a delay of a fifth of a second is not noticed by users.
const PAUSE: Duration = Duration::from_millis(200);

/// Reconciler that copies the status of Deployments to the WaitDeployments that own them.
#[derive(Debug)]
pub struct StatusMirror {
    objects: Store<WaitDeployment>,
    deployments: Store<LiveDeployment>,
    status: StatusWriter,
    pace: Mutex<Pace>,
    metrics: MirrorMetrics,
}

/// The times at which the copied status of each WaitDeployment was written, and became out of date.
#[derive(Debug, Default)]
struct Pace {
    /// When the status of each WaitDeployment was last written. The next write of any status removes entries
    /// older than the pause.
    written: HashMap<NamespacedName, Instant>,
    /// The leadership term that the times in `stale` belong to.
    term: u64,
    /// Since when the status of each WaitDeployment is out of date that has to be written.
    stale: HashMap<NamespacedName, Instant>,
}

// === impl StatusMirror ===

impl StatusMirror {
    /// Makes the reconciler that copies statuses; `status` must write as
    /// [`FIELD_MANAGER`](crate::status_mirror::mirror::FIELD_MANAGER).
    pub fn new(
        objects: &Store<WaitDeployment>,
        deployments: &Store<Deployment>,
        status: StatusWriter,
        registry: &Registry,
    ) -> Self {
        Self {
            objects: objects.clone(),
            deployments: deployments.view(),
            status,
            pace: Mutex::default(),
            metrics: MirrorMetrics::register(registry),
        }
    }
}

// === impl Pace ===

impl Pace {
    /// Records that the status of the WaitDeployment `request` is out of date, and returns the rest of the
    /// pause since its last write; `None` if it may be written now.
    fn pause(&mut self, request: &NamespacedName, term: u64) -> Option<Duration> {
        if self.term != term {
            self.term = term;
            // Another replica has written these statuses meanwhile, or the objects are gone.
            self.stale.clear();
        }
        self.stale.entry(request.clone()).or_insert_with(Instant::now);
        let since = self.written.get(request)?.elapsed();
        PAUSE.checked_sub(since).filter(|rest| !rest.is_zero())
    }

    /// Records that the status of the WaitDeployment `request` was written, and returns how long it was out
    /// of date.
    fn wrote(&mut self, request: &NamespacedName) -> Duration {
        self.written.retain(|_, at| at.elapsed() < PAUSE);
        self.written.insert(request.clone(), Instant::now());
        self.stale.remove(request).map(|since| since.elapsed()).unwrap_or_default()
    }
}

impl Reconciler for StatusMirror {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let read = self.objects.get(request).and_then(|object| Ok((object, self.deployments.get(request)?)));
        let (object, live) = match read {
            // The gate reports objects that are too large.
            Err(ReadError::TooLarge { .. }) => (None, None),
            read => read?,
        };
        let Some(object) = object.filter(|object| !object.is_deleting()) else {
            self.pace.lock().stale.remove(request);
            return Ok(Action::Done);
        };
        let status = mirror(&object, live.as_deref(), &Time(Timestamp::now()));
        if is_shown(&status, &object) {
            self.pace.lock().stale.remove(request);
            self.metrics.count(metrics::SKIPPED);
            return Ok(Action::Done);
        }
        let pause = self.pace.lock().pause(request, cx.term());
        if let Some(pause) = pause {
            return Ok(Action::RequeueAfter(pause));
        }
        let written = self.status.write(cx, request, uid_of(&object), &status).await;
        let count_failed = |error: &ReconcileError| {
            self.metrics.count(if error.is_conflict() { metrics::CONFLICT } else { metrics::ERROR });
        };
        if written.inspect_err(count_failed)? {
            let lag = self.pace.lock().wrote(request);
            self.metrics.applied(lag);
        } else {
            // The object is gone.
            self.pace.lock().stale.remove(request);
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests;
