pub(crate) mod fixtures;
mod too_large;
mod transforms;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::{ResourcePath, WriteObserver, Writer};
use crate::key::NamespacedName;
use crate::metrics::Format;
use fixtures::{ByHand, Rig, config_map, object, recorder, request};
use k8s_openapi::api::core::v1::ConfigMap;

fn path(name: Option<&str>) -> ResourcePath {
    ResourcePath {
        group: String::new(),
        version: "v1".into(),
        plural: "configmaps".into(),
        namespace: Some("shop".into()),
        name: name.map(ToOwned::to_owned),
        subresource: None,
    }
}

fn bytes(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}

struct Panics;

impl DeltaHandler for Panics {
    fn handle(&self, _delta: &Delta<'_>) {
        panic!("on purpose");
    }

    fn name(&self) -> &'static str {
        "panics"
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_write_is_read_at_once_and_delivered_once_in_order() {
    let (rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    rig.cache.written(&path(Some("a")), &bytes(&object("a", "u1", 12)), Writer::default());
    assert_eq!(store.get(&request("a")).unwrap().unwrap().meta().resource_version.to_string(), "12");
    stream.event("MODIFIED", &object("a", "u1", 11));
    stream.event("MODIFIED", &object("a", "u1", 12));
    stream.event("MODIFIED", &object("a", "u1", 13));
    assert_eq!(deltas.take(3).await, ["+ a@5 initial", "a@5 -> a@12 own", "a@12 -> a@13"]);
}

#[tokio::test(start_paused = true)]
async fn an_own_delete_is_read_at_once_for_each_form_of_response() {
    let (rig, store, stream) =
        Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6), object("c", "u3", 7)]).await;
    let status = json!({"kind": "Status", "status": "Success", "details": {"name": "a", "uid": "u1"}});
    rig.cache.deleted(&path(Some("a")), &bytes(&status), &[], Writer::default());
    rig.cache.deleted(&path(Some("b")), &bytes(&object("b", "u2", 6)), &[], Writer::default());
    let mut waits = object("c", "u3", 14);
    waits["metadata"]["finalizers"] = json!(["x/y"]);
    waits["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    rig.cache.deleted(&path(Some("c")), &bytes(&waits), &[], Writer::default());
    assert!(store.get(&request("a")).unwrap().is_none() && store.get(&request("b")).unwrap().is_none());
    assert!(store.get(&request("c")).unwrap().unwrap().meta().deleting);
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    stream.event("DELETED", &object("a", "u1", 12));
    stream.event("DELETED", &object("c", "u3", 15));
    assert_eq!(deltas.take(2).await, ["+ c@14 initial", "- c@14"]);
}

