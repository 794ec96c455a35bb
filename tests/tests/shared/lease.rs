//! A Lease on a real server that people edit, delete and create: the leader, its repairs, and the log.
//!
//! The API server refuses invalid edits. Any other edit is overwritten by the leader, and delays a candidate.
//! Each kind of incident is one log line, even if it repeats.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use mainstay_tests::audit::terms;
use mainstay_tests::impostor::{Impostor, Lie};
use mainstay_tests::manifests::Identity;
use mainstay_tests::report::figure_of_time;
use mainstay_tests::{ManagerProcess, TestCluster, wait};
use serde_json::{Value, json};

use super::{holder, renewed};

/// Lease duration in tests where another replica waits for it to expire.
const HOLDS: Duration = Duration::from_secs(8);
/// Lease duration in other tests: long against the time a slow machine needs for an edit and its repair.
const HOLDS_LONG: Duration = Duration::from_secs(30);
const NAME: &str = "mainstay";

fn settings(lease: &str, holds: Duration) -> Value {
    json!({"leaderElection": {
        "leaseName": lease,
        "leaseDuration": format!("{}s", holds.as_secs()),
        "renewDeadline": format!("{}s", holds.as_secs() * 3 / 4),
        "retryPeriod": "500ms",
    }})
}

fn start(cluster: &TestCluster, identity: &Identity, name: &str, holds: Duration) -> ManagerProcess {
    start_for(cluster, identity, name, NAME, holds)
}

fn start_for(
    cluster: &TestCluster,
    identity: &Identity,
    name: &str,
    lease: &str,
    holds: Duration,
) -> ManagerProcess {
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    ManagerProcess::start(binary, cluster, identity, name, &settings(lease, holds))
}

/// Waits until a replica leads and returns its identity.
async fn leads(process: &ManagerProcess) -> String {
    let line = process.logged("that it leads", |line| line["msg"] == "became leader").await;
    line["identity"].as_str().expect("its identity").to_owned()
}

/// Returns the number of log lines whose message contains these words.
fn logged_lines(process: &ManagerProcess, words: &str) -> usize {
    process.log().iter().filter(|line| line["msg"].as_str().is_some_and(|text| text.contains(words))).count()
}

/// Starts two replicas with the shipped rights; the first one leads. Returns leader, its identity and
/// standby.
async fn pair(cluster: &TestCluster, holds: Duration) -> (ManagerProcess, String, ManagerProcess) {
    cluster.install_base_for(&["mainstay-too"]).await;
    let leader = account(cluster, "mainstay").await;
    pair_of(cluster, &leader, holds).await
}

/// As [`pair`], with this identity for the leader.
async fn pair_of(
    cluster: &TestCluster,
    leader: &Identity,
    holds: Duration,
) -> (ManagerProcess, String, ManagerProcess) {
    let leader = start(cluster, leader, "leader", holds);
    let name = leads(&leader).await;
    let standby = start(cluster, &account(cluster, "mainstay-too").await, "standby", holds);
    standby.logged("the leader", |line| line["msg"] == "new leader" && line["holder"] == name.as_str()).await;
    (leader, name, standby)
}

async fn account(cluster: &TestCluster, user: &str) -> Identity {
    Identity { service_account: user.to_owned(), kubeconfig: cluster.kubeconfig_of(user).await }
}

async fn edit(leases: &Api<Lease>, change: &Value) -> Result<Lease, kube::Error> {
    leases.patch(NAME, &PatchParams::default(), &Patch::Merge(change)).await
}

/// Waits until the leader has written the Lease after this version, and returns it.
async fn mended(leases: &Api<Lease>, after: &Lease, leader: &str) -> Lease {
    let version = after.resource_version();
    let held = |lease: &Lease| lease.resource_version() != version && holder(lease) == leader;
    wait::until(leases, NAME, "its holder to write it anew", held).await
}

