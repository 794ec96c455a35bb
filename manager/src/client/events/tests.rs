use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::instrument::WithSubscriber as _;

use super::*;
use crate::client::Role;
use crate::client::tests::server::{Answer, TestServer, logged};
use crate::metrics::Format;

const LONG: Duration = Duration::from_hours(1);

/// A recorder with a running writer.
struct Running {
    recorder: Recorder,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    fn start(server: &TestServer, flush: Duration) -> Self {
        let client = server.client(Role::Watches);
        let (recorder, writer) = Recorder::new("mainstay.dev/test", "replica-1", client, &server.registry);
        let stop = CancellationToken::new();
        let tasks = JoinSet::from_iter([writer.run(stop.clone(), flush).with_current_subscriber()]);
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
    let mut server = TestServer::start([Answer::Reply(201, "{}".to_owned())]).await;
    let running = Running::start(&server, LONG);
    record(&running.recorder, "Waiting");
    let arrived = server.arrival().await;
    assert_eq!(
        (arrived.method.as_str(), arrived.uri.path()),
        ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events")
    );
    let mut body: Value = serde_json::from_slice(&arrived.body).unwrap();
    let name = body["metadata"]["name"].take();
    let began: Timestamp = body["eventTime"].take().as_str().unwrap().parse().unwrap();
    let since = Timestamp::now().duration_since(began);
    assert!((0..60).contains(&since.as_secs()), "{began}");
    // The name has nanoseconds, which `eventTime` lacks, and four random digits.
    let name = name.as_str().unwrap().strip_prefix("web.").unwrap();
    let nanos = i128::from_str_radix(&name[..name.len() - 4], 16).unwrap();
    assert_eq!(nanos / 1000, began.as_nanosecond() / 1000);
    assert_eq!(
        body,
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": null, "namespace": "shop"},
            "eventTime": null,
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
async fn a_flush_writes_waiting_counts_and_closes_the_recorder() {
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
    let mut update: Value = serde_json::from_slice(&update.body).unwrap();
    let last: Timestamp = update["series"]["lastObservedTime"].take().as_str().unwrap().parse().unwrap();
    assert!((0..60).contains(&Timestamp::now().duration_since(last).as_secs()), "{last}");
    assert_eq!(update, json!({"series": {"count": 3, "lastObservedTime": null}}));
    record(&recorder.clone(), "TooLate");
    assert_eq!(
        outcomes(&server.registry),
        "{outcome=\"new\"} 1 {outcome=\"repeated\"} 2 {outcome=\"stopped\"} 1"
    );
}

#[tokio::test]
async fn a_busy_server_is_retried_and_a_refusal_is_final() {
    let mut server = TestServer::start([
        Answer::failure(500, "InternalError", ""),
        Answer::ReplyWith(429, "retry-after", "0", String::new()),
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
    assert_eq!(outcomes(&server.registry), "{outcome=\"new\"} 2 {outcome=\"refused\"} 1");
}

#[tokio::test]
async fn a_flush_ends_at_its_limit() {
    let never = Arc::new(tokio::sync::Notify::new());
    let mut server = TestServer::start([Answer::Hold(never, 200, String::new())]).await;
    let mut running = Running::start(&server, Duration::from_millis(20));
    record(&running.recorder, "Waiting");
    server.arrival().await;
    running.flushed().await;
    assert_eq!(outcomes(&server.registry), "{outcome=\"late\"} 1 {outcome=\"new\"} 1");
}

#[tokio::test]
async fn recording_never_waits_and_repetitions_share_one_series() {
    let server = TestServer::start([]).await;
    let running = Running::start(&server, LONG);
    // The test awaits no future here, so the writer does not run on this single-threaded runtime.
    for _ in 0..100_000 {
        record(&running.recorder, "Waiting");
    }
    assert_eq!(outcomes(&server.registry), "{outcome=\"new\"} 1 {outcome=\"repeated\"} 99999");
}

#[tokio::test]
async fn the_writer_ends_when_every_recorder_is_dropped() {
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let Running { recorder, stop: _stop, mut tasks } = Running::start(&server, LONG);
    let other = recorder.for_controller("mainstay.dev/other");
    drop(recorder);
    record(&other, "Waiting");
    drop(other);
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(server.arrival().await.method, "POST");
}

#[tokio::test]
async fn lost_events_are_counted_and_logged_once() {
    let mut server =
        TestServer::start([Answer::failure(403, "Forbidden", "namespace is being terminated")]).await;
    // tracing caches whether a log line is enabled when a thread first reaches it, until the next subscriber
    // is set. This call reaches the line here, so that no test on another thread decides for this test.
    EventCounts::register(&Registry::new()).count_lost(cause::INVALID, 1, &"");
    let lines = logged(async {
        let mut running = Running::start(&server, LONG);
        record(&running.recorder, "Waiting");
        server.arrival().await;
        running.flushed().await;
        for _ in 0..3 {
            record(&running.recorder, "TooLate");
        }
    })
    .await;
    assert_eq!(
        outcomes(&server.registry),
        "{outcome=\"new\"} 1 {outcome=\"refused\"} 1 {outcome=\"stopped\"} 3"
    );
    let [refused, stopped] = &lines[..] else { panic!("{lines:?}") };
    assert!(
        refused.contains("Waiting on Deployment shop/web") && refused.contains("being terminated"),
        "{refused}"
    );
    assert!(stopped.contains("stopped") && stopped.contains("TooLate"), "{stopped}");
}

#[tokio::test]
async fn an_empty_reason_or_action_is_replaced_by_the_other() {
    let mut server = TestServer::start([Answer::ok("{}"), Answer::ok("{}")]).await;
    let running = Running::start(&server, LONG);
    for (reason, action) in [("Waiting", ""), ("", "Probe")] {
        running.recorder.event(&web(), EventType::Normal, reason, action, "");
        let body: Value = serde_json::from_slice(&server.arrival().await.body).unwrap();
        assert_eq!(body["reason"], body["action"]);
    }
    running.recorder.event(&web(), EventType::Normal, "", "", "no words");
    assert_eq!(outcomes(&server.registry), "{outcome=\"invalid\"} 1 {outcome=\"new\"} 2");
}

#[tokio::test]
async fn an_event_about_a_cluster_scoped_object_lives_in_default() {
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let running = Running::start(&server, LONG);
    let node =
        ObjectReference { kind: Some("Node".to_owned()), name: Some("n1".to_owned()), ..Default::default() };
    running.recorder.event_with_related(&node, &web(), EventType::Normal, "Drained", "Drain", "");
    let arrived = server.arrival().await;
    assert_eq!(arrived.uri.path(), "/apis/events.k8s.io/v1/namespaces/default/events");
    let body: Value = serde_json::from_slice(&arrived.body).unwrap();
    assert_eq!(body["metadata"]["namespace"], "default");
    assert_eq!(body["related"]["name"], "web");
    assert_eq!(body["related"]["resourceVersion"], Value::Null);
}

#[tokio::test]
async fn a_create_that_exists_already_is_an_earlier_attempt() {
    let mut server = TestServer::start([
        Answer::failure(500, "InternalError", ""),
        Answer::failure(409, "AlreadyExists", ""),
    ])
    .await;
    let mut running = Running::start(&server, LONG);
    record(&running.recorder, "Waiting");
    let [first, second] = [server.arrival().await, server.arrival().await];
    assert_eq!((second.method, first.body), (http::Method::POST, second.body));
    running.flushed().await;
    assert!(server.nothing_arrived());
    assert_eq!(outcomes(&server.registry), "{outcome=\"new\"} 1");
}

#[tokio::test]
async fn an_unreachable_server_is_retried() {
    let server = TestServer::start([]).await;
    let client = server.client(Role::Watches);
    drop(server);
    let mut table = SeriesTable::new();
    table.observe(Event::default(), Instant::now()).unwrap();
    let answer = writer::perform(&client, &table.take_due(Instant::now()).unwrap()).await;
    assert!(matches!(answer, series::WriteResult::Retry(None, _)), "{answer:?}");
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

#[test]
fn object_names_that_are_invalid_in_an_event_name_are_replaced() {
    let name_of = |name: &str| {
        let regarding = ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
        event_name(&regarding, Timestamp::from_second(1_700_000_000).unwrap())
    };
    for (name, stem) in [
        ("web-1", "web-1."),
        ("web.shop", "web.shop."),
        ("system:node", "event."),
        ("", "event."),
        ("Web", "event."),
        ("a..b", "event."),
        ("a-.b", "event."),
    ] {
        assert!(name_of(name).starts_with(stem), "{name}");
    }
    assert!(name_of(&"x".repeat(253)).len() < 253);
}
