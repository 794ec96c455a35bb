//! The write helpers for reconcilers, against a real API server.

use std::error::Error;

use k8s_openapi::api::core::v1::{ConfigMap, PodTemplate};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use mainstay::client::{Applier, Authority, Effect, Live, Patcher, live, set_controller_reference};
use mainstay::key::{KindId, NamespacedName};
use mainstay_api::WaitDeployment;
use mainstay_tests::TestCluster;
use mainstay_tests::cluster::client_of;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The authority of a test's writer, without a fence.
struct Writer(kube::Client);

impl Authority for Writer {
    fn client(&self) -> &kube::Client {
        &self.0
    }

    fn term(&self) -> u64 {
        0
    }
}

fn kind() -> KindId {
    KindId::of::<ConfigMap>()
}

async fn now(cluster: &TestCluster, writer: &Writer) -> Option<Live> {
    let name = NamespacedName::namespaced(cluster.namespace(), "settings");
    live(writer, &kind(), &name).await.expect("read")
}

async fn edit(maps: &Api<ConfigMap>, change: &Value) {
    maps.patch("settings", &PatchParams::default(), &Patch::Merge(change)).await.expect("edited");
}

fn data(map: &ConfigMap) -> Value {
    json!(map.data.clone().unwrap_or_default())
}

#[tokio::test]
async fn an_ensured_object_is_written_only_when_it_would_change() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let writer = Writer(cluster.client());
    let maps = cluster.api::<ConfigMap>();
    let applier = Applier::<ConfigMap>::new(kind(), "mainstay-test");
    let metadata = json!({"name": "settings", "namespace": cluster.namespace()});
    let wanted = |data: Value| json!({"metadata": metadata, "data": data});
    let both = wanted(json!({"a": "1", "b": "2"}));

    let effect = applier.dry_run(&writer, None::<&Live>, &both).await.expect("a dry run");
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    assert!(now(&cluster, &writer).await.is_none(), "a dry run stores nothing");
    let effect = applier.ensure(&writer, None::<&Live>, &both).await.expect("ensured");
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    let current = now(&cluster, &writer).await;
    for applier in [&applier, &Applier::new(kind(), "mainstay-test")] {
        let effect = applier.ensure(&writer, current.as_ref(), &both).await.expect("ensured");
        assert_eq!(effect, Effect::Unchanged, "unchanged, with and without memory of the last write");
    }
    let effect = applier.dry_run(&writer, current.as_ref(), &both).await.expect("a dry run");
    assert_eq!(effect, Effect::Unchanged);

    // A field of another writer is left alone, an own field is restored.
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

    // A field that is no longer applied is removed.
    let current = now(&cluster, &writer).await;
    let effect =
        applier.ensure(&writer, current.as_ref(), &wanted(json!({"a": "1"}))).await.expect("ensured");
    assert_eq!(data(effect.object().expect("changed")), json!({"a": "1", "theirs": "3"}));
}

type Edited = Result<(), Box<dyn Error + Send + Sync>>;

fn patcher() -> Patcher<ConfigMap> {
    Patcher::new(kind(), "mainstay-test")
}

