//! Tests of watches: initial events, transitions, bookmarks and ends.

use std::time::Duration;

use super::*;

fn watch() -> Request {
    Request::new(Verb::Watch, maps())
}

#[tokio::test]
async fn a_watch_without_revision_starts_with_the_current_state_and_marks_its_end() {
    let server = Server::start().await;
    for name in ["b", "a"] {
        server.create(maps(), map(name)).await;
    }
    let mut plain = server.watch(watch()).await.unwrap();
    assert_eq!(shown(&plain.next().await.unwrap()), ["ADDED a", "ADDED b"]);
    let mut marked = server.watch(watch().with("allowWatchBookmarks", "true")).await.unwrap();
    let events = marked.next().await.unwrap();
    assert_eq!(shown(&events), ["ADDED a", "ADDED b", "BOOKMARK "]);
    let end = json!({
        "type": "BOOKMARK",
        "object": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "annotations": {"k8s.io/initial-events-end": "true"},
                "resourceVersion": server.api.store().revision().to_string(),
            },
        },
    });
    assert_eq!(serde_json::from_slice::<Value>(&events[2].frame()).unwrap(), end);
    server.create(maps(), map("c")).await;
    assert_eq!(shown(&plain.next().await.unwrap()), ["ADDED c"]);
}

#[tokio::test]
async fn events_follow_a_revision_in_the_order_of_the_writes() {
    let server = Server::start().await;
    let first = server.create(maps(), map("m")).await;
    server.merge(maps().name("m"), json!({"data": {"k": "w"}})).await.unwrap();
    server.object(Request::new(Verb::Delete, maps().name("m"))).await;
    let from = revision_of(&first).to_string();
    let mut watch = server.watch(watch().with("resourceVersion", from)).await.unwrap();
    let events = watch.next().await.unwrap();
    assert_eq!(shown(&events), ["MODIFIED m", "DELETED m"]);
    let WatchEvent::Object(_, last) = &events[1] else { panic!("an object") };
    assert_eq!(revision_of(last.value()), server.api.store().revision(), "the revision of the deletion");
    assert_eq!(last.value()["data"]["k"], "w", "the last stored state");
}

#[tokio::test]
async fn objects_enter_and_leave_a_selector() {
    let server = Server::start().await;
    let mut watch = server.watch(watch().with("labelSelector", "on")).await.unwrap();
    server.create(maps(), map("m")).await;
    for labels in [json!({"on": ""}), json!({"on": "1"}), json!({"on": null}), json!({"x": "y"})] {
        server.merge(maps().name("m"), json!({"metadata": {"labels": labels}})).await.unwrap();
    }
    server.object(Request::new(Verb::Delete, maps().name("m"))).await;
    let events = watch.next().await.unwrap();
    assert_eq!(shown(&events), ["ADDED m", "MODIFIED m", "DELETED m"]);
    let WatchEvent::Object(_, left) = &events[2] else { panic!("an object") };
    assert_eq!(left.value()["metadata"]["labels"]["on"], "1", "the object as it was");
}

#[tokio::test]
async fn a_watch_sees_only_its_namespace() {
    let server = Server::start().await;
    let mut watch = server
        .watch(watch().with("sendInitialEvents", "false").with("resourceVersionMatch", "NotOlderThan"))
        .await
        .unwrap();
    server.create(maps().namespace("kube-system"), map("other")).await;
    server.create(maps(), map("m")).await;
    assert_eq!(shown(&watch.next().await.unwrap()), ["ADDED m"]);
}

#[tokio::test]
async fn an_old_revision_ends_a_watch_with_an_error_event() {
    let server = Server::start().await;
    server.create(maps(), map("m")).await;
    server.api.store().compact();
    let current = server.api.store().revision();
    let mut watch = server.watch(watch().with("resourceVersion", "2")).await.unwrap();
    let events = watch.next().await.unwrap();
    let WatchEvent::Error(status) = &events[0] else { panic!("an error") };
    let text = format!("too old resource version: 2 ({current})");
    assert_eq!((status.code(), status.reason(), status.message()), (410, "Expired", text.as_str()));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn refused_watches_have_the_texts_of_the_server() {
    let server = Server::start().await;
    let invalid = |text: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {text}");
    let cases = [
        (
            vec![("sendInitialEvents", "true")],
            422,
            invalid(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                 NotOlderThan",
            ),
        ),
        (
            vec![("resourceVersionMatch", "NotOlderThan"), ("resourceVersion", "1")],
            422,
            invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
                 sendInitialEvents is provided",
            ),
        ),
        (
            vec![("resourceVersion", "x")],
            500,
            "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax"
                .to_owned(),
        ),
    ];
    for (options, code, message) in cases {
        let request = options.iter().fold(watch(), |request, (option, value)| request.with(option, *value));
        let status = server.watch(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, message.as_str()), "{options:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_is_sent_only_after_a_newer_write() {
    let server = Server::start().await;
    let request = watch().with("allowWatchBookmarks", "true").with("timeoutSeconds", "130");
    let mut watch = server.watch(request).await.unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(shown(&watch.next().await.unwrap()), ["BOOKMARK "], "the end of the initial events");
    server.create(maps().namespace("kube-system"), map("other")).await;
    assert_eq!(shown(&watch.next().await.unwrap()), ["BOOKMARK "]);
    assert_eq!(start.elapsed().as_secs(), 60);
    assert!(watch.next().await.is_none(), "nothing new until the end");
    assert_eq!(start.elapsed().as_secs(), 130);
}

#[tokio::test(start_paused = true)]
async fn steady_changes_do_not_delay_the_end_of_a_watch() {
    let server = Server::start().await;
    server.create(maps(), map("m")).await;
    let mut watch = server.watch(watch().with("timeoutSeconds", "3")).await.unwrap();
    for second in 0..4 {
        server.merge(maps().name("m"), json!({"data": {"k": second.to_string()}})).await.unwrap();
        assert!(watch.next().await.is_some(), "the changes of second {second}");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    server.merge(maps().name("m"), json!({"data": {"k": "last"}})).await.unwrap();
    let last = watch.next().await;
    assert!(last.is_none() || watch.next().await.is_none(), "ended");
}
