//! Servers that answer wrong and Leases that are changed by hand: what becomes of the leader, and what the log says.

use super::*;
use crate::client::tests::server::logged_by_all;
use tracing::Level;

/// A page of something that is no API server.
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

/// An answer, made of the stored Lease.
type Wrong = fn(Value) -> Reply;

/// How the server answers, and what the one line of the log says of it.
const WRONG: [(Wrong, &str); 11] = [
    (|_| status(500, "InternalError"), "was refused: 500"),
    (|_| page(502), "was refused: 502 <html> <body> <h1>502</h1>"),
    (|_| page(404), "was refused: 404 <html>"),
    (|_| page(200), "is no Lease"),
    (|_| Response::new(Full::new(Bytes::new()).boxed_unsync()), "is no Lease"),
    (|_| reply(200, &json!({})), "is of another Lease, or of none"),
    (|_| reply(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})), "is no Lease"),
    (|lease| changed(lease, "/metadata/name", json!("other")), "is of another Lease, or of none"),
    (|lease| changed(lease, "/metadata/resourceVersion", Value::Null), "has no metadata.resourceVersion"),
    (
        |lease| changed(lease, "/spec/leaseDurationSeconds", json!(1)),
        "what update stored is not what was sent",
    ),
    (|_| busy(), "was refused: 429"),
];

/// Lines of one level.
fn of<'a>(lines: &'a [String], level: &str) -> Vec<&'a String> {
    lines.iter().filter(|line| line.starts_with(level)).collect()
}

/// A look that finds the Lease other than it was written cannot know better.
fn warnings_of_answers(lines: &[String]) -> Vec<&String> {
    let mut warnings = of(lines, "WARN");
    warnings.retain(|line| !line.contains("was edited by somebody else"));
    warnings
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_wrong_answers_and_tells_each_kind_once() {
    for (wrong, says) in WRONG {
        let lines = logged_by_all(Level::INFO, async {
            let server = Server::default();
            let mut leader = Replica::start(&server, "a");
            leader.leads().await;
            for _ in 0..3 {
                server.0.lock().wrong = VecDeque::from([wrong; 2]);
                tokio::time::sleep(Duration::from_secs(20)).await;
                assert!(server.0.lock().wrong.is_empty(), "{says}: it was asked");
                assert!(leader.fence.is_open(), "{says}");
            }
            assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 }, "{says}");
        })
        .await;
        let told = warnings_of_answers(&lines);
        assert!(matches!(told[..], [line] if line.contains(says)), "{says}: {lines:#?}");
        assert!(told[0].contains("lease default/mainstay") && told[0].len() < 700, "{says}: {told:#?}");
        let again = lines.iter().filter(|line| line.contains("requests for the lease are answered again"));
        assert_eq!(again.count(), 1, "{says}: {lines:#?}");
        assert_eq!(of(&lines, "ERROR"), Vec::<&String>::new(), "{says}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_only_gets_wrong_answers_gives_up_before_others_may_lead() {
    for (wrong, says) in WRONG {
        let lines = logged_by_all(Level::INFO, async {
            let server = Server::default();
            let mut leader = Replica::start(&server, "a");
            leader.leads().await;
            let before = Instant::now();
            server.0.lock().wrong = VecDeque::from(vec![wrong; 1000]);
            assert_eq!(leader.lost().await, Ending::Expired, "{says}");
            assert!(before.elapsed() <= Duration::from_millis(12_010), "{says}: {:?}", before.elapsed());
            let asked = 1000 - server.0.lock().wrong.len();
            assert!((3..=9).contains(&asked), "{says}: a request for each retry period, not {asked}");
        })
        .await;
        assert_eq!(warnings_of_answers(&lines).len(), 1, "{says}: {lines:#?}");
        assert_eq!(of(&lines, "ERROR").len(), 1, "{says}: {lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_takes_nothing_on_the_word_of_a_wrong_answer() {
    for (wrong, says) in WRONG.into_iter().filter(|(_, says)| !says.contains("stored")) {
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
        assert!(before.elapsed() >= Duration::from_secs(15), "{says}: after {:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_tells_nonsense_is_told_once_and_replaced_by_looking() {
    let pages: [fn() -> Bytes; 3] = [
        || Bytes::from_static(b"<html>no watch</html>\n"),
        || {
            let other = json!({"type": "MODIFIED", "object": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "other", "namespace": "default", "resourceVersion": "999"},
                "spec": {"holderIdentity": "x"}}});
            Bytes::from(format!("{other}\n"))
        },
        || {
            let gone = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {},
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
            new.knows("old").await;
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert!(old.fence.is_open() && !new.fence.is_open());
            old.stop.cancel();
            old.work_ended(true);
            new.leads().await;
        })
        .await;
        // Each of the two for itself.
        let told = of(&lines, "WARN");
        assert_eq!(told.len(), 2, "{lines:#?}");
        assert!(told.iter().all(|line| line.contains("cannot watch the lease; looking at it")), "{told:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_every_second_stays_with_its_leader_and_is_one_line() {
    let lines = logged_by_all(Level::INFO, async {
        let server = Server::default();
        let mut leader = Replica::start(&server, "a");
        leader.leads().await;
        let mut standby = Replica::start(&server, "b");
        standby.knows("a").await;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            settle().await;
            assert!(leader.fence.is_open(), "written again");
            server.delete();
        }
        settle().await;
        assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 });
        assert!(!standby.fence.is_open());
    })
    .await;
    let told = of(&lines, "WARN");
    assert!(matches!(told[..], [line] if line.contains("the lease was deleted")), "{lines:#?}");
    // One of each replica.
    assert_eq!(lines.iter().filter(|line| line.contains("new leader")).count(), 2, "{lines:#?}");
}

/// What a person can make of a Lease that is held, as merge patches of its spec.
#[tokio::test(start_paused = true)]
async fn a_leader_writes_anew_what_was_edited_and_says_so_once() {
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
        standby.knows("a").await;
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
    let edited: Vec<_> = lines.iter().filter(|line| line.contains("was edited by somebody else")).collect();
    assert_eq!(edited.len(), 1, "{lines:#?}");
    // The standby cannot tell who wrote a duration that nobody can mean.
    let told = of(&lines, "WARN");
    let absurd = told.iter().filter(|line| line.contains("that nobody can mean")).count();
    assert_eq!((told.len(), absurd), (2, 1), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn renewals_that_had_to_look_first_are_counted() {
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
