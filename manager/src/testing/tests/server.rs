//! The server in memory beside a real one: the same answers, and those that are simpler.

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, WatchEvent, WatchParams};

use super::*;

#[tokio::test]
async fn lists_and_watches_show_objects_of_stores_and_writes() {
    let store = Store::from_objects([map("web"), map("api")]);
    let cx = Context::for_test().with_store(&store);
    let maps = maps_of(&cx);
    let names = async |params: ListParams| {
        let list = maps.list(&params).await.unwrap();
        let names: Vec<_> = list.items.into_iter().filter_map(|map| map.metadata.name).collect();
        (names.join(" "), list.metadata.resource_version.unwrap())
    };
    let (all, version) = names(ListParams::default()).await;
    assert_eq!(all, "api web");
    assert_eq!(names(ListParams::default().labels("app=web")).await.0, "web");

    let mut events = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("new")).await.unwrap();
    maps.delete("api", &DeleteParams::default()).await.unwrap();
    let mut next = async || match events.next().await.unwrap().unwrap() {
        WatchEvent::Added(map) => format!("added {}", map.metadata.name.unwrap()),
        WatchEvent::Deleted(map) => format!("deleted {}", map.metadata.name.unwrap()),
        other => panic!("{other:?}"),
    };
    assert_eq!([next().await, next().await], ["added new", "deleted api"]);

    drop(maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap());
    assert!(store.list(&Select::all()).unwrap().is_empty(), "the store shows the effects of every write");
}

#[tokio::test]
async fn a_field_that_an_apply_no_longer_has_is_removed() {
    let store = Store::from_objects([map("web")]);
    let cx = Context::for_test().with_store(&store);
    let applier: Applier<ConfigMap> = Applier::new(KindId::of::<ConfigMap>(), "test");
    let with = |data: Value| {
        from::<ConfigMap>(json!({"metadata": {"name": "web", "namespace": "shop"}, "data": data}))
    };
    drop(applier.apply(&*cx, &with(json!({"b": "2", "c": "3"}))).await.unwrap());
    drop(applier.apply(&*cx, &with(json!({"b": "2"}))).await.unwrap());
    let data = store.get(&web()).unwrap().unwrap().data.clone();
    assert_eq!(json!(data), json!({"a": "1", "b": "2"}), "and a field of another manager stays");
}

#[tokio::test]
async fn writes_are_validated_and_get_defaults_and_generations() {
    let deployments = Store::from_objects([deployment(&json!({"name": "web", "generation": 4}))]);
    let cx = Context::for_test().with_store(&deployments);
    let api = Api::<Deployment>::namespaced(cx.client().clone(), "shop");
    let scale = |replicas: i32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let error = api.patch("web", &PatchParams::default(), &scale(-1)).await.unwrap_err();
    assert!(refusal(&error).is_some_and(|status| status.code == 422), "{error}");
    assert!(error.to_string().contains("spec.replicas: Invalid value: -1"), "{error}");

    drop(api.patch("web", &PatchParams::default(), &scale(2)).await.unwrap());
    let stored = deployments.get(&web()).unwrap().unwrap();
    assert_eq!(stored.metadata.generation, Some(5));
    assert_eq!(stored.spec.revision_history_limit, Some(10), "a default");
}

#[tokio::test]
async fn a_custom_resource_has_the_schema_of_its_definition_or_accepts_every_field() {
    let size = json!({"type": "integer", "maximum": 3, "default": 1});
    let schema = json!({
        "type": "object", "properties": {"size": size, "name": {"type": "string"}},
    });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
    });
    let definition = from(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "widgets", "kind": "Widget"},
        },
    }));
    let kind = KindId::new("example.com", "v1", "Widget", "widgets", true);
    let web = json!({"metadata": {"name": "web", "namespace": "shop"}});
    let widgets = || Store::<DynamicObject>::from_values(&kind, [web.clone()]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let api =
        |cx: &TestContext| Api::<DynamicObject>::namespaced_with(cx.client().clone(), "shop", &resource);
    let big = Patch::Merge(json!({"size": 4, "odd": [1]}));

    let store = widgets();
    let strict = Context::for_test().with_definition(&definition).with_store(&store);
    assert_eq!(api(&strict).get("web").await.unwrap().data["size"], 1);
    let error = api(&strict).patch("web", &PatchParams::default(), &big).await.unwrap_err().to_string();
    assert!(error.contains("size: Invalid value: 4"), "{error}");

    let store = widgets();
    let open = Context::for_test().with_store(&store);
    let written = api(&open).patch("web", &PatchParams::default(), &big).await.unwrap();
    assert_eq!(written.data, json!({"size": 4, "odd": [1]}));
    let status = Patch::Merge(json!({"size": 5, "status": {"ready": true}}));
    let written = api(&open).patch_status("web", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(written.data, json!({"size": 4, "odd": [1], "status": {"ready": true}}));
}

#[tokio::test]
async fn a_namespace_exists_once_it_is_named_and_until_it_is_deleted() {
    let cx = Context::for_test();
    let maps = maps_of(&cx);
    maps.create(&PostParams::default(), &map("web")).await.unwrap();
    let namespaces = Api::<Namespace>::all(cx.client().clone());
    assert!(namespaces.get_opt("shop").await.unwrap().is_some());
    drop(namespaces.delete("shop", &DeleteParams::default()).await.unwrap());
    let error = maps.create(&PostParams::default(), &map("api")).await.unwrap_err();
    assert!(error.to_string().contains("because it is being terminated"), "{error}");
}

#[test]
#[should_panic(expected = "refuses ConfigMap shop/web: a stored object has a resourceVersion")]
fn a_server_refuses_an_object_that_no_server_has_stored() {
    let odd = from(json!({"metadata": {"name": "web", "namespace": "shop", "resourceVersion": "0"}}));
    TestApi::new().follow(Store::<ConfigMap>::from_objects([odd]).untyped());
}
