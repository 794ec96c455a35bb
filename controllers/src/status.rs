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
use mainstay::key::Request;
use mainstay::reconcile::{Context, ReconcileError};
use mainstay_api::WaitDeployment;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// So many that objects which share one, and wait for each other's request, are few. One that hangs holds up the workers
/// that come to its own few, until `reconcileTimeout` drops it.
const TURNS: usize = 256;

/// Writes one controller's part of the statuses.
#[derive(Debug)]
pub struct StatusWriter {
    objects: Store<WaitDeployment>,
    apply: Applier<WaitDeployment>,
    turns: Turns,
}

/// Who writes to which object now. Clones are for the writers of the same objects.
#[derive(Clone, Debug)]
pub struct Turns(Arc<[Mutex<()>; TURNS]>);

// === impl StatusWriter ===

impl StatusWriter {
    /// Makes a writer in the name of `apply`.
    pub fn new(objects: &Store<WaitDeployment>, apply: Applier<WaitDeployment>, turns: &Turns) -> Self {
        Self { objects: objects.clone(), apply, turns: turns.clone() }
    }

    /// Gives `object` this status. Returns false if there is no such object any more.
    pub(crate) async fn write(
        &self,
        cx: &Context,
        request: &Request,
        object: &WaitDeployment,
        status: &impl Serialize,
    ) -> Result<bool, ReconcileError> {
        let _turn = self.turns.of(request).lock().await;
        // What the one before has written is in the cache already.
        let newest = self.objects.entry(request)?;
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let Some(newest) = newest.filter(|newest| newest.meta().uid == *uid) else { return Ok(false) };
        let body = status_of(object, &newest.meta().resource_version.to_string(), status);
        match self.apply.apply_status(cx, &body).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

// === impl Turns ===

impl Turns {
    fn of(&self, request: &Request) -> &Mutex<()> {
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

// === private ===

/// Returns the body that gives this version of `object` this status.
fn status_of(object: &WaitDeployment, version: &str, status: &impl Serialize) -> Value {
    json!({
        "apiVersion": WaitDeployment::api_version(&()),
        "kind": WaitDeployment::kind(&()),
        "metadata": {
            "name": object.metadata.name,
            "namespace": object.metadata.namespace,
            "uid": object.metadata.uid,
            "resourceVersion": version,
        },
        "status": status,
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use mainstay::key::KindId;
    use mainstay::testing::TestContext;

    use super::*;

    const STATUS: [&str; 1] = ["apply waitdeployments.apps.mainstay.dev/status shop/web"];

    fn object(uid: &str, version: &str) -> WaitDeployment {
        let metadata = json!({"name": "web", "namespace": "shop", "uid": uid, "resourceVersion": version});
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": {}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// A writer whose cache shows this object.
    fn writer(newest: WaitDeployment) -> (StatusWriter, TestContext) {
        let objects = Store::from_objects([newest]);
        let cx = Context::for_test().with_store(&objects);
        let apply = Applier::new(KindId::of::<WaitDeployment>(), "writer");
        (StatusWriter::new(&objects, apply, &Turns::default()), cx)
    }

    fn web() -> Request {
        Request::namespaced("shop", "web")
    }

    #[tokio::test]
    async fn a_status_is_for_the_version_that_is_known_when_it_is_sent() {
        let (writer, cx) = writer(object("u1", "9"));
        assert!(writer.write(&cx, &web(), &object("u1", "7"), &json!({"replicas": 1})).await.unwrap());
        let sent = cx.take_writes();
        assert_eq!(sent.iter().map(ToString::to_string).collect::<Vec<_>>(), STATUS);
        assert_eq!(
            sent[0].body,
            json!({
                "apiVersion": "apps.mainstay.dev/v1alpha1",
                "kind": "WaitDeployment",
                "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "9"},
                "status": {"replicas": 1},
            })
        );
    }

    #[tokio::test]
    async fn nothing_is_written_to_a_successor() {
        let (writer, cx) = writer(object("u2", "9"));
        assert!(!writer.write(&cx, &web(), &object("u1", "7"), &json!({})).await.unwrap());
        assert_eq!(cx.take_writes(), []);
    }

    #[tokio::test]
    async fn two_writers_take_turns() {
        let (writer, cx) = writer(object("u1", "9"));
        let (request, ours) = (web(), object("u1", "7"));
        let other = writer.turns.of(&request).lock().await;
        let status = json!({});
        let mut write = pin!(writer.write(&cx, &request, &ours, &status));
        assert!(write.as_mut().now_or_never().is_none(), "another one is on its way");
        drop(other);
        assert!(write.await.unwrap());
    }
}
