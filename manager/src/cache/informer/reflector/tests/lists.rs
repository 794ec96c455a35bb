//! Lists, streamed and by pages, and how the store applies them.

use std::time::Duration;

use tokio::time::Instant;

use super::{between, never_resync};
use crate::cache::Select;
use crate::cache::store::Removal;
use crate::cache::tests::fixtures::{Rig, object, recorder, request};
use crate::client::Writer;

#[tokio::test(start_paused = true)]
async fn the_list_is_streamed_and_the_watch_continues_on_the_same_connection() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    let (handler, mut deltas) = recorder();
    let mut subscription = store.subscribe(handler);
    let call = rig.server.next().await;
    assert!(call.is_streamed_list(), "{}", call.uri);
    assert!(call.has("/api/v1/configmaps?") && call.has("resourceVersionMatch=NotOlderThan"), "{}", call.uri);
    let stream = call.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.event("ADDED", &object("b", "u2", 6));
    assert_eq!(deltas.take(2).await, ["+ a@5 initial", "+ b@6 initial"]);
    assert!(!store.is_synced() && !subscription.is_synced());
    assert!(store.get(&request("a")).is_err(), "reads fail until the list is complete");
    stream.end_of_initial_events(10);
    subscription.synced().await;
    stream.event("MODIFIED", &object("a", "u1", 11));
    stream.event("DELETED", &object("b", "u2", 12));
    assert_eq!(deltas.take(2).await, ["a@5 -> a@11", "- b@6"]);
    let status = store.status();
    assert_eq!((status.objects, status.relists, status.restarts, status.down_since), (1, 0, 0, None));
}

#[tokio::test(start_paused = true)]
async fn changes_and_deletions_among_the_initial_events_are_applied() {
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
async fn streamed_lists_without_an_end_mark_are_replaced_by_pages() {
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
async fn initial_events_without_an_end_mark_are_replaced_by_pages_at_the_timeout() {
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
    // `busy` never ends.
    let call = tokio::select! {
        () = busy => unreachable!(),
        call = rig.server.next() => call,
    };
    assert!(call.is_page(), "{}", call.uri);
    between(245.0..307.0, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_send_initial_events_is_listed_by_pages_after_a_timeout() {
    let mut rig = Rig::start(never_resync());
    let _store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    let began = Instant::now();
    assert!(rig.server.next().await.is_page());
    between(15.0..15.1, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_stream_is_listed_by_pages_from_then_on() {
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
async fn pages_that_expire_while_they_are_read_are_replaced_by_one_response() {
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
    assert_eq!(names, ["shop/b"], "the second attempt removes objects that only the first had");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_list_and_only_differences_are_delivered() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let (handler, mut deltas) = recorder();
    let mut subscription = store.subscribe(handler);
    subscription.synced().await;
    deltas.take(2).await;
    stream.error(410, "Expired");
    let began = Instant::now();
    let call = rig.server.next().await;
    assert!(call.is_streamed_list() && began.elapsed().is_zero(), "{}", call.uri);
    let stream = call.stream();
    stream.event("ADDED", &object("b", "u2", 6));
    stream.event("ADDED", &object("c", "u3", 20));
    stream.end_of_initial_events(30);
    assert_eq!(deltas.take(2).await, ["+ c@20", "- a@5"]);
    stream.error(410, "Expired");
    let began = Instant::now();
    assert!(rig.server.next().await.is_streamed_list());
    between(0.8..1.2, began.elapsed());
    assert!(deltas.is_empty());
    assert_eq!(store.status().relists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_requested_before_an_own_delete_does_not_restore_the_object() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    stream.error(410, "Expired");
    let call = rig.server.next().await;
    assert!(call.is_streamed_list(), "{}", call.uri);
    // The server lists at version 11 and deletes at 12.
    let removal = Removal { request: &request("a"), uid: &"u1".into(), version: None, shown: &[] };
    store.core().removed(&removal, Writer::default());
    let stream = call.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.event("ADDED", &object("b", "u2", 11));
    assert_eq!(deltas.take(3).await, ["+ a@5 initial", "- a@5 own", "+ b@11"]);
    assert!(store.get(&request("a")).unwrap().is_none());
    stream.end_of_initial_events(11);
    stream.event("DELETED", &object("a", "u1", 12));
    stream.event("ADDED", &object("a", "u3", 13));
    assert_eq!(deltas.next().await, "+ a@13");
}

#[tokio::test(start_paused = true)]
async fn an_object_with_an_unreadable_successor_is_deleted_by_a_list() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let (handler, mut deltas) = recorder();
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
    assert_eq!(deltas.take(4).await, ["+ a@5 initial", "+ b@6 initial", "- a@5", "+ c@31"]);
}
