//! What no server should send: it is counted and named once, costs itself alone, and never more memory than allowed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cache::tests::fixtures::server::Stream;
use crate::cache::tests::fixtures::{Rig, object, request, teller};
use crate::cache::{CacheSettings, KindStore, ResourceVersion, Select};

/// Longest object of these tests, in bytes.
const LIMIT: usize = 2000;

async fn synced(objects: &[Value]) -> (Rig, Arc<KindStore>, Stream) {
    let settings =
        CacheSettings { max_frame_bytes: LIMIT, resync: Duration::ZERO, ..CacheSettings::default() };
    Rig::synced_with(settings, objects).await
}

/// An object over the limit, its members in the order in which servers write them.
fn large(name: &str, uid: &str, version: u64) -> String {
    let metadata = &object(name, uid, version)["metadata"];
    format!(r#"{{"kind":"ConfigMap","metadata":{metadata},"data":{{"x":"{}"}}}}"#, "x".repeat(2 * LIMIT))
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// A line with an object that breaks off behind its metadata.
fn broken_off(kind: &str, object: &Value) -> String {
    let metadata = &object["metadata"];
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":{},\"namespace\":\"shop\",\"uid\":{},\
         \"resourceVersion\":{}}},\"data\":{{\"a\n",
        metadata["name"], metadata["uid"], metadata["resourceVersion"]
    )
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_nonsense_is_counted_and_the_next_event_is_taken() {
    let other_kind = |kind: &str| {
        let mut lie = object("a", "u1", 20);
        lie["kind"] = "Secret".into();
        format!("{}\n", json!({"type": kind, "object": lie}))
    };
    let twice = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"20"},"metadata":{}}}"#;
    for (case, line) in [
        ("truncated", broken_off("MODIFIED", &object("a", "u1", 20))),
        ("no JSON at all", "<html>gateway</html>\n".to_owned()),
        ("NUL bytes", "\0\0\0\0\n".to_owned()),
        ("a NUL within", "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\0\"}}}\n".to_owned()),
        ("no UTF-8", "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"\\udc00\"}}}\n".to_owned()),
        ("a member twice", format!("{twice}\n")),
        ("another kind", other_kind("MODIFIED")),
        ("another kind that goes", other_kind("DELETED")),
        ("an unknown type", format!("{}\n", json!({"type": "EXPLODED", "object": object("a", "u1", 20)}))),
        ("no object", "{\"type\":\"MODIFIED\"}\n".to_owned()),
        ("an object without a name", "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{}}}\n".to_owned()),
        ("a list for an object", "{\"type\":\"ADDED\",\"object\":[]}\n".to_owned()),
        ("nested without end", format!("{{\"type\":\"ADDED\",\"object\":{}\n", "[".repeat(1000))),
        ("too long", event("MODIFIED", &large("a", "u1", 20))),
    ] {
        let (_rig, store, stream) = synced(&[object("a", "u1", 5)]).await;
        let (handler, mut told) = teller();
        let _subscription = store.subscribe(handler);
        stream.send(&line);
        stream.event("MODIFIED", &object("a", "u1", 30));
        assert_eq!(told.take(2).await, ["+ a@5 initial", "a@5 -> a@30"], "{case}");
        let status = store.status();
        assert_eq!((status.decode_errors, status.relists, status.objects), (1, 0, 1), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_not_missed_because_the_rest_of_the_object_cannot_be_read() {
    for line in [
        broken_off("DELETED", &object("a", "u1", 20)),
        event("DELETED", &large("a", "u1", 20)),
        // Its beginning is enough.
        format!(
            "{}\n",
            broken_off("DELETED", &object("a", "u1", 20)).trim_end().to_owned() + &"x".repeat(2 * LIMIT)
        ),
    ] {
        let (_rig, store, stream) = synced(&[object("a", "u1", 5)]).await;
        let (handler, mut told) = teller();
        let _subscription = store.subscribe(handler);
        stream.send(&line);
        assert_eq!(told.take(2).await, ["+ a@5 initial", "- a@5"], "{line}");
        assert_eq!(store.status().decode_errors, 1);
    }
    let (_rig, store, stream) = synced(&[object("a", "u2", 30)]).await;
    stream.send(&broken_off("DELETED", &object("a", "u1", 20)));
    stream.event("MODIFIED", &object("b", "u3", 31));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(store.get(&request("a")).unwrap().is_some(), "it was deleted before what is stored was made");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_any_more_is_not_taken_for_gone_by_a_list() {
    let (mut rig, store, stream) =
        synced(&[object("a", "u1", 5), object("b", "u2", 6), object("c", "u3", 7)]).await;
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    told.take(3).await;
    stream.error(410, "Expired");
    let stream = rig.server.next().await.stream();
    stream.send(&broken_off("ADDED", &object("a", "u1", 20)));
    stream.send(&event("ADDED", &large("b", "u2", 21)));
    stream.end_of_initial_events(30);
    assert_eq!(told.next().await, "- c@7");
    tokio::time::sleep(Duration::from_secs(1)).await;
    stream.error(410, "Expired");
    rig.server.next().await.refuse(422, "Invalid");
    let items = format!("{},{}", large("a", "u1", 20), object("d", "u4", 33));
    let page =
        format!(r#"{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"40"}},"items":[{items}]}}"#);
    rig.server.next().await.answer(200, &[], &page);
    let mut lines = told.take(2).await;
    lines.sort();
    assert_eq!(lines, ["+ d@33", "- b@6"]);
    assert_eq!(store.list(&Select::all()).unwrap().len(), 2);
    assert!(told.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_served_as_it_was_is_named_until_it_can_be_taken_again() {
    let (mut rig, store, stream) = synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let left_out = || store.status().left_out.into_keys().collect::<Vec<_>>();
    stream.send(&event("MODIFIED", &large("a", "u1", 20)));
    stream.send(&event("MODIFIED", &large("b", "u2", 21)));
    stream.bookmark(30);
    store.caught_up(&request("c"), &ResourceVersion::new("30")).await.unwrap();
    assert_eq!(left_out(), ["shop/a", "shop/b"]);
    let version = store.get(&request("a")).unwrap().unwrap().meta().resource_version.to_string();
    assert_eq!(version, "5", "the last that could be taken");
    stream.event("MODIFIED", &object("b", "u2", 31));
    stream.error(410, "Expired");
    let stream = rig.server.next().await.stream();
    stream.send(&event("ADDED", &large("a", "u1", 20)));
    stream.event("ADDED", &object("b", "u2", 31));
    stream.end_of_initial_events(40);
    store.caught_up(&request("c"), &ResourceVersion::new("40")).await.unwrap();
    assert_eq!(left_out(), ["shop/a"]);
    stream.send(&event("DELETED", &large("a", "u1", 41)));
    stream.bookmark(50);
    store.caught_up(&request("c"), &ResourceVersion::new("50")).await.unwrap();
    assert_eq!(left_out(), [""; 0], "it is gone");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_list_does_not_empty_the_store() {
    let (mut rig, store, stream) = synced(&[object("a", "u1", 5)]).await;
    stream.error(410, "Expired");
    rig.server.next().await.refuse(422, "Invalid");
    for body in [
        r#"{"kind":"Table","metadata":{"resourceVersion":"20"},"rows":[]}"#,
        r#"{"kind":"Status","metadata":{},"status":"Success"}"#,
        r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"20"},"items":[{"metadata""#,
        "<html>gateway</html>",
    ] {
        let call = rig.server.next().await;
        assert!(call.is_page(), "{}", call.uri);
        call.answer(200, &[], body);
    }
    assert!(rig.server.next().await.is_page(), "asked again");
    assert!(store.get(&request("a")).unwrap().is_some());
    let error = store.status().last_error.unwrap();
    assert!(error.starts_with("the list cannot be read: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_the_same_for_every_way_in_and_itself_allowed() {
    let exact = object("a", "u1", 11).to_string();
    let settings =
        CacheSettings { max_frame_bytes: exact.len(), resync: Duration::ZERO, ..CacheSettings::default() };
    // The second in an order in which no server writes.
    let backwards = format!("{{\"object\":{exact},\"type\":\"MODIFIED\"}}\n");
    for line in [event("MODIFIED", &exact), backwards] {
        let (_rig, store, stream) = Rig::synced_with(settings.clone(), &[object("a", "u1", 5)]).await;
        let version = || store.get(&request("a")).unwrap().unwrap().meta().resource_version.to_string();
        stream.send(&line);
        store.caught_up(&request("a"), &ResourceVersion::new("11")).await.unwrap();
        assert_eq!(version(), "11", "{line}");
        stream.send(&event("MODIFIED", &object("a", "u1", 123).to_string()));
        stream.bookmark(200);
        store.caught_up(&request("b"), &ResourceVersion::new("200")).await.unwrap();
        assert_eq!((version(), store.status().decode_errors), ("11".to_owned(), 1), "one that is longer");
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_megabytes_without_a_line_end_are_dropped_as_they_come() {
    let (_rig, store, stream) = synced(&[object("a", "u1", 5)]).await;
    let (handler, mut told) = teller();
    let _subscription = store.subscribe(handler);
    stream.send("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"huge\"},\"data\":{\"x\":\"");
    let piece = "x".repeat(1 << 20);
    for _ in 0..200 {
        stream.send(&piece);
        // Taken before the next comes, so that the test does not hold it either.
        tokio::task::yield_now().await;
    }
    stream.send("\"}}}\n");
    stream.event("MODIFIED", &object("a", "u1", 30));
    assert_eq!(told.take(2).await, ["+ a@5 initial", "a@5 -> a@30"]);
    assert_eq!(store.status().decode_errors, 1);
}
