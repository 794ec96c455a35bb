//! Objects that a controller holds with a finalizer, on a real server and with no more rights than
//! documented.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use mainstay::cache::Scope;
use mainstay::client::finalizer::Edited;
use mainstay::client::{Authority, Finalizer};
use mainstay::controller::Controller;
use mainstay::key::KindId;
use mainstay::reconcile::{Action, Context, ObjectReconciler, Outcome, ReconcileError, with_finalizer};
use mainstay_tests::{LocalManager, TestCluster, wait};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

const OWN: &str = "objects.example.com/held";
const OTHER: &str = "other.example.com/held";
const NAME: &str = "web";

/// Sends each call to the test, with the finalizers on the server at that moment. Cleanups return the results
/// of `script`, then `Done`.
struct Witness {
    calls: mpsc::UnboundedSender<(&'static str, Vec<String>)>,
    script: Mutex<VecDeque<Outcome>>,
    /// The client of another writer, which removes its own finalizer in the middle of each cleanup.
    meddler: Option<Client>,
}

type Calls = mpsc::UnboundedReceiver<(&'static str, Vec<String>)>;

struct Admin(Client);

impl Authority for Admin {
    fn client(&self) -> &Client {
        &self.0
    }

    fn term(&self) -> u64 {
        0
    }
}

// === impl Witness ===

impl Witness {
    async fn report(&self, call: &'static str, map: &ConfigMap, cx: &Context) -> Result<(), ReconcileError> {
        let namespace = map.namespace().unwrap_or_default();
        let live = Api::<ConfigMap>::namespaced(cx.client().clone(), &namespace).get(&map.name_any()).await?;
        self.calls.send((call, live.finalizers().to_vec())).expect("a receiver");
        Ok(())
    }
}

impl ObjectReconciler<ConfigMap> for Witness {
    async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context) -> Outcome {
        self.report("reconcile", &map, cx).await?;
        Ok(Action::Done)
    }

    async fn cleanup(&self, map: Arc<ConfigMap>, cx: &Context) -> Outcome {
        self.report("cleanup", &map, cx).await?;
        if let Some(meddler) = &self.meddler {
            let maps = Api::namespaced(meddler.clone(), &map.namespace().unwrap_or_default());
            set_finalizers(&maps, &[OWN]).await;
        }
        self.script.lock().pop_front().unwrap_or(Ok(Action::Done))
    }
}

/// Starts a manager with one controller that has only the rights that a finalizer needs.
async fn start(
    cluster: &TestCluster,
    script: impl IntoIterator<Item = Outcome>,
    meddler: Option<Client>,
) -> (LocalManager, Calls) {
    let (calls, told) = mpsc::unbounded_channel();
    let witness = Witness { calls, script: Mutex::new(script.into_iter().collect()), meddler };
    // The rights documented in `mainstay::client::finalizer`, and those to watch.
    let verbs = ["get", "list", "watch", "patch"];
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    let identity = cluster.install_base_with(&rules).await;
    let manager = LocalManager::start_with(cluster, &identity, &json!({}), |manager| {
        // The label selects the objects of this test, and never changes.
        let maps = manager.store::<ConfigMap>(Scope::all().labels("of=objects".parse().expect("a selector")));
        let reconciler = with_finalizer(&maps, OWN, witness);
        let controller = Controller::new("objects").reconciles(&maps);
        drop(manager.register(controller.reconciler(reconciler)).expect("registered"));
    })
    .await;
    (manager, told)
}

async fn create(maps: &Api<ConfigMap>, finalizers: &[&str]) -> ConfigMap {
    let map = json!({"metadata": {"name": NAME, "labels": {"of": "objects"}, "finalizers": finalizers}});
    let map = serde_json::from_value(map).expect("a ConfigMap");
    maps.create(&PostParams::default(), &map).await.expect("created")
}

async fn delete(maps: &Api<ConfigMap>) {
    drop(maps.delete(NAME, &DeleteParams::default()).await.expect("deleted"));
}

async fn set_finalizers(maps: &Api<ConfigMap>, finalizers: &[&str]) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    maps.patch(NAME, &PatchParams::default(), &patch).await.expect("patched");
}

