use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::Role;
use crate::client::testserver::{Answer, TestServer};
use crate::metrics::Format;

const LONG: Duration = Duration::from_hours(1);

/// A recorder whose writer runs on this runtime.
struct Running {
    recorder: Recorder,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    fn start(server: &TestServer, flush: Duration) -> Self {
        let clock = Arc::new(|| Timestamp::from_microsecond(1_700_000_000_123_456).unwrap());
        let client = server.client(Role::Watches);
        let (recorder, writer) =
            Recorder::with_clock("mainstay.dev/test", "replica-1", client, &server.registry, clock);
        let stop = CancellationToken::new();
        let tasks = JoinSet::from_iter([writer.run(stop.clone(), flush)]);
        Self { recorder, stop, tasks }
    }

    async fn flushed(&mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

fn web() -> ObjectReference {
    ObjectReference {
        api_version: Some("apps/v1".to_owned()),
        kind: Some("Deployment".to_owned()),
        namespace: Some("shop".to_owned()),
        name: Some("web".to_owned()),
        uid: Some("u".to_owned()),
        resource_version: Some("12".to_owned()),
        field_path: None,
    }
}

fn record(recorder: &Recorder, reason: &str) {
    recorder.event(&web(), EventType::Warning, reason, "Probe", "db:5432 does not answer");
}

fn outcomes(registry: &Registry) -> String {
    let text = registry.encode(Format::Text).unwrap();
    let mut lines: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("mainstay_events_total")).collect();
    lines.sort_unstable();
    lines.join(" ")
}

#[tokio::test]
async fn an_event_arrives_in_the_form_of_the_api() {
    let mut server = TestServer::start([Answer::Say(201, "{}".to_owned())]).await;
    let running = Running::start(&server, LONG);
    record(&running.recorder, "Waiting");
    let arrived = server.arrival().await;
    assert_eq!(
        (arrived.method.as_str(), arrived.uri.path()),
        ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events")
    );
    let mut body: Value = serde_json::from_slice(&arrived.body).unwrap();
    let name = body["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("web.17"), "{name}");
    assert_eq!(
        body,
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": null, "namespace": "shop"},
            "eventTime": "2023-11-14T22:13:20.123456Z",
            "type": "Warning",
            "reason": "Waiting",
            "action": "Probe",
            "note": "db:5432 does not answer",
            "regarding": {
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u",
            },
            "reportingController": "mainstay.dev/test",
            "reportingInstance": "replica-1",
        })
    );
}

#[tokio::test]
async fn a_flush_writes_counts_that_still_wait_and_ends_the_recorder() {
    let mut server = TestServer::start([Answer::ok("{}"), Answer::ok("{}")]).await;
    let mut running = Running::start(&server, LONG);
    let recorder = running.recorder.clone();
    record(&recorder, "Waiting");
    let name =
        serde_json::from_slice::<Value>(&server.arrival().await.body).unwrap()["metadata"]["name"].take();
    record(&recorder, "Waiting");
    record(&recorder, "Waiting");
    running.flushed().await;

    let update = server.arrival().await;
    let path = format!("/apis/events.k8s.io/v1/namespaces/shop/events/{}", name.as_str().unwrap());
    assert_eq!((update.method.as_str(), update.uri.path()), ("PATCH", path.as_str()));
    assert_eq!(update.headers["content-type"], "application/merge-patch+json");
    assert_eq!(
        serde_json::from_slice::<Value>(&update.body).unwrap(),
        json!({"series": {"count": 3, "lastObservedTime": "2023-11-14T22:13:20.123456Z"}})
    );
    record(&recorder.clone(), "TooLate");
    assert_eq!(
        outcomes(&server.registry),
        "{outcome=\"dropped\"} 1 {outcome=\"new\"} 1 {outcome=\"repeated\"} 2"
    );
}

#[tokio::test]
async fn a_busy_server_is_asked_again_and_a_refusal_is_final() {
    let mut server = TestServer::start([
        Answer::failure(500, "InternalError", ""),
        Answer::With(429, "retry-after", "0", String::new()),
        Answer::ok("{}"),
        Answer::failure(403, "Forbidden", "namespace is being terminated"),
    ])
    .await;
    let mut running = Running::start(&server, LONG);
    let recorder = running.recorder.clone();
    record(&recorder, "Waiting");
    for _ in 0..3 {
        server.arrival().await;
    }
    record(&recorder, "Other");
    server.arrival().await;
    running.flushed().await;
    assert!(server.nothing_arrived());
    assert_eq!(outcomes(&server.registry), "{outcome=\"failed\"} 1 {outcome=\"new\"} 2");
}

#[tokio::test]
async fn a_flush_ends_at_its_limit() {
    let never = Arc::new(tokio::sync::Notify::new());
    let mut server = TestServer::start([Answer::Hold(never, 200, String::new())]).await;
    let mut running = Running::start(&server, Duration::from_millis(20));
    record(&running.recorder, "Waiting");
    server.arrival().await;
    running.flushed().await;
}

#[tokio::test]
async fn a_full_channel_drops_and_never_waits() {
    let server = TestServer::start([]).await;
    let running = Running::start(&server, LONG);
    let recorder = running.recorder.clone();
    // Nothing is awaited, so the writer does not run on this runtime of one thread.
    for _ in 0..CHANNEL + 5 {
        record(&recorder, "Waiting");
    }
    assert_eq!(outcomes(&server.registry), "{outcome=\"dropped\"} 5");
}

#[tokio::test]
async fn long_texts_are_cut_at_a_character() {
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let running = Running::start(&server, LONG);
    let recorder = running.recorder.for_controller("mainstay.dev/other");
    recorder.event(&web(), EventType::Normal, &"r".repeat(200), "Act", &"é".repeat(600));
    let body: Value = serde_json::from_slice(&server.arrival().await.body).unwrap();
    assert_eq!(body["reason"].as_str().unwrap().len(), 128);
    assert_eq!(body["note"].as_str().unwrap(), "é".repeat(512));
    assert_eq!(body["reportingController"], "mainstay.dev/other");
}
