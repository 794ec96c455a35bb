use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::*;
use crate::cache::tests::fixtures::server::scripted;
use crate::cache::tests::fixtures::{Rig, config_map, object, object_in, recorder, request};
use crate::cache::{CacheSettings, Projection, Scope, UntypedStore};
use crate::key::KindId;
use crate::metrics::Registry;

fn path(name: &str) -> ResourcePath {
    ResourcePath {
        group: String::new(),
        version: "v1".into(),
        plural: "configmaps".into(),
        namespace: Some("shop".into()),
        name: Some(name.to_owned()),
        subresource: None,
    }
}

fn bytes(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}

/// The response to a DELETE that removes the object at once.
fn status(uid: &str) -> Bytes {
    bytes(&json!({"kind": "Status", "status": "Success", "details": {"name": "a", "uid": uid}}))
}

/// Returns the uid of the object read under the name `a`.
fn cached_uid(store: &UntypedStore) -> Option<String> {
    store.get(&request("a")).unwrap().map(|view| view.meta().uid.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_is_read_after_own_writes_until_its_last_finalizer_is_gone() {
    let mut rig = Rig::start(CacheSettings::default());
    let store = rig.cache.kind(KindId::of::<Namespace>(), Scope::all(), Projection::Full);
    let stream = rig.server.next().await.stream();
    let at = |version: u64, finalizers: Value| {
        json!({
            "apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": finalizers},
            "metadata": {"name": "shop", "uid": "u1", "resourceVersion": version.to_string()},
        })
    };
    let terminating = |version, finalizers| {
        let mut namespace = at(version, finalizers);
        namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        namespace
    };
    stream.event("ADDED", &at(5, json!(["kubernetes"])));
    stream.end_of_initial_events(10);
    store.settled().await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    let of = ResourcePath { plural: "namespaces".into(), namespace: None, ..path("shop") };
    rig.cache.deleted(&of, &bytes(&terminating(12, json!(["kubernetes"]))), &[], Writer::default());
    rig.cache.written(&of, &bytes(&terminating(13, json!(["kubernetes"]))), Writer::default());
    assert!(store.get(&NamespacedName::cluster("shop")).unwrap().unwrap().meta().deleting);
    stream.event("MODIFIED", &terminating(14, json!(["kubernetes"])));
    let lines = ["+ shop@5 initial", "shop@5 -> shop@12 own", "shop@12 -> shop@13 own", "shop@13 -> shop@14"];
    assert_eq!(deltas.take(4).await, lines);
    rig.cache.written(&of, &bytes(&terminating(14, json!([]))), Writer::default());
    assert_eq!(deltas.next().await, "- shop@14 own", "removed with the last finalizer");
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_by_this_process_before_its_first_event_stays_hidden() {
    let (rig, store, stream) = Rig::synced(&[]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    // Another process creates it at 11 and changes it at 12, this one deletes it at 13, another creates `a`
    // again at 14.
    rig.cache.deleted(&path("a"), &status("u1"), &[], Writer::default());
    stream.event("ADDED", &object("a", "u1", 11));
    stream.event("MODIFIED", &object("a", "u1", 12));
    stream.event("DELETED", &object("a", "u1", 13));
    stream.event("ADDED", &object("a", "u2", 14));
    assert_eq!(deltas.next().await, "+ a@14");
    assert_eq!(rig.cache.0.uncovered(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_first_list_does_not_restore_an_object_deleted_meanwhile_by_this_process() {
    let mut rig = Rig::start(CacheSettings::default());
    let store = rig.config_maps();
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    let stream = rig.server.next().await.stream();
    rig.cache.deleted(&path("a"), &status("u1"), &[], Writer::default());
    stream.event("ADDED", &object("a", "u1", 5));
    stream.end_of_initial_events(10);
    store.settled().await;
    assert_eq!(cached_uid(&store), None);
    stream.event("DELETED", &object("a", "u1", 12));
    stream.event("ADDED", &object("a", "u2", 13));
    assert_eq!(deltas.next().await, "+ a@13");
}

#[tokio::test(start_paused = true)]
async fn an_own_delete_of_a_successor_also_removes_the_cached_predecessor() {
    let (rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    // Another process deletes u1 at 11 and creates u2 at 12, this one deletes u2 at 13; then the events
    // arrive.
    let before = rig.cache.cached_uids(&path("a"));
    assert_eq!(before, ["u1"]);
    rig.cache.deleted(&path("a"), &status("u2"), &before, Writer::default());
    assert_eq!(cached_uid(&store), None);
    stream.event("DELETED", &object("a", "u1", 11));
    stream.event("ADDED", &object("a", "u2", 12));
    stream.event("DELETED", &object("a", "u2", 13));
    stream.event("ADDED", &object("a", "u3", 14));
    assert_eq!(deltas.take(3).await, ["+ a@5 initial", "- a@5 own", "+ a@14"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_response_to_an_own_delete_keeps_a_newer_object_of_the_name() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let before = rig.cache.cached_uids(&path("a"));
    stream.error(410, "Expired");
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("a", "u3", 14));
    stream.end_of_initial_events(20);
    while cached_uid(&store).as_deref() != Some("u3") {
        tokio::task::yield_now().await;
    }
    // The deleted u2 existed only between the two lists.
    rig.cache.deleted(&path("a"), &status("u2"), &before, Writer::default());
    assert_eq!(cached_uid(&store).as_deref(), Some("u3"));
    assert_eq!(rig.cache.0.uncovered(), 1, "u3 may be older than the deleted u2");
    let mut removed = object("a", "u2", 12);
    removed["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    rig.cache.deleted(&path("a"), &bytes(&removed), &before, Writer::default());
    assert_eq!(cached_uid(&store).as_deref(), Some("u3"));
}

#[tokio::test(start_paused = true)]
async fn an_own_write_that_leaves_a_label_selection_is_read_at_once_and_one_outside_it_is_ignored() {
    let mut rig = Rig::start(CacheSettings::default());
    let store =
        rig.cache.kind(config_map(), Scope::all().labels("app=web".parse().unwrap()), Projection::Full);
    let labelled = |name, uid, version, app| {
        let mut object = object(name, uid, version);
        object["metadata"]["labels"] = json!({"app": app});
        object
    };
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &labelled("a", "u1", 5, "web"));
    stream.end_of_initial_events(10);
    store.settled().await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    rig.cache.written(&path("a"), &bytes(&labelled("a", "u1", 12, "api")), Writer::default());
    assert_eq!(cached_uid(&store), None);
    rig.cache.written(&path("b"), &bytes(&labelled("b", "u2", 14, "api")), Writer::default());
    stream.event("MODIFIED", &labelled("a", "u1", 11, "web"));
    stream.event("DELETED", &labelled("a", "u1", 12, "web"));
    stream.event("ADDED", &labelled("b", "u2", 13, "web"));
    stream.event("DELETED", &labelled("b", "u2", 14, "web"));
    rig.cache.written(&path("a"), &bytes(&labelled("a", "u1", 15, "web")), Writer::default());
    assert_eq!(deltas.take(3).await, ["+ a@5 initial", "- a@5 own", "+ a@15 own"]);
    rig.cache.written(&path("a"), &bytes(&labelled("a", "u1", 12, "api")), Writer::default());
    assert_eq!(cached_uid(&store).as_deref(), Some("u1"), "version 15 is selected again");
    assert_eq!(rig.cache.0.uncovered(), 0);
}

#[tokio::test(start_paused = true)]
async fn own_writes_before_the_start_or_outside_the_scope_are_not_uncovered() {
    let (_server, client) = scripted();
    let settings = CacheSettings { namespaces: vec!["bank".into()], ..CacheSettings::default() };
    let cache = Cache::new(settings.clone(), client, &Registry::new());
    let _store = cache.kind(config_map(), Scope::all().fields("metadata.name=a"), Projection::Full);
    cache.written(&path("a"), &bytes(&object_in("bank", "a", "u1", 12)), Writer::default());
    cache.deleted(&path("a"), &status("u1"), &[], Writer::default());
    assert_eq!(cache.0.uncovered(), 0);
    let mut rig = Rig::start(settings);
    let store = rig.config_maps();
    rig.server.next().await.stream().end_of_initial_events(10);
    store.settled().await;
    rig.cache.written(&path("a"), &bytes(&object("a", "u1", 12)), Writer::default());
    rig.cache.deleted(&path("a"), &status("u1"), &[], Writer::default());
    assert_eq!((rig.cache.0.uncovered(), store.status().objects), (0, 0));
}