/// Returns the edit that sets one key.
fn set(key: &'static str, value: &'static str) -> impl Fn(&mut ConfigMap) -> Edited {
    move |map| {
        map.data.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn a_patched_object_is_written_only_when_the_edit_changes_it() {
    let Some(cluster) = TestCluster::shared().await else { return };
    // The verbs in the documentation of `Patcher`, and no others.
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]}]);
    let identity = cluster.install_base_with(&rules).await;
    let writer = Writer(client_of(&identity.kubeconfig).await);
    let (maps, patcher) = (cluster.api::<ConfigMap>(), patcher());
    let name = NamespacedName::namespaced(cluster.namespace(), "settings");

    let effect = patcher.dry_run(&writer, &name, None::<&Live>, set("a", "1")).await.expect("a dry run");
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    assert!(now(&cluster, &writer).await.is_none(), "a dry run stores nothing");
    let effect = patcher.ensure_live(&writer, &name, set("a", "1")).await.expect("created");
    assert!(matches!(effect, Effect::Created(_)), "{effect:?}");
    edit(&maps, &json!({"data": {"theirs": "3"}})).await;

    // None of these three sends a write.
    let effect = patcher.ensure_live(&writer, &name, set("a", "1")).await.expect("read");
    assert_eq!(effect, Effect::Unchanged);
    patcher.ensure_live(&writer, &name, |_| Err("no idea".into())).await.expect_err("the edit failed");
    let rename = |map: &mut ConfigMap| {
        map.metadata.name = Some("other".to_owned());
        Ok(())
    };
    patcher.ensure_live(&writer, &name, rename).await.expect_err("a refused rename");

    let before = now(&cluster, &writer).await;
    let effect = patcher.dry_run(&writer, &name, before.as_ref(), set("a", "2")).await.expect("a dry run");
    assert_eq!(data(effect.object().expect("changed")), json!({"a": "2", "theirs": "3"}));
    let after: ConfigMap = now(&cluster, &writer).await.expect("there").decode().expect("a ConfigMap");
    assert_eq!(data(&after), json!({"a": "1", "theirs": "3"}), "a dry run changes no data");
    let unmoved = before.expect("there").decode::<ConfigMap>().expect("a ConfigMap");
    assert_eq!(after, unmoved, "a dry run changes neither version nor managedFields");
    let effect = patcher.ensure_live(&writer, &name, set("a", "2")).await.expect("patched");
    assert_eq!(data(effect.object().expect("changed")), json!({"a": "2", "theirs": "3"}));

    let sent = cluster
        .until_written("the last patch", |writes| {
            let sent = writes.iter().filter(|write| write.resource == "configmaps");
            let sent: Vec<_> = sent.map(|write| format!("{} {}", write.verb, write.code)).collect();
            (sent.len() >= 4).then_some(sent)
        })
        .await;
    assert_eq!(sent, ["create 201", "create 201", "patch 200", "patch 200"], "two dry runs, two writes");
}

#[tokio::test]
async fn of_two_writes_based_on_one_version_one_conflicts() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (writer, patcher) = (Writer(cluster.client()), patcher());
    let name = NamespacedName::namespaced(cluster.namespace(), "settings");
    let nothing = now(&cluster, &writer).await;
    patcher.ensure(&writer, &name, nothing.as_ref(), set("a", "1")).await.expect("created").object();
    let late = patcher.ensure(&writer, &name, nothing.as_ref(), set("b", "1")).await;
    let late = late.expect_err("a conflict with an object missing in the cache");
    assert!(late.is_conflict() && late.is_already_exists(), "{late}");

    let both = now(&cluster, &writer).await;
    patcher.ensure(&writer, &name, both.as_ref(), set("a", "2")).await.expect("the first").object();
    let error = patcher.ensure(&writer, &name, both.as_ref(), set("b", "2")).await.expect_err("the second");
    assert!(error.is_conflict() && !error.is_already_exists(), "{error}");
    let effect =
        patcher.ensure_live(&writer, &name, set("b", "2")).await.expect("a retry with the live object");
    assert_eq!(data(effect.object().expect("changed")), json!({"a": "2", "b": "2"}), "both writes are kept");

    // A deleted object is not found, and another object of that name is a conflict.
    let old = now(&cluster, &writer).await;
    let maps = cluster.api::<ConfigMap>();
    drop(maps.delete("settings", &DeleteParams::default()).await.expect("deleted"));
    let error =
        patcher.ensure(&writer, &name, old.as_ref(), set("b", "3")).await.expect_err("a missing object");
    assert!(error.is_not_found(), "{error}");
    patcher.ensure_live(&writer, &name, set("a", "3")).await.expect("created").object();
    let error =
        patcher.ensure(&writer, &name, old.as_ref(), set("b", "3")).await.expect_err("another object");
    assert!(error.is_conflict(), "{error}");
}

/// A Pod template in the eyes of a writer that only changes images.
#[derive(Debug, Serialize, Deserialize)]
struct Images {
    metadata: ObjectMeta,
    template: Template,
}

