mod server;

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ObjectReference};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::*;
use crate::cache::{ReadError, Select};
use crate::client::{Applier, EventType, Live, WriteError, refusal};
use crate::key::{NamespacedName, Trigger};
use crate::reconcile::{Action, ReconcileError};

fn map(name: &str) -> ConfigMap {
    from(
        json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": name}}, "data": {"a": "1"}}),
    )
}

/// A Deployment that a server accepts, with `more` metadata.
fn deployment(more: &Value) -> Deployment {
    let labels = json!({"app": "web"});
    let mut deployment = json!({
        "metadata": more,
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    });
    deployment["metadata"]["namespace"] = json!("shop");
    from(deployment)
}

fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn web() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

fn maps_of(cx: &TestContext) -> Api<ConfigMap> {
    Api::namespaced(cx.client().clone(), "shop")
}

/// Calls a function.
struct FnReconciler<F>(F);

impl<F, W> Reconciler for FnReconciler<F>
where
    F: Fn(Context) -> W + Send + Sync + 'static,
    W: Future<Output = Outcome> + Send,
{
    async fn reconcile(&self, _request: &NamespacedName, cx: &Context) -> Outcome {
        (self.0)(cx.clone()).await
    }
}

#[test]
fn a_store_of_objects_supports_every_read() {
    let elsewhere = from(json!({"metadata": {"name": "web", "namespace": "bank", "resourceVersion": "70"}}));
    let parents = json!([{"uid": "o", "apiVersion": "v1", "kind": "Pod", "name": "p", "controller": true}]);
    let owned = from(json!({"metadata": {"name": "child", "namespace": "shop", "ownerReferences": parents}}));
    let store = Store::from_objects([map("web"), map("api"), elsewhere, owned]);

    let found = store.get(&web()).unwrap().unwrap();
    assert!(found.metadata.uid.is_some() && found.metadata.resource_version.is_some());
    assert!(std::sync::Arc::ptr_eq(&found, &store.get(&web()).unwrap().unwrap()), "readers share one copy");
    assert!(store.get(&NamespacedName::namespaced("shop", "none")).unwrap().is_none());
    let names = |select: &Select| {
        let mut names: Vec<_> =
            store.list(select).unwrap().iter().map(|entry| entry.meta().request.to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&Select::all()), ["bank/web", "shop/api", "shop/child", "shop/web"]);
    assert_eq!(names(&Select::namespace("bank")), ["bank/web"]);
    assert_eq!(names(&Select::all().label("app", "api")), ["shop/api"]);
    assert_eq!(names(&Select::owned_by("o")), ["shop/child"]);
    assert!(store.untyped().is_synced());
    let error = store.view::<Vec<u8>>().get(&web()).unwrap_err();
    assert!(matches!(error, ReadError::Decode { .. }), "{error}");
}

#[test]
fn a_store_takes_kinds_known_only_at_run_time_and_cluster_scoped_ones() {
    let kind = KindId::new("example.com", "v1", "Widget", "widgets", true);
    let widgets: Store<DynamicObject> =
        Store::from_values(&kind, [json!({"metadata": {"name": "a"}, "size": 3})]);
    let widget = widgets.get(&NamespacedName::namespaced("default", "a")).unwrap().unwrap();
    assert_eq!(widget.data["size"], 3);
    assert_eq!(widget.types.as_ref().unwrap().api_version, "example.com/v1");
    let nodes = Store::from_objects([from::<Node>(json!({"metadata": {"name": "n"}}))]);
    assert!(nodes.get(&NamespacedName::cluster("n")).unwrap().is_some());
}

#[test]
#[should_panic(expected = "metadata.name is missing")]
fn a_store_refuses_an_object_without_a_name() {
    drop(Store::from_objects([ConfigMap::default()]));
}

