//! How a status is written, the same for both of its writers.
//!
//! Each applies fields of its own, so neither can undo what the other wrote, and no write depends on the version of the
//! object that it was computed from. It depends on which object that was: one made anew under the same name has never
//! been looked at. For the status of a custom resource the server compares no uids, only resourceVersions, so a write
//! bears the one that the cache shows when it is sent.
//!
//! # Invariants
//! 1. A status never reaches a successor of the object that it was computed from.
//! 2. Of what both write to one object, one is on its way at a time: a change of a Deployment wakes both, and the
//!    second of two writes at one moment would be refused.

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

/// So many that objects which share one, and wait for each other's request, are few. One that hangs holds up the workers
/// that come to its own few, until `reconcileTimeout` drops it.
const TURNS: usize = 256;

/// Writes one controller's part of the statuses.
#[derive(Debug)]
pub struct StatusWriter {
    objects: Store<WaitDeployment>,
    /// Its answers are the whole object, and not read.
    apply: Applier<IgnoredAny>,
    turns: Turns,
}

/// Who writes to which object now. Clones are for the writers of the same objects.
#[derive(Clone, Debug)]
pub struct Turns(Arc<[Mutex<()>; TURNS]>);

// === impl StatusWriter ===

impl StatusWriter {
    /// Makes a writer in the name of `apply`.
    pub fn new(objects: &Store<WaitDeployment>, apply: &Applier<WaitDeployment>, turns: &Turns) -> Self {
        Self { objects: objects.clone(), apply: apply.view(), turns: turns.clone() }
    }

    /// Returns a writer of the same objects in another name.
    pub(crate) fn of(&self, field_manager: &'static str) -> Self {
        let apply = Applier::new(self.apply.kind().clone(), field_manager);
        Self { objects: self.objects.clone(), apply, turns: self.turns.clone() }
    }

    /// Gives the object of this uid this status. Returns false if there is no such object any more.
    pub(crate) async fn write(
        &self,
        cx: &Context,
        request: &NamespacedName,
        uid: &str,
        status: &(impl Serialize + Sync),
    ) -> Result<bool, ReconcileError> {
        let _turn = self.turns.of(request).lock().await;
        // What the one before has written is in the cache already.
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

// === impl Turns ===

impl Turns {
    fn of(&self, request: &NamespacedName) -> &Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(request);
        // As many as there are places, so the remainder is one of them.
        &self.0[usize::try_from(hash % TURNS as u64).unwrap_or_default()]
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(array::from_fn(|_| Mutex::default())))
    }
}

/// Returns the uid of an object; empty for one that no server has seen.
pub(crate) fn uid_of(object: &WaitDeployment) -> &str {
    object.metadata.uid.as_deref().unwrap_or_default()
}

// === private ===

/// Returns the body that gives this version of an object this status.
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
