use kube::Api;
use kube::api::{Patch, PatchParams};
use mainstay::client::Applier;
use mainstay::key::KindId;
use mainstay::testing::{TestContext, reconcile_once};
use serde_json::{Value, json};

use super::*;
use crate::deployment::desired;
use crate::status::StatusLocks;
use crate::status_mirror::mirror::FIELD_MANAGER;

fn request() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

/// Makes the status mirror of one WaitDeployment with these additional fields in its metadata. One of the two
/// Pods of its Deployment is ready.
fn mirrored(metadata: &Value) -> (StatusMirror, Store<WaitDeployment>, TestContext) {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "generation": 3},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        object["metadata"][key] = value.clone();
    }
    let mut live = desired(&serde_json::from_value(object.clone()).unwrap(), &[]);
    live["status"] = json!({"observedGeneration": 1, "replicas": 2, "readyReplicas": 1});
    let objects = Store::from_values(&KindId::of::<WaitDeployment>(), [object]);
    let deployments = Store::from_values(&KindId::of::<Deployment>(), [live]);
    let applier = Applier::new(KindId::of::<WaitDeployment>(), FIELD_MANAGER);
    let status = StatusWriter::new(&objects, &applier, &StatusLocks::default());
    let cx = Context::for_test().with_store(&objects).with_store(&deployments);
    (StatusMirror::new(&objects, &deployments, status, &Registry::new()), objects, cx)
}

#[tokio::test]
async fn a_status_is_written_once_and_only_as_a_status() {
    let (mirror, objects, cx) = mirrored(&json!({}));
    let run = reconcile_once(&mirror, &request(), &cx).await;
    assert_eq!(run.action(), Action::Done);
    assert_eq!(run.wrote(), ["apply waitdeployments.apps.mainstay.dev/status shop/web"]);
    let shown = objects.get(&request()).unwrap().unwrap().status.clone().unwrap();
    assert_eq!((shown.replicas, shown.ready_replicas), (Some(2), Some(1)));

    let run = reconcile_once(&mirror, &request(), &cx).await;
    assert_eq!((run.action(), run.wrote()), (Action::Done, vec![]), "an equal status is not written again");
}

#[tokio::test(start_paused = true)]
async fn changes_within_the_pause_are_written_together_and_do_not_extend_it() {
    let (mirror, objects, cx) = mirrored(&json!({}));
    let deployments: Api<Deployment> = Api::namespaced(cx.client().clone(), "shop");
    let ready = async |count: i32| {
        let patch = Patch::Merge(json!({"status": {"replicas": 20, "readyReplicas": count}}));
        deployments.patch_status("web", &PatchParams::default(), &patch).await.unwrap();
        let run = reconcile_once(&mirror, &request(), &cx).await;
        let of_mirror = run.wrote().iter().filter(|write| write.contains("waitdeployments")).count();
        (run.action(), of_mirror)
    };
    assert_eq!(ready(1).await, (Action::Done, 1));
    // Changes arrive faster than the pause ends: each one is requeued for the rest of the pause, and no
    // later.
    let step = PAUSE / 4;
    for passed in 1..4 {
        tokio::time::advance(step).await;
        let left = step * (4 - passed);
        assert_eq!(ready(10).await, (Action::RequeueAfter(left), 0));
    }
    tokio::time::advance(step).await;
    assert_eq!(ready(14).await, (Action::Done, 1));
    let shown = objects.get(&request()).unwrap().unwrap();
    assert_eq!(shown.status.as_ref().unwrap().ready_replicas, Some(14), "the latest");
}

#[tokio::test(start_paused = true)]
async fn a_status_is_out_of_date_from_the_first_unwritten_change_on() {
    let mut pace = Pace::default();
    assert_eq!(pace.pause(&request(), 1), None);
    assert_eq!(pace.wrote(&request()), Duration::ZERO);
    let step = PAUSE / 4;
    for passed in 1..4 {
        tokio::time::advance(step).await;
        assert_eq!(pace.pause(&request(), 1), Some(step * (4 - passed)));
    }
    tokio::time::advance(step).await;
    assert_eq!(pace.pause(&request(), 1), None);
    assert_eq!(pace.wrote(&request()), step * 3);

    assert_eq!(pace.pause(&request(), 1), Some(PAUSE));
    assert_eq!(pace.pause(&NamespacedName::namespaced("shop", "gone"), 1), None);
    tokio::time::advance(PAUSE * 100).await;
    assert_eq!(pace.pause(&request(), 2), None);
    assert_eq!(pace.wrote(&request()), Duration::ZERO, "another replica has led meanwhile");
    assert_eq!(pace.stale.len(), 0, "the entry of the deleted object is gone");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_left_alone() {
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.example.com/b"]});
    let (mirror, _, cx) = mirrored(&going);
    let run = reconcile_once(&mirror, &request(), &cx).await;
    assert_eq!((run.action(), run.wrote()), (Action::Done, vec![]));

    let (mirror, _, cx) = mirrored(&json!({}));
    let elsewhere = reconcile_once(&mirror, &NamespacedName::namespaced("shop", "none"), &cx).await;
    assert_eq!((elsewhere.action(), elsewhere.wrote()), (Action::Done, vec![]));
    cx.api().refuse_next(404, "NotFound", "deleted a moment ago");
    assert_eq!(reconcile_once(&mirror, &request(), &cx).await.action(), Action::Done);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried() {
    let (mirror, _, cx) = mirrored(&json!({}));
    cx.api().refuse_next(409, "Conflict", "the object has been modified");
    let error = reconcile_once(&mirror, &request(), &cx).await.outcome.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    // Without a pause: no status was written.
    assert_eq!(reconcile_once(&mirror, &request(), &cx).await.wrote().len(), 1);
}