/// Waits for the next cleanup and returns the finalizers on the server at that moment.
async fn cleanup(calls: &mut Calls) -> Vec<String> {
    loop {
        let call = timeout(wait::PATIENCE, calls.recv()).await.expect("a call in time");
        if let ("cleanup", finalizers) = call.expect("a running controller") {
            return finalizers;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_is_set_before_the_first_reconcile_and_kept_until_the_cleanup_is_done() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let fail = || Err(ReconcileError::from("not yet"));
    let (manager, mut calls) = start(&cluster, [fail(), fail()], None).await;
    let maps = cluster.api::<ConfigMap>();

    create(&maps, &[OTHER]).await;
    let first = timeout(wait::PATIENCE, calls.recv()).await.expect("a call in time").expect("one");
    assert_eq!(
        first,
        ("reconcile", vec![OTHER.to_owned(), OWN.to_owned()]),
        "the finalizer is set before the first reconcile"
    );
    delete(&maps).await;
    for attempt in 1..=3 {
        assert_eq!(cleanup(&mut calls).await, [OTHER, OWN], "the finalizer is set at attempt {attempt}");
    }
    let left = wait::until(&maps, NAME, "the own finalizer to go", |map| map.finalizers() == [OTHER]).await;
    assert!(left.metadata.deletion_timestamp.is_some(), "the object waits for the other finalizer");
    set_finalizers(&maps, &[]).await;
    wait::until_gone(&maps, NAME).await;

    manager.stop().await.expect("stopped in order");
    while let Ok((call, finalizers)) = calls.try_recv() {
        assert_ne!(call, "cleanup", "a superfluous cleanup, at {finalizers:?}");
    }
    let writes = cluster.writes();
    let ours: Vec<_> = writes.iter().filter(|write| write.resource == "configmaps").collect();
    let verbs: Vec<_> = ours.iter().map(|write| (&*write.verb, write.code)).collect();
    assert_eq!(verbs, [("patch", 200), ("patch", 200)], "one write to add the finalizer, one to remove it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeued_cleanup_keeps_the_object() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let later = || Ok(Action::RequeueAfter(Duration::from_millis(50)));
    let (manager, mut calls) = start(&cluster, [later(), later()], None).await;
    let maps = cluster.api::<ConfigMap>();
    create(&maps, &[]).await;
    wait::until(&maps, NAME, "to have the finalizer", |map| map.finalizers() == [OWN]).await;
    delete(&maps).await;
    for _ in 0..3 {
        assert_eq!(cleanup(&mut calls).await, [OWN]);
    }
    wait::until_gone(&maps, NAME).await;
    manager.stop().await.expect("stopped in order");
    assert!(calls.try_recv().is_err(), "a deleted object is not cleaned up again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_finalizer_removed_during_the_cleanup_causes_no_second_cleanup() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (manager, mut calls) = start(&cluster, [], Some(cluster.client())).await;
    let maps = cluster.api::<ConfigMap>();
    create(&maps, &[OTHER]).await;
    wait::until(&maps, NAME, "to have the finalizers", |map| map.finalizers() == [OTHER, OWN]).await;
    delete(&maps).await;
    assert_eq!(cleanup(&mut calls).await, [OTHER, OWN]);
    wait::until_gone(&maps, NAME).await;
    manager.stop().await.expect("stopped in order");
    assert!(calls.try_recv().is_err(), "the conflict was resolved without another cleanup");
}

#[tokio::test]
async fn finalizer_edits_from_a_stale_object_apply_to_the_live_one() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let maps = cluster.api::<ConfigMap>();
    let outcome = AssertUnwindSafe(late_writes(Admin(cluster.client()), &maps)).catch_unwind().await;
    // No controller removes the finalizers, also after a failure. The object may be gone by now.
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    drop(maps.patch(NAME, &PatchParams::default(), &patch).await);
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

async fn late_writes(admin: Admin, maps: &Api<ConfigMap>) {
    let kind = KindId::of::<ConfigMap>();
    let finalizer = Finalizer::new(OWN).expect("qualified");
    let add =
        async |stale: &ConfigMap| finalizer.add(&admin, &kind, &stale.metadata).await.expect("answered");
    let remove =
        async |stale: &ConfigMap| finalizer.remove(&admin, &kind, &stale.metadata).await.expect("answered");
    let live = async || maps.get(NAME).await.expect("there").finalizers().to_vec();

    let stale = create(maps, &[]).await;
    set_finalizers(maps, &[OTHER]).await;
    assert_eq!(add(&stale).await, Edited::Changed);
    assert_eq!(live().await, [OTHER, OWN], "a finalizer added meanwhile stays");
    assert_eq!(add(&stale).await, Edited::Already);

    let held = maps.get(NAME).await.expect("there");
    set_finalizers(maps, &[OWN]).await;
    assert!(remove(&held).await);
    assert_eq!(live().await, [""; 0], "a finalizer removed meanwhile is not restored");
    assert!(!remove(&held).await);

    set_finalizers(maps, &[OTHER]).await;
    delete(maps).await;
    assert_eq!(add(&stale).await, Edited::TooLate, "the object is being deleted");
    set_finalizers(maps, &[]).await;
    wait::until_gone(maps, NAME).await;
    assert_eq!(add(&stale).await, Edited::TooLate, "the object is gone");
    create(maps, &[OWN]).await;
    assert_eq!(add(&stale).await, Edited::TooLate, "another object has its name");
    assert!(!remove(&held).await);
    assert_eq!(live().await, [OWN], "the other object is not changed");
}
