//! Wrong answers of the server and edits of the Lease by hand: leadership and log lines.

use super::*;
use crate::client::tests::server::logged_by_all;
use tracing::Level;

/// An error page as a proxy sends it.
fn page(code: u16) -> Reply {
    let text =
        format!("<html>\n<body>\n<h1>{code}</h1>\n{}</body></html>", "<p>Try again later.</p>\n".repeat(100));
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn busy() -> Reply {
    let mut response = status(429, "TooManyRequests");
    response.headers_mut().insert("retry-after", "3600".parse().unwrap());
    response
}

fn changed(mut lease: Value, pointer: &str, value: Value) -> Reply {
    *lease.pointer_mut(pointer).expect("a field of the stored lease") = value;
    reply(200, &lease)
}

/// Makes an answer from the stored Lease.
type Wrong = fn(Value) -> Reply;

/// Wrong answers, and the text of the one log line about each.
const WRONG: [(Wrong, &str); 11] = [
    (|_| status(500, "InternalError"), "was refused: 500"),
    (|_| page(502), "was refused: 502 <html> <body> <h1>502</h1>"),
    (|_| page(404), "was refused: 404 <html>"),
    (|_| page(200), "is not a Lease"),
    (|_| Response::new(Full::new(Bytes::new()).boxed_unsync()), "is not a Lease"),
    (|_| reply(200, &json!({})), "is not the requested Lease"),
    (|_| reply(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})), "is not a Lease"),
    (|lease| changed(lease, "/metadata/name", json!("other")), "is not the requested Lease"),
    (|lease| changed(lease, "/metadata/resourceVersion", Value::Null), "has no metadata.resourceVersion"),
    (
        |lease| changed(lease, "/spec/leaseDurationSeconds", json!(1)),
        "the answer to update differs from the record that was sent",
    ),
    (|_| busy(), "was refused: 429"),
];

/// Returns the lines of one level.
fn of<'a>(lines: &'a [String], level: &str) -> Vec<&'a String> {
    lines.iter().filter(|line| line.starts_with(level)).collect()
}

