//! Invalid input: it is counted, affects no other object, and never takes more memory than the limit.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cache::tests::fixtures::server::Stream;
use crate::cache::tests::fixtures::{Rig, object, recorder, request};
use crate::cache::{CacheSettings, ResourceVersion, Select, UntypedStore};

/// `max_frame_bytes` of these tests.
const LIMIT: usize = 2000;

async fn synced(objects: &[Value]) -> (Rig, Arc<UntypedStore>, Stream) {
    let settings =
        CacheSettings { max_frame_bytes: LIMIT, resync: Duration::ZERO, ..CacheSettings::default() };
    Rig::synced_with(settings, objects).await
}

/// An object over the limit, with its members in the order that API servers write.
fn large(name: &str, uid: &str, version: u64) -> String {
    let metadata = &object(name, uid, version)["metadata"];
    format!(r#"{{"kind":"ConfigMap","metadata":{metadata},"data":{{"x":"{}"}}}}"#, "x".repeat(2 * LIMIT))
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// A line with an object that breaks off after its metadata.
fn broken_off(kind: &str, object: &Value) -> String {
    let metadata = &object["metadata"];
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":{},\"namespace\":\"shop\",\"uid\":{},\
         \"resourceVersion\":{}}},\"data\":{{\"a\n",
        metadata["name"], metadata["uid"], metadata["resourceVersion"]
    )
}

#[tokio::test(start_paused = true)]
async fn each_invalid_event_is_counted_and_the_next_event_is_applied() {
    let other_kind = |kind: &str| {
        let mut secret = object("a", "u1", 20);
        secret["kind"] = "Secret".into();
        format!("{}\n", json!({"type": kind, "object": secret}))
    };
    let metadata = r#"{"name":"a","namespace":"shop","uid":"u1","resourceVersion":"20"}"#;
    let twice = format!(r#"{{"type":"MODIFIED","object":{{"metadata":{metadata},"metadata":{{}}}}}}"#);
    for (case, line) in [
        ("truncated", broken_off("MODIFIED", &object("a", "u1", 20))),
        ("no JSON at all", "<html>gateway</html>\n".to_owned()),
        ("NUL bytes", "\0\0\0\0\n".to_owned()),
        ("a NUL within", "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\0\"}}}\n".to_owned()),
        ("no UTF-8", "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"\\udc00\"}}}\n".to_owned()),
        ("a member twice", format!("{twice}\n")),
        ("another kind", other_kind("MODIFIED")),
        ("another kind, deleted", other_kind("DELETED")),
        ("an unknown type", format!("{}\n", json!({"type": "EXPLODED", "object": object("a", "u1", 20)}))),
        ("no object", "{\"type\":\"MODIFIED\"}\n".to_owned()),
        ("an object without a name", "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{}}}\n".to_owned()),
        ("a list for an object", "{\"type\":\"ADDED\",\"object\":[]}\n".to_owned()),
        ("nested without end", format!("{{\"type\":\"ADDED\",\"object\":{}\n", "[".repeat(1000))),
        ("too long", event("MODIFIED", &large("a", "u1", 20))),
    ] {
        let (_rig, store, stream) = synced(&[object("a", "u1", 5)]).await;
        let (handler, mut deltas) = recorder();
        let _subscription = store.subscribe(handler);
        stream.send(&line);
        stream.event("MODIFIED", &object("a", "u1", 30));
        assert_eq!(deltas.take(2).await, ["+ a@5 initial", "a@5 -> a@30"], "{case}");
        let status = store.status();
        assert_eq!((status.decode_errors, status.relists, status.objects), (1, 0, 1), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_applied_even_if_the_rest_of_the_object_cannot_be_read() {
    for line in [
        broken_off("DELETED", &object("a", "u1", 20)),
        event("DELETED", &large("a", "u1", 20)),
        // Over the limit: only the beginning is read.
        format!(
            "{}\n",
            broken_off("DELETED", &object("a", "u1", 20)).trim_end().to_owned() + &"x".repeat(2 * LIMIT)
        ),
    ] {
        let (_rig, store, stream) = synced(&[object("a", "u1", 5)]).await;
        let (handler, mut deltas) = recorder();
        let _subscription = store.subscribe(handler);
        stream.send(&line);
        assert_eq!(deltas.take(2).await, ["+ a@5 initial", "- a@5"], "{line}");
        assert_eq!(store.status().decode_errors, 1);
    }
    let (_rig, store, stream) = synced(&[object("a", "u2", 30)]).await;
    stream.send(&broken_off("DELETED", &object("a", "u1", 20)));
    stream.event("MODIFIED", &object("b", "u3", 31));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(store.get(&request("a")).unwrap().is_some(), "the deletion is older than the stored object");
}

#[tokio::test(start_paused = true)]
async fn a_list_does_not_delete_an_object_that_it_cannot_read() {
    let (mut rig, store, stream) =
        synced(&[object("a", "u1", 5), object("b", "u2", 6), object("c", "u3", 7)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    deltas.take(3).await;
    stream.error(410, "Expired");
    let stream = rig.server.next().await.stream();
    stream.send(&broken_off("ADDED", &object("a", "u1", 20)));
    stream.send(&event("ADDED", &large("b", "u2", 21)));
    stream.end_of_initial_events(30);
    assert_eq!(deltas.next().await, "- c@7");
    tokio::time::sleep(Duration::from_secs(1)).await;
    stream.error(410, "Expired");
    rig.server.next().await.refuse(422, "Invalid");
    let items = format!("{},{}", large("a", "u1", 20), object("d", "u4", 33));
    let page =
        format!(r#"{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"40"}},"items":[{items}]}}"#);
    rig.server.next().await.answer(200, &[], &page);
    let mut lines = deltas.take(2).await;
    lines.sort();
    assert_eq!(lines, ["+ d@33", "- b@6"]);
    assert_eq!(store.list(&Select::all()).unwrap().len(), 2);
    assert!(deltas.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_served_in_an_older_version_is_left_out_in_the_status_until_it_can_be_read() {
    let (mut rig, store, stream) = synced(&[object("a", "u1", 5), object("b", "u2", 6)]).await;
    let left_out = || store.status().left_out.into_keys().collect::<Vec<_>>();
    stream.send(&event("MODIFIED", &large("a", "u1", 20)));
    stream.send(&event("MODIFIED", &large("b", "u2", 21)));
    stream.bookmark(30);
    store.caught_up(&request("c"), &ResourceVersion::new("30")).await.unwrap();
    assert_eq!(left_out(), ["shop/a", "shop/b"]);
    let version = store.get(&request("a")).unwrap().unwrap().meta().resource_version.to_string();
    assert_eq!(version, "5", "the last version that could be read");
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
    assert_eq!(left_out(), [""; 0], "deleted");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_no_list_does_not_empty_the_store() {
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
    assert!(rig.server.next().await.is_page(), "listed again");
    assert!(store.get(&request("a")).unwrap().is_some());
    let error = store.status().last_error.unwrap();
    assert!(error.starts_with("the list cannot be read: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_exactly_the_limit_is_stored_in_any_member_order() {
    let exact = object("a", "u1", 11).to_string();
    let settings =
        CacheSettings { max_frame_bytes: exact.len(), resync: Duration::ZERO, ..CacheSettings::default() };
    // The second line has its members in an order that no API server writes.
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
        assert_eq!(
            (version(), store.status().decode_errors),
            ("11".to_owned(), 1),
            "a longer object is left out"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_megabytes_without_a_line_end_are_dropped_as_they_arrive() {
    let (_rig, store, stream) = synced(&[object("a", "u1", 5)]).await;
    let (handler, mut deltas) = recorder();
    let _subscription = store.subscribe(handler);
    stream.send("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"huge\"},\"data\":{\"x\":\"");
    let piece = "x".repeat(1 << 20);
    for _ in 0..200 {
        stream.send(&piece);
        // Read before the next is sent, so that the test does not buffer them either.
        tokio::task::yield_now().await;
    }
    stream.send("\"}}}\n");
    stream.event("MODIFIED", &object("a", "u1", 30));
    assert_eq!(deltas.take(2).await, ["+ a@5 initial", "a@5 -> a@30"]);
    assert_eq!(store.status().decode_errors, 1);
}
