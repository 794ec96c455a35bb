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

/// Makes a status writer with this object in its cache.
fn writer(newest: WaitDeployment) -> (StatusWriter, TestContext) {
    let objects = Store::from_objects([newest]);
    let cx = Context::for_test().with_store(&objects);
    let apply = Applier::new(KindId::of::<WaitDeployment>(), "writer");
    (StatusWriter::new(&objects, &apply, &StatusLocks::default()), cx)
}

fn web() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

#[tokio::test]
async fn a_write_carries_the_version_that_the_cache_shows_when_it_is_sent() {
    let (writer, cx) = writer(object("u1", "9"));
    assert!(writer.write(&cx, &web(), "u1", &json!({"replicas": 1})).await.unwrap());
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
async fn a_recreated_object_gets_no_status_of_its_predecessor() {
    let (writer, cx) = writer(object("u2", "9"));
    assert!(!writer.write(&cx, &web(), "u1", &json!({})).await.unwrap());
    assert_eq!(cx.take_writes(), []);
}

#[tokio::test]
async fn two_writers_of_one_object_take_turns() {
    let (writer, cx) = writer(object("u1", "9"));
    let request = web();
    let other = writer.locks.of(&request).lock().await;
    let status = json!({});
    let mut write = pin!(writer.write(&cx, &request, "u1", &status));
    assert!(write.as_mut().now_or_never().is_none(), "the other write is in flight");
    drop(other);
    assert!(write.await.unwrap());
}
