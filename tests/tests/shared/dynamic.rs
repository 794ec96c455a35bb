//! A kind without a Rust type is cached, reconciled and written like any other.

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{self, Scope as Found};
use mainstay::cache::{Scope, Select};
use mainstay::client::Applier;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, KindId, NamespacedName};
use mainstay::reconcile::{Action, ReconcileError};
use mainstay_tests::witness::witness;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};

const GROUP: &str = "dynamic.example.com";

fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    })
}

/// Defines a kind on the server and returns its id from discovery.
async fn widgets(cluster: &TestCluster) -> KindId {
    cluster.define(&definition()).await;
    let kind = GroupVersionKind::gvk(GROUP, "v1", "Widget");
    let find = async || discovery::pinned_kind(&cluster.client(), &kind).await;
    // The server lists a kind in discovery only some moments after it has begun to serve it.
    wait::until_so("discovery to list the kind", async || find().await.is_ok()).await;
    let (resource, found) = find().await.expect("discovered above");
    KindId::of_resource(&resource, found.scope == Found::Namespaced)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_known_only_at_run_time_is_reconciled_and_written_like_any_other() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let kind = widgets(&cluster).await;
    let verbs = ["list", "watch", "patch"];
    let rules = json!([{"apiGroups": [GROUP], "resources": ["widgets"], "verbs": verbs}]);
    let identity = cluster.install_base_with(&rules).await;
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), cluster.namespace(), &kind.resource());
    let widget = |name: &str, colour: &str| {
        let widget = DynamicObject::new(name, &kind.resource());
        widget.data(json!({"spec": {"colour": colour}}))
    };
    api.create(&PostParams::default(), &widget("a", "red")).await.expect("created");

    let (reads, mut runs) = (kind.clone(), None);
    let mut stores = None;
    let manager = LocalManager::start_with(&cluster, &identity, &json!({}), |manager| {
        let widgets = manager.store(Scope::all().of(reads.clone()));
        let meta = manager.metadata(Scope::all().of(reads.clone()));
        stores = Some((widgets.clone(), meta));
        let (applier, read) = (Applier::<DynamicObject>::new(reads, "painter"), widgets.clone());
        let (painter, witnessed) = witness(move |request: NamespacedName, cx| {
            let (applier, read) = (applier.clone(), read.clone());
            async move {
                let Some(object) = read.get(&request)? else { return Ok(Action::Done) };
                let colour = object.data["spec"]["colour"].as_str();
                let colour = colour.ok_or_else(|| ReconcileError::from("no colour"))?;
                let labels = json!({"colour": colour});
                let painted = json!({"metadata": {"name": request.name(), "namespace": request.namespace(),
                    "labels": labels}});
                applier.ensure(&cx, read.entry(&request)?.as_ref(), &painted).await?;
                let entry = read.entry(&request)?.expect("an entry");
                assert_eq!(entry.meta().labels.get("colour"), Some(colour), "an own write is read at once");
                Ok(Action::Done)
            }
        });
        runs = Some(witnessed);
        let controller = Controller::new("painter").reconciles(&widgets).reconciler(painter);
        drop(manager.register(controller).expect("registered"));
    })
    .await;
    let (mut runs, (widgets, meta)) = (runs.expect("registered"), stores.expect("declared"));
    assert_eq!(runs.next().await.name, "a");
    let is = |colour: &'static str| {
        move |widget: &DynamicObject| {
            widget.metadata.labels.as_ref().is_some_and(|labels| labels["colour"] == colour)
        }
    };
    wait::until(&api, "a", "painted", is("red")).await;
    api.create(&PostParams::default(), &widget("b", "blue")).await.expect("created");
    wait::until(&api, "b", "painted", is("blue")).await;
    let blue = Patch::Merge(json!({"spec": {"colour": "green"}}));
    api.patch("a", &PatchParams::default(), &blue).await.expect("patched");
    wait::until(&api, "a", "painted", is("green")).await;

    assert!(std::sync::Arc::ptr_eq(widgets.untyped(), meta.untyped()), "one watch for both");
    let green = Select::all().label("colour", "green");
    let names = || -> Vec<String> {
        let entries = meta.list(&green).expect("synced");
        entries.iter().map(|entry| entry.meta().name().to_owned()).collect()
    };
    // The API server shows the write before the manager has received the response.
    wait::until_so("the cache to hold the painted object", async || names() == ["a"]).await;
    manager.stop().await.expect("stopped in order");
    cluster.undefine(&definition()).await;
}