#[derive(Debug, Serialize, Deserialize)]
struct Template {
    spec: Containers,
}

#[derive(Debug, Serialize, Deserialize)]
struct Containers {
    containers: Vec<Container>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Container {
    name: String,
    image: String,
}

#[tokio::test]
async fn fields_unknown_to_the_writers_type_survive_also_in_lists() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let writer = Writer(cluster.client());
    let templates = cluster.api::<PodTemplate>();
    let containers = json!([
        {"name": "web", "image": "web:1", "ports": [{"containerPort": 80}], "workingDir": "/srv"},
        {"name": "log", "image": "log:1", "args": ["--all"]},
    ]);
    let template = json!({
        "metadata": {"name": "web"},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"hostname": "web", "containers": containers}},
    });
    let template: PodTemplate = serde_json::from_value(template).expect("a PodTemplate");
    let before = templates.create(&PostParams::default(), &template).await.expect("created");

    let name = NamespacedName::namespaced(cluster.namespace(), "web");
    let patcher = Patcher::<Images>::new(KindId::of::<PodTemplate>(), "mainstay-test");
    let owner = serde_json::from_value(json!({"metadata": {"name": "owner"}})).expect("a ConfigMap");
    let owner = cluster.api::<ConfigMap>().create(&PostParams::default(), &owner).await.expect("created");
    let effect = patcher
        .ensure_live(&writer, &name, |images| {
            images.template.spec.containers.reverse();
            images.template.spec.containers[1].image = "web:2".to_owned();
            set_controller_reference(&mut images.metadata, owner.meta(), &kind())?;
            Ok(())
        })
        .await
        .expect("patched");
    assert_eq!(effect.object().expect("changed").template.spec.containers[1].image, "web:2");

    let after = templates.get("web").await.expect("there");
    let mut expected = json!(before.template);
    expected["spec"]["containers"].as_array_mut().expect("a list").reverse();
    expected["spec"]["containers"][1]["image"] = json!("web:2");
    assert_eq!(json!(after.template), expected);
    let owners = after.metadata.owner_references.unwrap_or_default();
    assert_eq!(owners.first().map(|given| &given.uid), owner.metadata.uid.as_ref());
}

#[tokio::test]
async fn a_status_patch_changes_only_the_status_and_an_object_patch_never_does() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let writer = Writer(cluster.client());
    let kind = KindId::of::<WaitDeployment>();
    let patcher = Patcher::<Value>::new(kind.clone(), "mainstay-test");
    let name = NamespacedName::namespaced(cluster.namespace(), "web");
    let begin = |object: &mut Value| {
        let pod = json!({"containers": [{"name": "web", "image": "web:1"}]});
        object["spec"] = json!({
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
        });
        Ok(())
    };
    patcher.ensure_live(&writer, &name, begin).await.expect("created").object();
    let now = async || live(&writer, &kind, &name).await.expect("read").expect("there");
    let set = |object: &mut Value| {
        object["status"]["replicas"] = json!(2);
        Ok(())
    };
    let effect = patcher.dry_run_status(&writer, &name, &now().await, set).await.expect("a dry run");
    assert!(effect.is_change());
    let effect = patcher.ensure_status(&writer, &name, &now().await, set).await.expect("written");
    let replicas = |object: &Value| object["status"]["replicas"].clone();
    assert_eq!(effect.object().map(|object| replicas(object)), Some(json!(2)));
    let effect = patcher.ensure_status(&writer, &name, &now().await, set).await.expect("read");
    assert_eq!(effect, Effect::Unchanged);

    let scale = |object: &mut Value| {
        object["spec"]["replicas"] = json!(3);
        Ok(())
    };
    patcher
        .ensure_status(&writer, &name, &now().await, scale)
        .await
        .expect_err("a change outside the status");
    let effect = patcher.ensure(&writer, &name, Some(&now().await), scale).await.expect("written");
    let scaled = effect.object().expect("changed");
    assert_eq!((&scaled["spec"]["replicas"], replicas(scaled)), (&json!(3), json!(2)));
}