/// Returns the warnings about answers. A get with a wrong answer may also be logged as an edit.
fn warnings_of_answers(lines: &[String]) -> Vec<&String> {
    let mut warnings = of(lines, "WARN");
    warnings.retain(|line| !line.contains("the lease was edited"));
    warnings
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_wrong_answers_and_logs_each_kind_once() {
    for (wrong, text) in WRONG {
        let lines = logged_by_all(Level::INFO, async {
            let server = Server::default();
            let mut leader = Replica::start(&server, "a");
            leader.leads().await;
            for _ in 0..3 {
                server.0.lock().wrong = VecDeque::from([wrong; 2]);
                tokio::time::sleep(Duration::from_secs(20)).await;
                assert!(server.0.lock().wrong.is_empty(), "{text}: both answers were sent");
                assert!(leader.fence.is_open(), "{text}");
            }
            assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 }, "{text}");
        })
        .await;
        let warnings = warnings_of_answers(&lines);
        assert!(matches!(warnings[..], [line] if line.contains(text)), "{text}: {lines:#?}");
        let warning = warnings[0];
        assert!(warning.contains("lease default/mainstay") && warning.len() < 700, "{text}: {warning}");
        let again = lines.iter().filter(|line| line.contains("requests for the lease are answered again"));
        assert_eq!(again.count(), 1, "{text}: {lines:#?}");
        assert_eq!(of(&lines, "ERROR"), Vec::<&String>::new(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_only_wrong_answers_gives_up_before_others_may_lead() {
    for (wrong, text) in WRONG {
        let lines = logged_by_all(Level::INFO, async {
            let server = Server::default();
            let mut leader = Replica::start(&server, "a");
            leader.leads().await;
            let before = Instant::now();
            server.0.lock().wrong = VecDeque::from(vec![wrong; 1000]);
            assert_eq!(leader.lost().await, Ending::Expired, "{text}");
            assert!(before.elapsed() <= Duration::from_millis(12_010), "{text}: {:?}", before.elapsed());
            let sent = 1000 - server.0.lock().wrong.len();
            assert!((3..=9).contains(&sent), "{text}: expected one request per retry period, found {sent}");
        })
        .await;
        assert_eq!(warnings_of_answers(&lines).len(), 1, "{text}: {lines:#?}");
        assert_eq!(of(&lines, "ERROR").len(), 1, "{text}: {lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_does_not_acquire_a_lease_after_a_wrong_answer() {
    for (wrong, text) in WRONG.into_iter().filter(|(_, text)| !text.contains("differs")) {
        let server = Server::default();
        let mut old = Replica::start(&server, "old");
        old.leads().await;
        server.0.lock().forbidden = vec!["watch"];
        old.ended.abort_all();
        while old.ended.join_next().await.is_some() {}
        server.0.lock().wrong = VecDeque::from([wrong; 3]);
        let before = Instant::now();
        let mut new = Replica::start(&server, "new");
        new.leads().await;
        assert!(before.elapsed() >= Duration::from_secs(15), "{text}: after {:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_wrong_answer_is_logged_once_and_replaced_by_polling() {
    let pages: [fn() -> Bytes; 3] = [
        || Bytes::from_static(b"<html>no watch</html>\n"),
        || {
            let other = json!({"type": "MODIFIED", "object": {
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "other", "namespace": "default", "resourceVersion": "999"},
                "spec": {"holderIdentity": "x"}}});
            Bytes::from(format!("{other}\n"))
        },
        || {
            let gone = json!({"type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Failure", "message": "too old", "reason": "Expired", "code": 410}});
            Bytes::from(format!("{gone}\n"))
        },
    ];
    for page in pages {
        let lines = logged_by_all(Level::INFO, async {
            let server = Server::default();
            server.0.lock().watches = Some(page);
            let mut old = Replica::start(&server, "old");
            old.leads().await;
            let mut new = Replica::start(&server, "new");
            new.sees_holder("old").await;
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert!(old.fence.is_open() && !new.fence.is_open());
            old.stop.cancel();
            old.work_ended(true);
            new.leads().await;
        })
        .await;
        // One line of each replica.
        let warnings = of(&lines, "WARN");
        assert_eq!(warnings.len(), 2, "{lines:#?}");
        assert!(
            warnings.iter().all(|line| line.contains("cannot watch the lease; polling it")),
            "{lines:#?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_keeps_a_lease_that_is_deleted_every_second_and_logs_it_once() {
    let lines = logged_by_all(Level::INFO, async {
        let server = Server::default();
        let mut leader = Replica::start(&server, "a");
        leader.leads().await;
        let mut standby = Replica::start(&server, "b");
        standby.sees_holder("a").await;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            settle().await;
            assert!(leader.fence.is_open(), "the Lease was created again");
            server.delete();
        }
        settle().await;
        assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 });
        assert!(!standby.fence.is_open());
    })
    .await;
    let warnings = of(&lines, "WARN");
    assert!(matches!(warnings[..], [line] if line.contains("the lease was deleted")), "{lines:#?}");
    // One line of each replica.
    assert_eq!(lines.iter().filter(|line| line.contains("new leader")).count(), 2, "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_overwrites_edits_and_logs_them_once() {
    // Merge patches of the spec.
    let edits = [
        json!({"leaseDurationSeconds": null}),
        json!({"leaseDurationSeconds": -5}),
        json!({"leaseDurationSeconds": i32::MAX}),
        json!({"renewTime": "2999-01-01T00:00:00.000000Z"}),
        json!({"renewTime": null, "acquireTime": null}),
        json!({"leaseTransitions": -3}),
    ];
    let lines = logged_by_all(Level::INFO, async {
        let server = Server::default();
        let mut leader = Replica::start(&server, "a");
        leader.leads().await;
        let mut standby = Replica::start(&server, "b");
        standby.sees_holder("a").await;
        let acquired = server.spec()["acquireTime"].clone();
        for edit in edits {
            settle().await;
            server.edit(|lease| {
                for (field, value) in edit.as_object().unwrap() {
                    lease["spec"][field] = value.clone();
                }
            });
            tokio::time::sleep(Duration::from_secs(3)).await;
            let spec = server.spec();
            assert_eq!(
                (&spec["holderIdentity"], &spec["leaseDurationSeconds"]),
                (&json!("a"), &json!(15)),
                "{edit}"
            );
            assert_eq!((&spec["acquireTime"], &spec["leaseTransitions"]), (&acquired, &json!(0)), "{edit}");
            assert!(spec["renewTime"].as_str().is_some_and(|time| !time.starts_with("2999")), "{edit}");
            assert!(leader.fence.is_open() && !standby.fence.is_open(), "{edit}");
        }
        server.edit(|lease| lease["metadata"]["labels"] = json!({"team": "a"}));
        tokio::time::sleep(Duration::from_secs(3)).await;
    })
    .await;
    let edited: Vec<_> = lines.iter().filter(|line| line.contains("the lease was edited")).collect();
    assert_eq!(edited.len(), 1, "{lines:#?}");
    // The standby cannot distinguish an edit from a duration that the holder wrote.
    let warnings = of(&lines, "WARN");
    let invalid = warnings.iter().filter(|line| line.contains("implausible leaseDurationSeconds")).count();
    assert_eq!((warnings.len(), invalid), (2, 1), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_had_to_get_the_lease_first_are_counted() {
    let server = Server::default();
    server.0.lock().forbidden = vec!["watch"];
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(leader.metric("leader_election_slowpath_total{name=\"mainstay\"} 0"));
    server.edit(|lease| lease["metadata"]["labels"] = json!({"team": "a"}));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(leader.metric("leader_election_slowpath_total{name=\"mainstay\"} 1"));
    assert!(leader.fence.is_open());
}
