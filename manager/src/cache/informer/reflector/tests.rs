mod backlog;
mod bad_input;
mod lists;
mod model;
mod refusals;

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::tests::fixtures::{Rig, object, object_in, recorder};
use crate::cache::{CacheSettings, Projection, Scope, Select};

pub(super) fn never_resync() -> CacheSettings {
    CacheSettings { resync: Duration::ZERO, ..CacheSettings::default() }
}

pub(super) fn between(seconds: std::ops::Range<f64>, took: Duration) {
    assert!(seconds.contains(&took.as_secs_f64()), "took {took:?}, expected {seconds:?} s");
}

#[tokio::test(start_paused = true)]
async fn after_a_clean_end_the_watch_resumes_at_once_from_the_last_version_or_bookmark() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    stream.event("MODIFIED", &object("a", "u1", 11));
    stream.bookmark(40);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let began = Instant::now();
    drop(stream);
    let call = rig.server.next().await;
    assert!(call.is_watch_at(40), "{}", call.uri);
    assert!(began.elapsed().is_zero());
    let stream = call.stream();
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(stream);
    assert!(rig.server.next().await.is_watch_at(40));
    assert_eq!(store.status().relists, 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_reset_the_watch_resumes_after_a_delay_without_a_list() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let began = Instant::now();
    stream.reset();
    let call = rig.server.next().await;
    assert!(call.is_watch_at(10), "{}", call.uri);
    between(0.8..1.2, began.elapsed());
    assert!(store.status().last_error.is_some());
    let stream = call.stream();
    stream.event("ADDED", &object("b", "u2", 12));
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    let mut lines = deltas.take(2).await;
    lines.sort();
    assert!(lines.iter().any(|line| line.starts_with("+ b@12")), "{lines:?}");
    assert_eq!(store.status().down_since, None, "an event proves that the watch works");
}

