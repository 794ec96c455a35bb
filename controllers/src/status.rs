//! Writes of a WaitDeployment's status, shared by its two writers.
//!
//! Each writer applies its own fields, so neither can undo a write of the other, and a write does not depend
//! on the version of the object that it was computed from. It depends on the uid: an object that was created
//! again under the same name has another status. For the status of a custom resource the API server compares
//! only resourceVersions and no uids, so a write carries the resourceVersion that the cache shows when it is
//! sent.
//!
//! # Invariants
//! 1. A status is never written to an object that was created again under the same name.
//! 2. Of the two writers' requests for one object only one is in flight at a time: a change of a Deployment
//!    starts a run of both, and the second of two simultaneous writes would conflict.

use std::array;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use kube::Resource as _;
use mainstay::cache::Store;
use mainstay::client::Applier;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Context, ReconcileError};
use mainstay_api::WaitDeployment;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// Number of locks for the writes of statuses. Objects with names that hash to the same lock wait for each
/// other's requests: with this many locks those are few. A request that hangs blocks the workers of these
/// objects until `reconcileTimeout`.
const LOCKS: usize = 256;

/// Writes one controller's part of the status of WaitDeployments.
#[derive(Debug)]
pub struct StatusWriter {
    objects: Store<WaitDeployment>,
    /// Applies a status with the field manager of the controller; ignores the response, which is the whole
    /// object.
    apply: Applier<IgnoredAny>,
    locks: StatusLocks,
}

/// Locks by which one writer at a time writes the status of a WaitDeployment. All writers of the same objects
/// share clones of one value.
#[derive(Clone, Debug)]
pub struct StatusLocks(Arc<[Mutex<()>; LOCKS]>);

// === impl StatusWriter ===

impl StatusWriter {
    /// Makes a status writer with the field manager of `apply`.
    pub fn new(
        objects: &Store<WaitDeployment>,
        apply: &Applier<WaitDeployment>,
        locks: &StatusLocks,
    ) -> Self {
        Self { objects: objects.clone(), apply: apply.view(), locks: locks.clone() }
    }

    /// Returns a status writer of the same objects with another field manager.
    pub(crate) fn with_field_manager(&self, field_manager: &'static str) -> Self {
        let apply = Applier::new(self.apply.kind().clone(), field_manager);
        Self { objects: self.objects.clone(), apply, locks: self.locks.clone() }
    }

    /// Applies this writer's part of the status of the WaitDeployment with this uid. Returns false if there
    /// is no such object any more.
    pub(crate) async fn write(
        &self,
        cx: &Context,
        request: &NamespacedName,
        uid: &str,
        status: &(impl Serialize + Sync),
    ) -> Result<bool, ReconcileError> {
        let _lock = self.locks.of(request).lock().await;
        // The cache already shows the write of the previous holder.
        let newest = self.objects.entry(request)?;
        let Some(newest) = newest.filter(|newest| newest.meta().uid == *uid) else { return Ok(false) };
        let body = status_of(request, uid, &newest.meta().resource_version.to_string(), status);
        match self.apply.apply_status(cx, &body).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

// === impl StatusLocks ===

impl StatusLocks {
    fn of(&self, request: &NamespacedName) -> &Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(request);
        // The remainder is less than the number of locks.
        &self.0[usize::try_from(hash % LOCKS as u64).unwrap_or_default()]
    }
}

impl Default for StatusLocks {
    fn default() -> Self {
        Self(Arc::new(array::from_fn(|_| Mutex::default())))
    }
}

/// Returns the uid of a WaitDeployment; empty if no API server has created it.
pub(crate) fn uid_of(object: &WaitDeployment) -> &str {
    object.metadata.uid.as_deref().unwrap_or_default()
}

// === private ===

/// Returns the request body of a server-side apply of `status` to one version of a WaitDeployment.
fn status_of(request: &NamespacedName, uid: &str, version: &str, status: &impl Serialize) -> Value {
    json!({
        "apiVersion": WaitDeployment::api_version(&()),
        "kind": WaitDeployment::kind(&()),
        "metadata": {
            "name": request.name(),
            "namespace": request.namespace(),
            "uid": uid,
            "resourceVersion": version,
        },
        "status": status,
    })
}

#[cfg(test)]
mod tests;
