//! The verbs that reconcilers write with, against an API server that means it.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use mainstay::client::{Applier, Authority, Effect, Live, live};
use mainstay::key::{KindId, Request};
use mainstay_tests::TestCluster;
use serde_json::{Value, json};

/// The one writer of a test.
struct Writer(kube::Client);

impl Authority for Writer {
    fn client(&self) -> &kube::Client {
        &self.0
    }
}

fn kind() -> KindId {
    KindId::of::<ConfigMap>()
}

async fn now(cluster: &TestCluster, writer: &Writer) -> Option<Live> {
    let name = Request::namespaced(cluster.namespace(), "settings");
    live(writer, &kind(), &name).await.expect("asked")
}

async fn edit(maps: &Api<ConfigMap>, change: &Value) {
    maps.patch("settings", &PatchParams::default(), &Patch::Merge(change)).await.expect("edited");
}

fn data(map: &ConfigMap) -> Value {
    json!(map.data.clone().unwrap_or_default())
}

#[tokio::test]
async fn an_ensured_object_is_written_only_when_something_is_to_change() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let writer = Writer(cluster.client());
    let maps = cluster.api::<ConfigMap>();
    let applier = Applier::<ConfigMap>::new(kind(), "mainstay-test");
    let wanted = |data: Value| json!({"metadata": {"name": "settings", "namespace": cluster.namespace()}, "data": data});
    let both = wanted(json!({"a": "1", "b": "2"}));

    let effect = applier.dry_run(&writer, None::<&Live>, &both).await.expect("a dry run");
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    assert!(now(&cluster, &writer).await.is_none(), "a dry run stores nothing");
    let effect = applier.ensure(&writer, None::<&Live>, &both).await.expect("ensured");
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    let current = now(&cluster, &writer).await;
    for applier in [&applier, &Applier::new(kind(), "mainstay-test")] {
        let effect = applier.ensure(&writer, current.as_ref(), &both).await.expect("ensured");
        assert_eq!(effect, Effect::Unchanged, "neither by memory nor by the server's own answer");
    }
    let effect = applier.dry_run(&writer, current.as_ref(), &both).await.expect("a dry run");
    assert_eq!(effect, Effect::Unchanged);

    // Somebody else's field is left alone, a field of ours is not.
    edit(&maps, &json!({"data": {"theirs": "3"}})).await;
    let current = now(&cluster, &writer).await;
    let effect = applier.ensure(&writer, current.as_ref(), &both).await.expect("ensured");
    assert_eq!(effect, Effect::Unchanged);
    edit(&maps, &json!({"data": {"a": "changed"}})).await;
    let current = now(&cluster, &writer).await;
    let effect = applier.dry_run(&writer, current.as_ref(), &both).await.expect("a dry run");
    assert!(matches!(effect, Effect::Changed(_)), "{effect:?}");
    let effect = applier.ensure(&writer, current.as_ref(), &both).await.expect("ensured");
    let map = effect.object().expect("changed");
    assert_eq!(data(map), json!({"a": "1", "b": "2", "theirs": "3"}));

    // What is no longer wanted goes.
    let current = now(&cluster, &writer).await;
    let effect =
        applier.ensure(&writer, current.as_ref(), &wanted(json!({"a": "1"}))).await.expect("ensured");
    assert_eq!(data(effect.object().expect("changed")), json!({"a": "1", "theirs": "3"}));
}
