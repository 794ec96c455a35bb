mod backlog;
mod bad_input;
mod model;
mod refusals;

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::store::table::Removal;
use crate::cache::tests::fixtures::{Rig, object, object_in, request, teller};
use crate::cache::{CacheSettings, Projection, Scope, Select};
use crate::client::Writer;

pub(super) fn never_resync() -> CacheSettings {
    CacheSettings { resync: Duration::ZERO, ..CacheSettings::default() }
}

pub(super) fn between(seconds: std::ops::Range<f64>, took: Duration) {
    assert!(seconds.contains(&took.as_secs_f64()), "took {took:?}, expected {seconds:?} s");
}

#[tokio::test(start_paused = true)]
async fn the_list_is_streamed_and_the_same_stream_goes_on_as_the_watch() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    let (handler, mut told) = teller();
    let mut subscription = store.subscribe(handler);
    let call = rig.server.next().await;
    assert!(call.is_streamed_list(), "{}", call.uri);
    assert!(call.has("/api/v1/configmaps?") && call.has("resourceVersionMatch=NotOlderThan"), "{}", call.uri);
    let stream = call.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.event("ADDED", &object("b", "u2", 6));
    assert_eq!(told.take(2).await, ["+ a@5 initial", "+ b@6 initial"]);
    assert!(!store.is_synced() && !subscription.is_synced());
    assert!(store.get(&request("a")).is_err(), "half a list is no answer");
    stream.end_of_initial_events(10);
    subscription.synced().await;
    stream.event("MODIFIED", &object("a", "u1", 11));
    stream.event("DELETED", &object("b", "u2", 12));
    assert_eq!(told.take(2).await, ["a@5 -> a@11", "- b@6"]);
    let status = store.status();
    assert_eq!((status.objects, status.relists, status.restarts, status.down_since), (1, 0, 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_resumes_at_once_from_the_last_version_or_bookmark() {
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
async fn a_reset_resumes_after_a_wait_and_without_a_list() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let began = Instant::now();
    stream.reset();
    let call = rig.server.next().await;
    assert!(call.is_watch_at(10), "{}", call.uri);
    between(0.8..1.2, began.elapsed());
    assert!(store.status().last_error.is_some());
    let stream = call.stream();
    stream.event("ADDED", &object("b", "u2", 12));
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    let mut lines = told.take(2).await;
    lines.sort();
    assert!(lines.iter().any(|line| line.starts_with("+ b@12")), "{lines:?}");
    assert_eq!(store.status().down_since, None, "an event proves that it works");
}

#[tokio::test(start_paused = true)]
async fn waits_grow_until_the_watch_moves() {
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
async fn a_server_that_nobody_reaches_is_tried_every_few_seconds_and_its_first_bad_answer_is_news() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    stream.reset();
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    // A connection that ends, as when the server is away, or the page of a gateway before it.
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
    assert_eq!(store.status().down_since, None, "a watch that has lived for a second works");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_opened_in_a_loop() {
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
async fn an_expired_version_lists_again_and_tells_only_what_differs() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let (handler, mut told) = teller();
    let mut subscription = store.subscribe(handler);
    subscription.synced().await;
    told.take(2).await;
    stream.error(410, "Expired");
    let began = Instant::now();
    let call = rig.server.next().await;
    assert!(call.is_streamed_list() && began.elapsed().is_zero(), "{}", call.uri);
    let stream = call.stream();
    stream.event("ADDED", &object("b", "u2", 6));
    stream.event("ADDED", &object("c", "u3", 20));
    stream.end_of_initial_events(30);
    assert_eq!(told.take(2).await, ["+ c@20", "- a@5"]);
    stream.error(410, "Expired");
    let began = Instant::now();
    assert!(rig.server.next().await.is_streamed_list());
    between(0.8..1.2, began.elapsed());
    assert!(told.is_empty());
    assert_eq!(store.status().relists, 1);
}

#[tokio::test(start_paused = true)]
async fn an_own_delete_that_is_answered_before_a_list_that_was_asked_for_earlier_is_not_undone_by_it() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    stream.error(410, "Expired");
    let call = rig.server.next().await;
    assert!(call.is_streamed_list(), "{}", call.uri);
    // The server lists as of 11, and deletes at 12.
    let removal = Removal { request: &request("a"), uid: &"u1".into(), version: None, shown: &[] };
    store.core().removed(&removal, Writer::default());
    let stream = call.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.event("ADDED", &object("b", "u2", 11));
    assert_eq!(told.take(3).await, ["+ a@5 initial", "- a@5 own", "+ b@11"]);
    assert!(store.get(&request("a")).unwrap().is_none());
    stream.end_of_initial_events(11);
    stream.event("DELETED", &object("a", "u1", 12));
    stream.event("ADDED", &object("a", "u3", 13));
    assert_eq!(told.next().await, "+ a@13");
}

#[tokio::test(start_paused = true)]
async fn a_list_tells_an_object_gone_whose_successor_cannot_be_read() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    stream.error(410, "Expired");
    let stream = rig.server.next().await.stream();
    for (name, uid) in [("a", "u9"), ("b", "u2")] {
        let mut unreadable = object(name, uid, 20);
        unreadable["metadata"]["labels"] = 7.into();
        stream.event("ADDED", &unreadable);
    }
    stream.end_of_initial_events(30);
    stream.event("ADDED", &object("c", "u3", 31));
    assert_eq!(told.take(4).await, ["+ a@5 initial", "+ b@6 initial", "- a@5", "+ c@31"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_paged_and_that_is_remembered() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    rig.server.next().await.refuse(422, "Invalid");
    let call = rig.server.next().await;
    assert!(call.is_page() && call.uri.ends_with("?limit=500"), "{}", call.uri);
    call.page(10, "more/1", &[object("a", "u1", 5)]);
    let call = rig.server.next().await;
    assert!(call.uri.ends_with("?limit=500&continue=more%2F1"), "{}", call.uri);
    assert!(!store.is_synced());
    call.page(10, "", &[object("b", "u2", 6)]);
    let call = rig.server.next().await;
    assert!(call.is_watch_at(10), "{}", call.uri);
    assert_eq!(store.list(&Select::all()).unwrap().len(), 2);
    call.stream().error(410, "Expired");
    let call = rig.server.next().await;
    assert!(call.is_page(), "{}", call.uri);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_question_is_paged_after_its_silence() {
    let mut rig = Rig::start(never_resync());
    let _store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    let began = Instant::now();
    assert!(rig.server.next().await.is_page());
    between(15.0..15.1, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn streams_that_never_end_their_initial_events_give_way_to_pages() {
    let mut rig = Rig::start(never_resync());
    let _store = rig.config_maps();
    for _ in 0..3 {
        let call = rig.server.next().await;
        assert!(call.is_streamed_list(), "{}", call.uri);
        drop(call.stream());
    }
    assert!(rig.server.next().await.is_page());
}

#[tokio::test(start_paused = true)]
async fn pages_that_expire_while_they_are_read_give_way_to_one_answer() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    rig.server.next().await.refuse(400, "BadRequest");
    rig.server.next().await.page(10, "more", &[object("a", "u1", 5)]);
    rig.server.next().await.refuse(410, "Expired");
    let call = rig.server.next().await;
    assert!(call.uri.ends_with("?limit=0"), "{}", call.uri);
    call.page(20, "", &[object("b", "u2", 6)]);
    assert!(rig.server.next().await.is_watch_at(20));
    let names: Vec<String> =
        store.list(&Select::all()).unwrap().iter().map(|v| v.request().to_string()).collect();
    assert_eq!(names, ["shop/b"], "what the first attempt brought and the second had not is gone");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_outlives_its_own_end_in_silence_is_given_up() {
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
    assert_eq!(store.status().down_since, None, "silent is not down");
    assert!(rig.server.next().await.is_watch_at(10));
    // The first wait of the backoff comes on top.
    between(seconds + 5.0..seconds + 6.3, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_costs_itself_alone() {
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
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    assert_eq!(told.next().await, "+ a@5 initial");
    stream.send("{\"type\":\"ADDED\",\"obj\n\0\n{}\n");
    stream.event("EXPLODED", &object("b", "u2", 11));
    stream.event("MODIFIED", &large);
    stream.event(
        "MODIFIED",
        &serde_json::json!({"kind": "Secret", "metadata": object("a", "u1", 12)["metadata"]}),
    );
    stream.event("MODIFIED", &object("a", "u1", 14));
    assert_eq!(told.next().await, "a@5 -> a@14");
    let status = store.status();
    assert_eq!((status.objects, status.decode_errors), (1, 8));
    assert_eq!(status.relists, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_of_several_namespaces_syncs_when_all_have() {
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
async fn a_deletion_that_cannot_be_told_is_found_by_a_list_at_once() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    told.take(2).await;
    stream.error(500, "StoreReadError");
    let began = Instant::now();
    let call = rig.server.next().await;
    assert!(call.is_streamed_list() && began.elapsed().is_zero(), "{}", call.uri);
    let stream = call.stream();
    stream.event("ADDED", &object("b", "u2", 6));
    stream.end_of_initial_events(12);
    assert_eq!(told.next().await, "- a@5");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_set_back_is_listed_again() {
    let (mut rig, _store, stream) = Rig::synced(&[]).await;
    let ahead = r#"{"kind":"Status","code":504,"reason":"Timeout","message":"Too large resource version: 10, current: 4"}"#;
    stream.send(&format!("{{\"type\":\"ERROR\",\"object\":{ahead}}}\n"));
    assert!(rig.server.next().await.is_streamed_list());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_only_repeats_itself_is_no_progress() {
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
async fn a_bookmark_without_a_version_moves_nothing() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    stream.event("BOOKMARK", &serde_json::json!({"metadata": {"resourceVersion": ""}}));
    stream.event("BOOKMARK", &serde_json::json!({"metadata": {}}));
    tokio::task::yield_now().await;
    stream.reset();
    assert!(rig.server.next().await.is_watch_at(10));
    assert_eq!(store.status().decode_errors, 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_on_without_an_end_mark_is_paged_once_the_stream_is_overdue() {
    let mut rig = Rig::start(never_resync());
    let _store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    let began = Instant::now();
    let busy = async {
        for version in 1.. {
            stream.event("ADDED", &object("a", "u1", version));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    // The server never stops by itself.
    let call = tokio::select! {
        () = busy => unreachable!(),
        call = rig.server.next() => call,
    };
    assert!(call.is_page(), "{}", call.uri);
    between(245.0..307.0, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_changed_and_a_deleted_object_within_the_initial_events_are_as_the_server_has_them() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    for (name, uid, version) in [("a", "u1", 5), ("b", "u2", 6), ("c", "u3", 7)] {
        stream.event("ADDED", &object(name, uid, version));
    }
    stream.event("MODIFIED", &object("a", "u1", 8));
    stream.event("DELETED", &object("b", "u2", 9));
    stream.end_of_initial_events(9);
    store.settled().await;
    let mut there: Vec<String> =
        store.list(&Select::all()).unwrap().iter().map(|view| format!("{view:?}")).collect();
    there.sort();
    assert_eq!(there, ["ConfigMap shop/a@8", "ConfigMap shop/c@7"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_run_of_the_cache_starts_nothing_twice() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (cache, stop) = (rig.cache.clone(), rig.stop.clone());
    rig.tasks.spawn(async move { cache.run(stop).await });
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    stream.event("MODIFIED", &object("a", "u1", 11));
    assert_eq!(told.take(2).await, ["+ a@5 initial", "a@5 -> a@11"]);
    let asked = tokio::time::timeout(Duration::from_secs(10), rig.server.next()).await;
    assert!(asked.is_err(), "nothing is listed or watched twice");
    assert!(told.is_empty(), "nor told");
}