#[tokio::test(start_paused = true)]
async fn delays_grow_until_the_watch_advances() {
    let (mut rig, _store, stream) = Rig::synced(&[]).await;
    stream.reset();
    let mut longest = Duration::ZERO;
    for (least, most) in
        [(0.8, 1.2), (1.6, 2.4), (3.2, 4.8), (6.4, 9.6), (12.8, 19.2), (20.0, 30.0), (20.0, 30.0)]
    {
        let began = Instant::now();
        rig.server.next().await.refuse(503, "ServiceUnavailable");
        between(least..most, began.elapsed());
        longest = longest.max(began.elapsed());
    }
    assert!(longest < Duration::from_secs(30));
    let stream = rig.server.next().await.stream();
    stream.bookmark(11);
    tokio::task::yield_now().await;
    stream.reset();
    let began = Instant::now();
    assert!(rig.server.next().await.is_watch_at(11));
    between(0.8..1.2, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_retried_every_few_seconds_without_lengthening_the_delay_after_an_error() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    stream.reset();
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    // A closed connection, or the page of a gateway in front of the missing server.
    while began.elapsed() < Duration::from_mins(5) {
        let asked = Instant::now();
        let call = rig.server.next().await;
        match call.uri.len() % 2 {
            0 => drop(call),
            _ => call.answer(502, &[], "<html>Bad Gateway</html>"),
        }
        longest = longest.max(asked.elapsed());
    }
    between(2.0..3.0, longest);
    rig.server.next().await.refuse(503, "ServiceUnavailable");
    let began = Instant::now();
    let call = rig.server.next().await;
    between(0.8..2.4, began.elapsed());
    let _stream = call.stream();
    tokio::time::sleep(Duration::from_millis(1001)).await;
    assert_eq!(store.status().down_since, None, "a watch works after one second");
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_back_off() {
    let (mut rig, _store, stream) = Rig::synced(&[]).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    drop(stream);
    drop(rig.server.next().await.stream());
    let began = Instant::now();
    drop(rig.server.next().await.stream());
    between(0.8..1.2, began.elapsed());
    let began = Instant::now();
    rig.server.next().await;
    between(1.6..2.4, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_closed_five_seconds_after_its_timeout() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    drop(stream);
    let mut call = rig.server.next().await;
    while !call.is_watch_at(10) {
        call = rig.server.next().await;
    }
    let seconds = call.uri.split("timeoutSeconds=").nth(1).unwrap().split('&').next().unwrap();
    let seconds: f64 = seconds.parse().unwrap();
    assert!((240.0..=300.0).contains(&seconds));
    let _stream = call.stream();
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(store.status().down_since, None, "a silent watch is not down");
    assert!(rig.server.next().await.is_watch_at(10));
    // Plus the first delay of the backoff.
    between(seconds + 5.0..seconds + 6.3, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_or_event_does_not_affect_the_others() {
    let settings = CacheSettings { max_frame_bytes: 600, ..never_resync() };
    let mut rig = Rig::start(settings);
    let store = rig.config_maps();
    let mut large = object("large", "u9", 13);
    large["data"]["x"] = "x".repeat(4000).into();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &large);
    stream.event("ADDED", &serde_json::json!({"metadata": 5}));
    stream.event("ADDED", &object("a", "u1", 5));
    stream.end_of_initial_events(10);
    store.settled().await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    assert_eq!(deltas.next().await, "+ a@5 initial");
    stream.send("{\"type\":\"ADDED\",\"obj\n\0\n{}\n");
    stream.event("EXPLODED", &object("b", "u2", 11));
    stream.event("MODIFIED", &large);
    stream.event(
        "MODIFIED",
        &serde_json::json!({"kind": "Secret", "metadata": object("a", "u1", 12)["metadata"]}),
    );
    stream.event("MODIFIED", &object("a", "u1", 14));
    assert_eq!(deltas.next().await, "a@5 -> a@14");
    let status = store.status();
    assert_eq!((status.objects, status.decode_errors), (1, 8));
    assert_eq!(status.relists, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_of_several_namespaces_is_synced_once_all_are_listed() {
    let settings = CacheSettings { namespaces: vec!["shop".into(), "bank".into()], ..never_resync() };
    let mut rig = Rig::start(settings);
    let store = rig.config_maps();
    let (first, second) = (rig.server.next().await, rig.server.next().await);
    assert!(first.has("/namespaces/shop/configmaps?") && second.has("/namespaces/bank/configmaps?"));
    let first = first.stream();
    first.event("ADDED", &object("a", "u1", 5));
    first.end_of_initial_events(10);
    tokio::task::yield_now().await;
    assert!(!store.is_synced());
    let second = second.stream();
    second.event("ADDED", &object_in("bank", "b", "u2", 6));
    second.end_of_initial_events(11);
    store.settled().await;
    assert_eq!(store.list(&Select::all()).unwrap().len(), 2);
    assert!(store.list(&Select::namespace("other")).is_err());
    first.error(410, "Expired");
    let call = rig.server.next().await;
    assert!(call.has("/namespaces/shop/"), "{}", call.uri);
}

#[tokio::test(start_paused = true)]
async fn selectors_and_projection_go_to_the_server() {
    let mut rig = Rig::start(never_resync());
    let scope = Scope::namespace("shop").labels("app in (a)".parse().unwrap()).fields("metadata.name=x");
    let _store = rig.cache.kind(crate::cache::tests::fixtures::config_map(), scope, Projection::Metadata);
    let call = rig.server.next().await;
    assert!(call.has("?labelSelector=app%3Da&fieldSelector=metadata.name%3Dx&watch=true"), "{}", call.uri);
    assert!(call.accept.starts_with("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"));
}

#[tokio::test(start_paused = true)]
async fn after_a_store_read_error_a_list_finds_the_deletion_at_once() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    deltas.take(2).await;
    stream.error(500, "StoreReadError");
    let began = Instant::now();
    let call = rig.server.next().await;
    assert!(call.is_streamed_list() && began.elapsed().is_zero(), "{}", call.uri);
    let stream = call.stream();
    stream.event("ADDED", &object("b", "u2", 6));
    stream.end_of_initial_events(12);
    assert_eq!(deltas.next().await, "- a@5");
}

#[tokio::test(start_paused = true)]
async fn a_server_restored_from_a_backup_is_listed_again() {
    let (mut rig, _store, stream) = Rig::synced(&[]).await;
    let message = "Too large resource version: 10, current: 4";
    let ahead = serde_json::json!({"kind": "Status", "code": 504, "reason": "Timeout", "message": message});
    stream.event("ERROR", &ahead);
    assert!(rig.server.next().await.is_streamed_list());
}

#[tokio::test(start_paused = true)]
async fn repeated_events_are_no_progress() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    stream.event("ADDED", &object("a", "u1", 11));
    tokio::task::yield_now().await;
    stream.reset();
    for (least, most) in [(0.8, 1.2), (1.6, 2.4), (3.2, 4.8)] {
        let began = Instant::now();
        let call = rig.server.next().await;
        assert!(call.is_watch_at(11), "{}", call.uri);
        between(least..most, began.elapsed());
        let stream = call.stream();
        stream.event("MODIFIED", &object("a", "u1", 11));
        stream.bookmark(11);
        tokio::task::yield_now().await;
        stream.reset();
    }
    assert_eq!(store.status().relists, 0);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_without_a_version_does_not_advance_the_watch() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    stream.event("BOOKMARK", &serde_json::json!({"metadata": {"resourceVersion": ""}}));
    stream.event("BOOKMARK", &serde_json::json!({"metadata": {}}));
    tokio::task::yield_now().await;
    stream.reset();
    assert!(rig.server.next().await.is_watch_at(10));
    assert_eq!(store.status().decode_errors, 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_run_of_the_cache_starts_no_second_reflector() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (cache, stop) = (rig.cache.clone(), rig.stop.clone());
    rig.tasks.spawn(async move { cache.run(stop).await });
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    stream.event("MODIFIED", &object("a", "u1", 11));
    assert_eq!(deltas.take(2).await, ["+ a@5 initial", "a@5 -> a@11"]);
    let asked = tokio::time::timeout(Duration::from_secs(10), rig.server.next()).await;
    assert!(asked.is_err(), "no second list or watch");
    assert!(deltas.is_empty(), "nor deltas");
}