#[tokio::test]
async fn a_run_has_its_outcome_and_only_its_own_writes_and_events() {
    let deployments = Store::from_objects([deployment(&json!({"name": "web"}))]);
    let cx = Context::for_test().with_store(&deployments);
    maps_of(&cx).create(&PostParams::default(), &map("old")).await.unwrap();
    let reconciler = FnReconciler(|cx: Context| async move {
        let regarding = ObjectReference { name: Some("web".to_owned()), ..ObjectReference::default() };
        cx.events().event(&regarding, EventType::Warning, "Odd", "Look", "this is odd");
        let applier: Applier<ConfigMap> = Applier::new(KindId::of::<ConfigMap>(), "test");
        drop(applier.dry_run(&cx, None::<&Live>, &map("web")).await?);
        let status = json!({"metadata": {"name": "web", "namespace": "shop"}, "status": {"replicas": 1}});
        let deployments: Applier<Deployment> = Applier::new(KindId::of::<Deployment>(), "test");
        deployments.apply_status(&cx, &status).await?;
        maps_of_client(&cx).delete("old", &DeleteParams::default()).await?;
        Err(ReconcileError::terminal("enough"))
    });
    let run = reconcile_once(&reconciler, &web(), &cx).await;
    assert_eq!(run.outcome.unwrap_err().to_string(), "enough");
    let lines: Vec<_> = run.writes.iter().map(ToString::to_string).collect();
    let expected = [
        "apply configmaps shop/web (dry run)",
        "apply deployments.apps/status shop/web",
        "delete configmaps shop/old",
    ];
    assert_eq!(lines, expected);
    assert_eq!(run.writes[0].body["data"]["a"], "1");
    let events: Vec<_> = run.events.iter().map(ToString::to_string).collect();
    assert_eq!(events, ["Warning Odd: this is odd"]);
    assert_eq!(run.events[0].regarding.name.as_deref(), Some("web"));
}

fn maps_of_client(cx: &Context) -> Api<ConfigMap> {
    Api::namespaced(cx.client().clone(), "shop")
}