/// Asserts the fields of a record of the first term, except the exact time of its renewal.
#[track_caller]
fn check_record(lease: &Lease, acquired: Option<&MicroTime>, change: &Value) {
    let spec = lease.spec.clone().expect("a spec");
    let holds = i32::try_from(HOLDS_LONG.as_secs()).ok();
    assert_eq!(spec.lease_duration_seconds, holds, "after {change}");
    assert_eq!(spec.lease_transitions, Some(0), "after {change}");
    assert_eq!(spec.acquire_time.as_ref(), acquired, "it is the same term, after {change}");
    assert!(renewed(lease) <= Timestamp::now(), "after {change}");
}

#[tokio::test]
async fn a_lease_edited_or_deleted_by_hand_stays_with_its_leader_and_each_incident_is_one_line() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (mut leader, name, mut standby) = pair(&cluster, HOLDS_LONG).await;
    let leases = cluster.api::<Lease>();
    let acquired = leases.get(NAME).await.expect("read").spec.expect("a spec").acquire_time;

    for change in [
        json!({"spec": {"leaseDurationSeconds": -1}}),
        json!({"spec": {"leaseDurationSeconds": 0}}),
        json!({"spec": {"leaseTransitions": -1}}),
    ] {
        let refused = edit(&leases, &change).await;
        assert!(
            matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422),
            "the server should refuse {change}: {refused:?}"
        );
    }
    let legacy =
        json!({"holderIdentity": "x", "leaseDurationSeconds": 15, "leaderTransitions": 7}).to_string();
    for change in [
        json!({"spec": {"holderIdentity": null}}),
        json!({"spec": {"holderIdentity": ""}}),
        json!({"spec": null}),
        json!({"spec": {"leaseDurationSeconds": null}}),
        json!({"spec": {"leaseDurationSeconds": i32::MAX}}),
        json!({"spec": {"leaseDurationSeconds": 1}}),
        json!({"spec": {
            "renewTime": "2999-01-01T00:00:00.000000Z", "acquireTime": "2999-01-01T00:00:00.000000Z",
        }}),
        json!({"spec": {"renewTime": null, "acquireTime": null}}),
        json!({"spec": {"leaseTransitions": i32::MAX}}),
        // Fields of coordinated leader election, and the annotation of the former election.
        json!({"spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "x"}}),
        json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": legacy}}}),
    ] {
        let edited = edit(&leases, &change).await.unwrap_or_else(|error| panic!("{change}: {error}"));
        check_record(&mended(&leases, &edited, &name).await, acquired.as_ref(), &change);
    }
    for _ in 0..5 {
        let before = leases.get(NAME).await.expect("read");
        leases.delete(NAME, &DeleteParams::default()).await.expect("deleted");
        check_record(&mended(&leases, &before, &name).await, acquired.as_ref(), &json!("deletion"));
    }
    let labelled = edit(&leases, &json!({"metadata": {"labels": {"team": "a"}}})).await.expect("edited");
    mended(&leases, &labelled, &name).await;

    leader.terminate();
    assert!(leader.ended().await.success(), "{:#?}", leader.log());
    let next = leads(&standby).await;
    let taken = leases.get(NAME).await.expect("read");
    assert_eq!((holder(&taken), taken.labels().get("team").map(String::as_str)), (next.as_str(), Some("a")));
    standby.terminate();
    assert!(standby.ended().await.success(), "{:#?}", standby.log());

    for (process, words, times) in [
        (&leader, "the lease was edited", 1),
        (&leader, "was deleted or its holder cleared", 1),
        (&leader, "stopped leading", 1),
        (&leader, "new leader", 1),
        (&standby, "implausible leaseDurationSeconds", 1),
        // A line about the other replica, and one about itself.
        (&standby, "new leader", 2),
    ] {
        assert_eq!(logged_lines(process, words), times, "{words}: {:#?}", process.log());
    }
    check_events(&cluster, &[&name, &next]).await;
}

/// Asserts that the Events on the Lease are those of client-go: one at the begin and one at the end of each
/// term.
async fn check_events(cluster: &TestCluster, leaders: &[&str]) {
    let mut expected = Vec::new();
    for leader in leaders {
        expected.extend([format!("{leader} became leader"), format!("{leader} stopped leading")]);
    }
    let of_lease =
        |event: &&Event| event.regarding.as_ref().is_some_and(|it| it.kind.as_deref() == Some("Lease"));
    let notes = |events: &[Event]| {
        let mut of_lease: Vec<_> = events.iter().filter(of_lease).cloned().collect();
        of_lease.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        of_lease.iter().filter_map(|event| event.note.clone()).collect::<Vec<_>>()
    };
    let all = |events: &[Event]| notes(events).len() >= expected.len();
    let events =
        wait::until_all(&cluster.api::<Event>(), &ListParams::default(), "Events of the Lease", all).await;
    assert_eq!(notes(&events), expected);
    for event in events.iter().filter(of_lease) {
        assert_eq!(event.type_.as_deref(), Some("Normal"), "{event:?}");
        assert_eq!(event.reason.as_deref(), Some("LeaderElection"), "{event:?}");
        let lease = event.regarding.clone().unwrap_or_default();
        assert_eq!(lease.name.as_deref(), Some(NAME), "{event:?}");
        assert_eq!(lease.api_version.as_deref(), Some("coordination.k8s.io/v1"), "{event:?}");
    }
}

#[tokio::test]
async fn a_leader_replaced_in_its_lease_ends_and_candidates_wait_for_the_new_holder() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (mut leader, _, mut standby) = pair(&cluster, HOLDS).await;
    let leases = cluster.api::<Lease>();

    let edited = Timestamp::now();
    edit(&leases, &json!({"spec": {"holderIdentity": "somebody"}})).await.expect("edited");
    assert_eq!(leader.ended().await.code(), Some(1), "a replica that lost the Lease fails");
    figure_of_time("lease.written_out_to_exit", Timestamp::now().duration_since(edited).unsigned_abs());
    assert_eq!(
        logged_lines(&leader, "stopped leading: another replica holds the lease"),
        1,
        "{:#?}",
        leader.log()
    );

    let next = leads(&standby).await;
    let taken = leases.get(NAME).await.expect("read");
    let spec = taken.spec.clone().expect("a spec");
    assert_eq!((holder(&taken), spec.lease_transitions), (next.as_str(), Some(1)));
    let waited = spec.acquire_time.expect("it was acquired").0.duration_since(edited).unsigned_abs();
    assert!(waited >= HOLDS, "taken {waited:?} after the edit");
    standby.terminate();
    assert!(standby.ended().await.success(), "{:#?}", standby.log());
}