#[tokio::test(start_paused = true)]
async fn an_own_write_that_removes_the_last_finalizer_is_read_as_a_deletion() {
    let mut held = object("a", "u1", 5);
    held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    held["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    held["metadata"]["finalizers"] = json!(["x/y"]);
    let (rig, store, stream) = Rig::synced(&[held.clone()]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    held["metadata"]["finalizers"] = json!([]);
    rig.cache.written(&path(Some("a")), &bytes(&held), Writer::default());
    assert!(store.get(&request("a")).unwrap().is_none());
    stream.event("DELETED", &object("a", "u1", 12));
    stream.event("ADDED", &object("a", "u2", 13));
    assert_eq!(deltas.take(3).await, ["+ a@5 initial", "- a@5 own", "+ a@13"]);
}

#[tokio::test(start_paused = true)]
async fn own_writes_that_a_store_cannot_apply_are_counted_and_left_to_the_watch() {
    let (mut rig, store, _stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let selected = rig.cache.kind(config_map(), Scope::all().fields("metadata.name=a"), Projection::Full);
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.end_of_initial_events(10);
    selected.settled().await;
    rig.cache.written(&path(Some("a")), &bytes(&object("a", "u1", 12)), Writer::default());
    assert_eq!(store.get(&request("a")).unwrap().unwrap().meta().resource_version.to_string(), "12");
    let behind = selected.get(&request("a")).unwrap().unwrap();
    assert_eq!(behind.meta().resource_version.to_string(), "5", "the cache cannot evaluate a field selector");
    let other_version = ResourcePath { version: "v2".into(), ..path(Some("a")) };
    rig.cache.written(&other_version, &bytes(&object("a", "u1", 20)), Writer::default());
    assert_eq!(store.get(&request("a")).unwrap().unwrap().meta().resource_version.to_string(), "12");
    assert_eq!(rig.cache.0.uncovered(), 2);
    rig.cache.uncovered(&path(None));
    assert_eq!(rig.cache.0.uncovered(), 3, "the response to a deletecollection has no objects");
    rig.cache.uncovered(&ResourcePath { plural: "pods".into(), ..path(None) });
    assert_eq!(rig.cache.0.uncovered(), 3, "no store holds Pods");
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_gets_the_present_objects_and_a_dropped_one_no_more_deltas() {
    let (_rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (first, mut first_deltas) = recorder();
    let mut subscription = store.subscribe(first);
    subscription.synced().await;
    assert_eq!(first_deltas.next().await, "+ a@5 initial");
    drop(subscription);
    let (second, mut second_deltas) = recorder();
    let _second = store.subscribe(second);
    stream.event("MODIFIED", &object("a", "u1", 11));
    assert_eq!(second_deltas.take(2).await, ["+ a@5 initial", "a@5 -> a@11"]);
    assert!(first_deltas.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_handler_panic_loses_one_delta_and_is_counted_by_handler() {
    let (_rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let mut panics = store.subscribe(Box::new(Panics));
    let (handler, mut deltas) = recorder();
    let _other = store.subscribe(handler);
    stream.event("MODIFIED", &object("a", "u1", 11));
    assert_eq!(deltas.take(2).await, ["+ a@5 initial", "a@5 -> a@11"]);
    panics.synced().await;
    assert_eq!(store.status().handlers["panics"], HandlerTrouble { panics: 2, slow: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_resync_delivers_every_object_without_a_request() {
    let mut rig = Rig::start(CacheSettings { resync: Duration::from_secs(100), ..CacheSettings::default() });
    let store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.end_of_initial_events(10);
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    assert_eq!(deltas.next().await, "+ a@5 initial");
    let began = Instant::now();
    assert_eq!(deltas.next().await, "a@5 -> a@5 resync");
    assert!((89.0..101.0).contains(&began.elapsed().as_secs_f64()));
    assert_eq!(store.status().relists, 0);
}

#[tokio::test(start_paused = true)]
async fn a_resync_skips_objects_with_a_queued_change() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5), object("b", "u2", 6), object("c", "u3", 7)]);
    let (handler, mut deltas) = recorder();
    let mut subscription = by_hand.store.subscribe(handler);
    subscription.synced().await;
    assert_eq!(deltas.take(3).await.len(), 3);
    by_hand.resynced();
    by_hand.changed(&object("a", "u1", 11));
    by_hand.deleted(&object("b", "u2", 12));
    assert_eq!(deltas.take(3).await, ["c@7 -> c@7 resync", "a@5 -> a@11", "- b@6"]);
}

#[tokio::test(start_paused = true)]
async fn readers_of_one_version_share_one_decoded_object() {
    let (rig, _store, _stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let typed = rig.cache.store::<ConfigMap>(Scope::all());
    let (one, two) = (typed.get(&request("a")).unwrap().unwrap(), typed.get(&request("a")).unwrap().unwrap());
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(one.data.as_ref().unwrap()["at"], "5");
    assert_eq!(one.metadata.managed_fields, None);
    let left = Arc::downgrade(&one);
    drop((one, two));
    assert!(left.upgrade().is_some(), "cached for the next reader");
    let dynamic = typed.view::<kube::core::DynamicObject>().get(&request("a")).unwrap().unwrap();
    assert_eq!(dynamic.types.as_ref().unwrap().kind, "ConfigMap");
    let error = typed.view::<Vec<u8>>().get(&request("a")).unwrap_err();
    assert!(matches!(error, ReadError::Decode { .. }), "{error}");
    assert_eq!(rig.cache.kinds()[0].decode_errors, 1);
}

#[tokio::test(start_paused = true)]
async fn equal_declarations_share_one_store_and_the_wider_projection_wins_before_the_start() {
    let (_server, client) = fixtures::server::scripted();
    let registry = Registry::new();
    let settings = CacheSettings { namespaces: vec!["shop".into()], ..CacheSettings::default() };
    let cache = Cache::new(settings, client, &registry);
    let metadata = cache.metadata::<ConfigMap>(Scope::all());
    let full = cache.store::<ConfigMap>(Scope::all());
    assert!(Arc::ptr_eq(metadata.untyped(), full.untyped()));
    assert_eq!(full.untyped().projection(), Projection::Full);
    let outside = cache.store::<ConfigMap>(Scope::namespace("bank"));
    let error = outside.get(&NamespacedName::namespaced("bank", "a")).unwrap_err();
    assert!(matches!(error, ReadError::OutOfScope { .. }), "{error}");
    let error = full.get(&request("a")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cache of ConfigMap (all, namespaces shop) has not synced yet; wait for it before reading"
    );
    let text = registry.encode(Format::OpenMetrics).unwrap();
    assert!(text.contains("mainstay_cache_unsynced{kind=\"ConfigMap\",group=\"\"} 2"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn caught_up_returns_once_reads_show_the_write() {
    let (rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let typed = crate::cache::Store::<ConfigMap>::new(store.clone());
    let written: ConfigMap = serde_json::from_value(object("a", "u1", 12)).unwrap();
    let unseen: ConfigMap = serde_json::from_value(object("b", "u2", 13)).unwrap();
    let (first, second) = (typed.caught_up(&written), typed.caught_up(&unseen));
    tokio::pin!(first, second);
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    assert!(futures_util::poll!(second.as_mut()).is_pending());
    stream.event("MODIFIED", &object("a", "u1", 12));
    first.await.unwrap();
    assert_eq!(typed.get(&request("a")).unwrap().unwrap().data.as_ref().unwrap()["at"], "12");
    assert!(futures_util::poll!(second.as_mut()).is_pending(), "the watch has not reached version 13");
    stream.bookmark(20);
    second.await.unwrap();
    rig.cache.written(&path(Some("a")), &bytes(&object("a", "u1", 30)), Writer::default());
    let own: ConfigMap = serde_json::from_value(object("a", "u1", 30)).unwrap();
    typed.caught_up(&own).await.unwrap();
}

/// A handler that panics when it is dropped.
struct PanicsOnDrop;

impl DeltaHandler for PanicsOnDrop {
    fn handle(&self, _delta: &Delta<'_>) {}
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_on_drop_does_not_affect_the_others() {
    let (_rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    let mut panics = store.subscribe(Box::new(PanicsOnDrop));
    panics.synced().await;
    drop(panics);
    stream.event("MODIFIED", &object("a", "u1", 11));
    assert_eq!(deltas.take(2).await, ["+ a@5 initial", "a@5 -> a@11"]);
    assert!(store.status().down_since.is_none());
}

/// A panic payload that panics again when it is dropped, after the first panic was caught.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// A handler with a panic that is not contained and reaches the store's task.
pub(crate) struct Explodes;

impl DeltaHandler for Explodes {
    fn handle(&self, _delta: &Delta<'_>) {
        std::panic::panic_any(Bomb);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_task_of_one_store_ends_the_cache() {
    let (mut rig, store, _stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let _subscription = store.subscribe(Box::new(Explodes));
    let ended = timeout(Duration::from_hours(1), rig.tasks.join_next()).await.expect("it ends");
    assert!(ended.unwrap().unwrap_err().is_panic());
}

#[tokio::test(start_paused = true)]
async fn own_writes_after_the_stop_are_read_and_not_queued() {
    let (mut rig, store, _stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (handler, mut deltas) = recorder();
    let mut subscription = store.subscribe(handler);
    subscription.synced().await;
    assert_eq!(deltas.next().await, "+ a@5 initial");
    rig.stop.cancel();
    rig.tasks.join_next().await.unwrap().unwrap();
    let before = store.get(&request("a")).unwrap().unwrap();
    for version in 12..5_000 {
        rig.cache.written(&path(Some("a")), &bytes(&object("a", "u1", version)), Writer::default());
    }
    let version = store.get(&request("a")).unwrap().unwrap().meta().resource_version.to_string();
    assert_eq!(version, "4999");
    assert!(!before.is_held_elsewhere(), "no queued change holds the old version");
    let _late = store.subscribe(recorder().0);
    assert!(store.core().has_room(), "no initial delta is queued");
}

#[tokio::test(start_paused = true)]
async fn a_cache_stopped_before_it_runs_sends_no_request() {
    let (server, client) = fixtures::server::scripted();
    let cache = Cache::new(CacheSettings::default(), client, &Registry::new());
    let _store = cache.store::<ConfigMap>(Scope::all());
    let stop = CancellationToken::new();
    stop.cancel();
    cache.run(stop).await;
    assert_eq!(server.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_every_task() {
    let (mut rig, store, _stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    rig.stop.cancel();
    rig.tasks.join_next().await.unwrap().unwrap();
    assert!(store.get(&request("a")).unwrap().is_some(), "still readable");
}
