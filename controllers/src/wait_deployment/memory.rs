//! The last request for each object, so that it is not sent again.
//!
//! After a restart the memory is empty, which costs one apply without effect per object. The result of
//! a dry run is in the status too.
//!
//! # Invariants
//! 1. A request of an earlier term of this replica is not recalled: another replica, perhaps of another
//!    version, has led since. It may have written fields that are not compared here, and the cause of a
//!    refusal may be gone.

use std::collections::HashMap;
use std::time::Duration;

use mainstay::cache::RECONCILE_AT_ANNOTATION;
use mainstay::key::NamespacedName;
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::gate::{Applied, DryRun};
use crate::deployment::{Fingerprint, LiveDeployment};

/// Delay before a dry run that was refused for a reason that may pass is repeated: another object has to
/// change first, and no event announces that.
pub(super) const DRY_RUN_RETRY: Duration = Duration::from_mins(10);

/// A write of the Deployment, or a dry run of it, that is about to be sent.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The Deployment to send, without its precondition.
    pub(super) desired: Value,
    key: AttemptKey,
}

/// Key of a request for a Deployment: equal for two attempts that would have the same result.
#[derive(Clone, Debug, PartialEq)]
struct AttemptKey {
    term: u64,
    fingerprint: Fingerprint,
    /// Value of the annotation of the WaitDeployment by which a user requests a reconcile.
    reconcile_at: Option<String>,
}

/// The results of the last write and the last dry run of a Deployment, by WaitDeployment. The two locks are
/// never held together.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The last write of each Deployment with its result; the result is `None` if it was written: the cache
    /// shows it.
    writes: Mutex<HashMap<NamespacedName, (AttemptKey, Option<Applied>)>>,
    dry_runs: Mutex<HashMap<NamespacedName, (AttemptKey, DryRun, Instant)>>,
}

// === impl Attempt ===

impl Attempt {
    /// Makes the attempt to write the Deployment `desired` where the cache shows the Deployment `live`.
    pub(super) fn new(
        object: &WaitDeployment,
        desired: Value,
        live: Option<&LiveDeployment>,
        term: u64,
    ) -> Self {
        let fingerprint = Fingerprint::of(&desired, live);
        let annotations = object.metadata.annotations.as_ref();
        let reconcile_at =
            annotations.and_then(|annotations| annotations.get(RECONCILE_AT_ANNOTATION)).cloned();
        Self { desired, key: AttemptKey { term, fingerprint, reconcile_at } }
    }
}

// === impl Memory ===

impl Memory {
    /// Returns the remembered result of the attempt, if the last write had the same key and met the same
    /// Deployment `live`. A refused write is also repeated when a user requests a reconcile.
    pub(super) fn recall(
        &self,
        request: &NamespacedName,
        attempt: &Attempt,
        live: Option<&LiveDeployment>,
    ) -> Option<Applied> {
        let writes = self.writes.lock();
        let (key, last) = writes.get(request)?;
        if (key.term, key.fingerprint) != (attempt.key.term, attempt.key.fingerprint) {
            return None;
        }
        match last {
            None => live.map(|live| Applied::Current(Box::new(live.clone()))),
            Some(Applied::Refused(_)) if key.reconcile_at != attempt.key.reconcile_at => None,
            Some(failed) => Some(failed.clone()),
        }
    }

    /// Remembers that the write of this attempt led to the Deployment `now`, so that an equal write is not
    /// sent again.
    pub(super) fn remember_written(&self, request: &NamespacedName, attempt: &Attempt, now: &LiveDeployment) {
        let fingerprint = Fingerprint::of(&attempt.desired, Some(now));
        let key = AttemptKey { fingerprint, ..attempt.key.clone() };
        self.writes.lock().insert(request.clone(), (key, None));
    }

    /// Remembers that the write of this attempt had no effect: the API server refused it as invalid, or the
    /// template differs.
    pub(super) fn remember_failed(&self, request: &NamespacedName, attempt: &Attempt, failed: Applied) {
        self.writes.lock().insert(request.clone(), (attempt.key.clone(), Some(failed)));
    }

    /// Returns the remembered result of a dry run of the attempt, if the last one had the same key. A refusal
    /// that may pass is not recalled after [`DRY_RUN_RETRY`].
    pub(super) fn recall_dry_run(&self, request: &NamespacedName, attempt: &Attempt) -> Option<DryRun> {
        let dry_runs = self.dry_runs.lock();
        let (_, result, at) = dry_runs.get(request).filter(|(key, ..)| *key == attempt.key)?;
        (!result.may_pass() || at.elapsed() < DRY_RUN_RETRY).then(|| result.clone())
    }

    /// Remembers the result of a dry run of the Deployment.
    pub(super) fn remember_dry_run(&self, request: &NamespacedName, attempt: &Attempt, result: DryRun) {
        self.dry_runs.lock().insert(request.clone(), (attempt.key.clone(), result, Instant::now()));
    }

    /// Forgets the last requests for a WaitDeployment that is gone.
    pub(super) fn forget(&self, request: &NamespacedName) {
        self.writes.lock().remove(request);
        self.dry_runs.lock().remove(request);
    }
}

#[cfg(test)]
mod tests;