#[tokio::test]
async fn the_content_of_an_existing_lease_decides_when_it_is_taken() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let admin =
        Identity { service_account: "nobody".to_owned(), kubeconfig: cluster.kubeconfig_path().to_owned() };
    let leases = cluster.api::<Lease>();
    let never = "2999-01-01T00:00:00.000000Z";
    let stood = [
        ("nothing", json!({}), Duration::ZERO),
        ("nobody", json!({"holderIdentity": "", "leaseTransitions": 4}), Duration::ZERO),
        // The heartbeat of a node uses this form.
        (
            "node",
            json!({"holderIdentity": "node-1", "leaseDurationSeconds": 3, "renewTime": never}),
            Duration::from_secs(3),
        ),
        ("no-duration", json!({"holderIdentity": "ghost", "renewTime": never}), HOLDS),
        ("no-times", json!({"holderIdentity": "ghost", "leaseDurationSeconds": 2}), Duration::from_secs(2)),
    ];
    let take = async |(name, spec, holds): &(&str, Value, Duration)| {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec,
        }))
        .expect("a Lease");
        leases.create(&PostParams::default(), &lease).await.expect("created");
        let started = Timestamp::now();
        let mut process = start_for(&cluster, &admin, name, name, HOLDS);
        let identity = leads(&process).await;
        let taken = leases.get(name).await.expect("read");
        let record = taken.spec.clone().expect("a spec");
        assert_eq!(
            (holder(&taken), taken.labels().get("team").map(String::as_str)),
            (identity.as_str(), Some("a"))
        );
        let transitions = spec["leaseTransitions"].as_i64().unwrap_or_default() + 1;
        assert_eq!(record.lease_transitions.map(i64::from), Some(transitions), "{name}");
        let waited = record.acquire_time.expect("it was acquired").0.duration_since(started).unsigned_abs();
        assert!(waited >= *holds, "{name}: taken after {waited:?}");
        let absurd = usize::from(*name == "no-duration");
        assert_eq!(
            logged_lines(&process, "implausible leaseDurationSeconds"),
            absurd,
            "{name}: {:#?}",
            process.log()
        );
        process.terminate();
        assert!(process.ended().await.success(), "{:#?}", process.log());
    };
    futures_util::future::join_all(stood.iter().map(take)).await;
}