#[tokio::test]
async fn writes_enter_the_store_and_stale_or_foreign_writes_are_refused() {
    let store = Store::from_objects([map("web")]);
    let cx = Context::for_test().with_store(&store);
    let maps = maps_of(&cx);
    let read = || store.get(&web()).unwrap();

    let before = read().unwrap();
    let patch = Patch::Merge(json!({"data": {"a": null, "b": "2"}}));
    maps.patch("web", &PatchParams::default(), &patch).await.unwrap();
    let after = read().unwrap();
    assert_eq!(
        after.data.clone().unwrap().into_iter().collect::<Vec<_>>(),
        [("b".to_owned(), "2".to_owned())]
    );
    assert_eq!(after.metadata.labels, before.metadata.labels, "a field that the patch does not name stays");
    assert_ne!(after.metadata.resource_version, before.metadata.resource_version);

    let stale = maps.replace("web", &PostParams::default(), &before).await.unwrap_err();
    let foreign = Preconditions { uid: Some("another".to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(foreign), ..DeleteParams::default() };
    let foreign = maps.delete("web", &params).await.unwrap_err();
    for error in [&stale, &foreign] {
        assert_eq!(refusal(error).map(|status| status.code), Some(409), "{error}");
    }
    let twice = maps.create(&PostParams::default(), &map("web")).await.unwrap_err();
    assert_eq!(refusal(&twice).unwrap().reason, "AlreadyExists");
    let none = maps.patch("none", &PatchParams::default(), &patch).await.unwrap_err();
    assert_eq!(refusal(&none).unwrap().code, 404);
    assert_eq!(maps.get("web").await.unwrap().data, after.data);

    maps.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(read().is_none());
    let again = maps.create(&PostParams::default(), &map("web")).await.unwrap();
    assert_ne!(again.metadata.uid, before.metadata.uid, "another object of the same name");
    assert_eq!(read().unwrap().metadata.uid, again.metadata.uid);
}

#[tokio::test]
async fn an_object_with_finalizers_stays_until_the_last_one_is_removed() {
    let mut held = map("web");
    held.metadata.finalizers = Some(vec!["a/b".to_owned()]);
    let store = Store::from_objects([held]);
    let cx = Context::for_test().with_store(&store);
    let maps = maps_of(&cx);
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(store.entry(&web()).unwrap().unwrap().meta().deleting);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    maps.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert!(store.get(&web()).unwrap().is_none());
}

#[tokio::test]
async fn kinds_without_store_or_definition_are_not_served_and_scripts_come_first() {
    let cx = Context::for_test();
    let widgets = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let unknown =
        Api::<DynamicObject>::namespaced_with(cx.client().clone(), "shop", &widgets).get("web").await;
    let unknown = unknown.unwrap_err().to_string();
    assert!(
        unknown.contains("does not serve widgets.example.com in v1: give the context a store"),
        "{unknown}"
    );

    cx.api().refuse_next(403, "Forbidden", "not today");
    cx.api().answer_next(json!({"metadata": {"name": "web", "resourceVersion": "9"}}));
    let applier: Applier<ConfigMap> = Applier::new(KindId::of::<ConfigMap>(), "test");
    let refused = applier.apply(&*cx, &map("web")).await.unwrap_err();
    assert!(matches!(refused, WriteError::Refused { .. }) && refused.is_forbidden(), "{refused}");
    let answered = applier.apply(&*cx, &map("web")).await.unwrap();
    assert_eq!(answered.metadata.resource_version.as_deref(), Some("9"));
    let codes: Vec<u16> = cx.api().take_writes().iter().map(|write| write.code).collect();
    assert_eq!(codes, [403, 200]);
}

#[tokio::test]
async fn a_context_has_the_values_that_the_test_sets() {
    let deadline = Instant::now();
    let cause = Cause::bare(Trigger::Manual);
    let cx = Context::for_test().with_deadline(deadline).with_attempt(3).with_cause(cause.clone());
    assert_eq!((cx.attempt(), cx.cause(), cx.deadline()), (3, &cause, Some(deadline)));
    cx.stopping().cancel();
    let reconciler = FnReconciler(|cx: Context| async move {
        assert!(cx.stopping().is_cancelled() && cx.attempt() == 3);
        Ok(Action::Done)
    });
    assert_eq!(reconcile_once(&reconciler, &web(), &cx).await.outcome.unwrap(), Action::Done);
    assert_eq!(Context::for_test().attempt(), 1);

    let elsewhere = TestApi::new();
    elsewhere.refuse_next(503, "ServiceUnavailable", "over there");
    let cx = cx.with_client(elsewhere.client());
    let error = maps_of(&cx).get("web").await.unwrap_err();
    assert!(error.to_string().contains("over there"), "{error}");
}

#[tokio::test]
async fn a_write_without_a_change_is_answered_with_the_stored_version() {
    let mut held = map("web");
    held.metadata.finalizers = Some(vec!["a/b".to_owned()]);
    let store = Store::from_objects([held]);
    let cx = Context::for_test().with_store(&store);
    let maps = maps_of(&cx);
    let before = maps.get("web").await.unwrap();
    let version = || store.get(&web()).unwrap().unwrap().metadata.resource_version.clone();

    let same = Patch::Merge(json!({"data": {"a": "1", "b": null}, "metadata": {"annotations": {}}}));
    assert_eq!(maps.patch("web", &PatchParams::default(), &same).await.unwrap(), before);
    // A replace may omit the fields that only the server sets.
    let mut bare = before.clone();
    (bare.metadata.uid, bare.metadata.resource_version) = (None, None);
    assert_eq!(maps.replace("web", &PostParams::default(), &bare).await.unwrap(), before);
    let applier: Applier<ConfigMap> = Applier::new(KindId::of::<ConfigMap>(), "test");
    let owned = applier.apply(&*cx, &map("web")).await.unwrap();
    assert_ne!(version(), before.metadata.resource_version, "the first apply adds managed fields");
    let again = applier.apply(&*cx, &map("web")).await.unwrap();
    assert_eq!(again.metadata, owned.metadata);
    assert_eq!(version(), owned.metadata.resource_version);

    let other = Patch::Merge(json!({"data": {"a": "2"}}));
    maps.patch("web", &PatchParams::default(), &other).await.unwrap();
    assert_ne!(version(), owned.metadata.resource_version);
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    let deleted = version();
    maps.delete("web", &DeleteParams::default()).await.unwrap();
    assert_eq!(version(), deleted, "its deletion had begun before");
}

#[tokio::test]
async fn only_a_status_write_changes_the_status_and_no_write_ends_a_deletion() {
    let mut held = deployment(&json!({"name": "web", "finalizers": ["a/b"]}));
    held.status = from(json!({"replicas": 1}));
    let store = Store::from_objects([held]);
    let cx = Context::for_test().with_store(&store);
    let deployments = Api::<Deployment>::namespaced(cx.client().clone(), "shop");
    let read = || store.get(&web()).unwrap().unwrap();
    let replicas = || read().status.clone().and_then(|status| status.replicas);
    let stale = read().as_ref().clone();
    drop(deployments.delete("web", &DeleteParams::default()).await.unwrap());

    let mut desired = stale.clone();
    desired.metadata.resource_version = None;
    desired.metadata.labels = Some([("tier".to_owned(), "front".to_owned())].into());
    desired.status = None;
    deployments.replace("web", &PostParams::default(), &desired).await.unwrap();
    assert_eq!((replicas(), read().metadata.labels.clone()), (Some(1), desired.metadata.labels.clone()));
    let metadata = json!({"deletionTimestamp": null, "labels": {"tier": "back"}});
    let both = json!({"metadata": metadata, "status": {"replicas": 7}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(both)).await.unwrap();
    let applier: Applier<Deployment> = Applier::new(KindId::of::<Deployment>(), "test");
    let both = json!({"metadata": {"name": "web", "namespace": "shop"}, "status": {"replicas": 8}});
    drop(applier.apply(&*cx, &both).await.unwrap());
    assert_eq!(replicas(), Some(1));
    assert!(read().metadata.deletion_timestamp.is_some(), "its deletion has not ended");

    drop(applier.apply_status(&*cx, &both).await.unwrap());
    assert_eq!(replicas(), Some(8));
    assert_eq!(read().metadata.labels.as_ref().unwrap()["tier"], "back", "and nothing else");

    let mut new = deployment(&json!({"name": "new"}));
    new.status = from(json!({"replicas": 3}));
    let created = deployments.create(&PostParams::default(), &new).await.unwrap();
    assert_eq!(created.status.unwrap().replicas, None);
    assert!(created.metadata.creation_timestamp.is_some());
}

#[tokio::test]
async fn a_script_answers_a_request_for_no_resource() {
    let cx = Context::for_test();
    let send = || {
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        cx.client().request::<Value>(request)
    };
    assert_eq!(send().await.unwrap()["major"], "1");
    cx.api().answer_next(json!({"gitVersion": "v1.2.3"}));
    assert_eq!(send().await.unwrap()["gitVersion"], "v1.2.3");
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn a_context_is_made_in_a_runtime_only() {
    let _cx = Context::for_test();
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_success_or_shows_the_last_result() {
    let begun = Instant::now();
    let mut tries = 0;
    let third = eventually(Duration::from_secs(1), async || {
        tries += 1;
        if tries == 3 { Ok(tries) } else { Err(tries) }
    });
    assert_eq!(third.await.unwrap(), 3);
    assert_eq!(begun.elapsed(), Duration::from_millis(100), "two pauses");

    let mut tries = 0;
    let never = eventually(Duration::from_secs(1), async || {
        tries += 1;
        Err::<(), _>(format!("try {tries}"))
    });
    assert_eq!(never.await.unwrap_err().to_string(), "waited 1s; last result: try 21");
    let hung = eventually(Duration::from_secs(1), std::future::pending::<Result<(), String>>);
    assert!(hung.await.unwrap_err().to_string().contains("the first check has not returned"));
}

#[tokio::test(start_paused = true)]
async fn a_condition_waits_for_a_state_and_shows_the_last_other_state() {
    let conditions =
        json!([{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "False"}]);
    let metadata = json!({"name": "web", "namespace": "shop"});
    let ready = json!({"metadata": metadata, "status": {"conditions": conditions}});
    let deployments = Store::<Deployment>::from_objects([from(ready)]);
    let cx = Context::for_test().with_store(&deployments);
    let api: Api<Deployment> = Api::namespaced(cx.client().clone(), "shop");
    let found = Condition::is_true("Available").wait(&api, "web").await.unwrap();
    assert_eq!(found.unwrap().metadata.name.as_deref(), Some("web"));
    assert!(Condition::deleted().wait(&api, "none").await.unwrap().is_none());
    let limit = Duration::from_secs(1);
    let error =
        Condition::is_true("Progressing").within(limit).wait(&api, "web").await.unwrap_err().to_string();
    assert!(
        error.starts_with("waited 1s; last result: expected that web has condition Progressing; found {")
            && error.contains("\"Available\""),
        "{error}"
    );
    let error = Condition::exists().within(limit).wait(&api, "none").await.unwrap_err().to_string();
    assert_eq!(error, "waited 1s; last result: expected that none exists; found no such object");
    cx.api().refuse_next(500, "InternalError", "etcd is away");
    assert!(Condition::exists().wait(&api, "web").await.is_ok(), "a failed read is repeated");
}
