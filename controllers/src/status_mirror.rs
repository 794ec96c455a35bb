//! The controller `deployment-status-mirror`: keeps a WaitDeployment's status equal to what its Deployment reports.
//!
//! What is shown is [`mod@mirror`]'s to say; here is only what reads, writes, and keeps a rollout from costing one write per
//! Pod.
//!
//! # Invariants
//! 1. What was shown last is at most `PAUSE` old once something has changed, however often it changes: changes within
//!    the pause are gathered, and never put it off.

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
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::deployment::LiveDeployment;
use crate::status::{StatusWriter, uid_of};
use metrics::{MirrorMetrics, WriteResult};
use mirror::mirror;

/// Name in metrics, logs and configuration.
pub const NAME: &str = "deployment-status-mirror";

/// Shortest time between two writes of one status. A rollout changes the Deployment's status several times a second; a
/// reader of ours notices nothing of a fifth of one.
const PAUSE: Duration = Duration::from_millis(200);

/// Mirrors the status of owned Deployments.
#[derive(Debug)]
pub struct StatusMirror {
    objects: Store<WaitDeployment>,
    deployments: Store<LiveDeployment>,
    status: StatusWriter,
    book: Mutex<Book>,
    metrics: MirrorMetrics,
    clock: fn() -> Timestamp,
}

/// What is remembered of statuses.
#[derive(Debug, Default)]
struct Book {
    /// When each was last written. Entries older than the pause mean nothing and go with the next write.
    written: HashMap<NamespacedName, Instant>,
    /// Of which term `stale` is.
    term: u64,
    /// Since when those that are to be written yet have been out of date.
    stale: HashMap<NamespacedName, Instant>,
}

// === impl StatusMirror ===

impl StatusMirror {
    /// Makes the reconciler; `status` is in the name of [`FIELD_MANAGER`](crate::status_mirror::mirror::FIELD_MANAGER).
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
            book: Mutex::default(),
            metrics: MirrorMetrics::register(registry),
            clock: Timestamp::now,
        }
    }
}

// === impl Book ===

impl Book {
    /// Notes that a status is out of date, and returns how long it is to rest yet; `None` if it may be written.
    fn rest(&mut self, request: &NamespacedName, term: u64) -> Option<Duration> {
        if self.term != term {
            self.term = term;
            // Others have mirrored them meanwhile, or seen them go.
            self.stale.clear();
        }
        self.stale.entry(request.clone()).or_insert_with(Instant::now);
        let since = self.written.get(request)?.elapsed();
        PAUSE.checked_sub(since).filter(|rest| !rest.is_zero())
    }

    /// Notes that a status was written, and returns how long it had been out of date.
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
            // The gate tells it.
            Err(ReadError::TooLarge { .. }) => (None, None),
            read => read?,
        };
        let Some(object) = object.filter(|object| !object.is_deleting()) else {
            self.book.lock().stale.remove(request);
            return Ok(Action::Done);
        };
        let status = mirror(&object, live.as_deref(), &Time((self.clock)()));
        if status.is_shown_by(&object) {
            self.book.lock().stale.remove(request);
            self.metrics.count(WriteResult::Skipped);
            return Ok(Action::Done);
        }
        let rest = self.book.lock().rest(request, cx.term());
        if let Some(rest) = rest {
            return Ok(Action::RequeueAfter(rest));
        }
        match self.status.write(cx, request, uid_of(&object), &status).await {
            Ok(true) => {
                let lag = self.book.lock().wrote(request);
                self.metrics.applied(lag);
            }
            // Gone: there is nothing left to show.
            Ok(false) => {
                self.book.lock().stale.remove(request);
            }
            Err(error) => {
                let is_conflict = error.is_conflict();
                self.metrics.count(if is_conflict { WriteResult::Conflict } else { WriteResult::Error });
                return Err(error);
            }
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests;