/// Faulty answers of the server, each with the text of its log line. An answer that comes twice is logged
/// once.
fn lies() -> Vec<(Lie, &'static str)> {
    vec![
        (Lie::Page(500), "was refused: 500"),
        (Lie::Page(502), "was refused: 502 <html> <h1>502</h1>"),
        (Lie::Page(404), "was refused: 404"),
        (Lie::Busy, "was refused: 429"),
        (Lie::Page(200), "is not a Lease"),
        (Lie::Text(""), "is not a Lease"),
        (Lie::Text("{}"), "is not the requested Lease"),
        (Lie::Changed("/metadata/name", json!("other")), "is not the requested Lease"),
        (Lie::Changed("/metadata/resourceVersion", Value::Null), "has no metadata.resourceVersion"),
        (Lie::Changed("/spec/leaseDurationSeconds", json!(1)), "differs from the record that was sent"),
        // Longer than the timeout of a request, which is half of renewDeadline.
        (Lie::Late(Duration::from_millis(3500)), "no answer to update within 3s"),
    ]
}

#[tokio::test]
async fn a_leader_survives_late_and_wrong_answers_and_ends_in_time_without_answers() {
    let Some(cluster) = TestCluster::shared().await else { return };
    cluster.install_base_for(&["mainstay-too"]).await;
    let impostor = Impostor::before(&cluster, &account(&cluster, "mainstay").await).await;
    let (mut leader, name, mut standby) = pair_of(&cluster, impostor.identity(), HOLDS).await;
    let leases = cluster.api::<Lease>();

    for (lie, _) in lies() {
        // Waits for the end of a renewal in flight, so that the faulty answers go to whole renewals.
        let before = leases.get(NAME).await.expect("read");
        let before = mended(&leases, &before, &name).await;
        impostor.lie(&lie, if matches!(lie, Lie::Late(_)) { 1 } else { 2 });
        impostor.all_sent().await;
        let answered = leases.get(NAME).await.expect("read");
        assert_eq!(holder(&answered), name, "{lie:?}");
        let after = mended(&leases, &answered, &name).await;
        assert!(renewed(&after) > renewed(&before), "{lie:?}");
    }
    assert_eq!(logged_lines(&leader, "stopped leading"), 0, "{:#?}", leader.log());
    let warned = |words: &str| {
        let of = |line: &Value| {
            line["level"] == "warn" && line["error"].as_str().is_some_and(|text| text.contains(words))
        };
        leader.log().iter().filter(|line| of(line)).count()
    };
    for (lie, words) in lies() {
        assert_eq!(warned(words), 1, "{lie:?}: {words}: {:#?}", leader.log());
    }

    impostor.lie(&Lie::Silence, 1000);
    assert_eq!(leader.ended().await.code(), Some(1), "a replica that lost the Lease fails");
    assert_eq!(
        logged_lines(&leader, "stopped leading: no renewal succeeded in time"),
        1,
        "{:#?}",
        leader.log()
    );
    let next = leads(&standby).await;
    let terms = terms(&cluster.writes());
    let held: Vec<_> = terms.iter().map(|term| term.holder.as_str()).collect();
    assert_eq!(held, [&name, &next], "{terms:#?}");
    let waited = terms[1].from.duration_since(terms[0].renewed).unsigned_abs();
    assert!(waited >= HOLDS, "taken {waited:?} after the last renewal");
    standby.terminate();
    assert!(standby.ended().await.success(), "{:#?}", standby.log());
}
