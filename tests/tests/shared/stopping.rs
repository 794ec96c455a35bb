//! The shutdown of a leader: first the reconciles end, then the Lease is released; and late reconciles.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams};
use mainstay_tests::manifests::Identity;
use mainstay_tests::report::figure;
use mainstay_tests::slow::{self, Task};
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster, wait};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{all_blocked, holder, renewed};

/// Limit for an immediate end of a process, without a grace period.
const AT_ONCE: Duration = Duration::from_secs(3);
/// Limit for a shutdown beyond its grace period.
const SLACK: Duration = Duration::from_secs(10);

/// Returns settings with a Lease of few seconds, renewed every second, and this grace period.
fn with_grace(grace: Duration) -> Value {
    json!({
        "leaderElection": {"leaseDuration": "5s", "renewDeadline": "3s", "retryPeriod": "1s"},
        "shutdown": {"gracePeriod": format!("{}s", grace.as_secs())},
        "controllers": {"*": {"workers": slow::threads()}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_kept_until_the_last_reconcile_has_ended() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let gate = CancellationToken::new();
    let (mut manager, mut progress) =
        start_waiting(&cluster, &identity, Duration::from_secs(50), &gate).await;
    let leases = cluster.api::<Lease>();
    let held = leases.get("mainstay").await.expect("the Lease");

    manager.manager.stop();
    let later = wait::until(&leases, "mainstay", "two more renewals, or a release", {
        let second = renewed(&held) + Duration::from_millis(2500);
        move |lease| renewed(lease) >= second || holder(lease).is_empty()
    })
    .await;
    assert_eq!(holder(&later), holder(&held), "the Lease is kept while a reconcile runs");
    assert_eq!(*progress.ended.borrow(), 0);

    let opened = Instant::now();
    gate.cancel();
    progress.ended.wait_for(|ended| *ended == 1).await.expect("a finished reconcile");
    wait::until(&leases, "mainstay", "a release", |lease| holder(lease).is_empty()).await;
    figure("ha.last_reconcile_to_release", opened.elapsed().as_secs_f64(), "s");
    manager.stopped().await.expect("stopped in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_outlives_the_grace_period_is_named_and_the_lease_is_not_released() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let never = CancellationToken::new();
    let grace = Duration::from_secs(2);
    let (manager, _progress) = start_waiting(&cluster, &identity, grace, &never).await;
    let leases = cluster.api::<Lease>();
    let held = leases.get("mainstay").await.expect("the Lease");

    let error = manager.stop().await.expect_err("a late reconcile");
    assert_eq!(error.to_string(), "still running after shutdown.gracePeriod 2s: slow");
    let left = leases.get("mainstay").await.expect("the Lease");
    assert_eq!(holder(&left), holder(&held), "the Lease is left to expire");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lost_while_stopping_ends_the_work_at_once_and_is_not_released() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let never = CancellationToken::new();
    let grace = Duration::from_mins(5);
    let (mut manager, progress) = start_waiting(&cluster, &identity, grace, &never).await;
    manager.manager.stop();

    let leases = cluster.api::<Lease>();
    let taken = json!({"spec": {"holderIdentity": "intruder", "renewTime": MicroTime(Timestamp::now())}});
    let lost = Instant::now();
    leases.patch("mainstay", &PatchParams::default(), &Patch::Merge(&taken)).await.expect("taken");
    manager.stopped().await.expect("no late work: the reconcile was dropped");
    figure("ha.lease_lost_while_stopping_to_end", lost.elapsed().as_secs_f64(), "s");
    assert!(lost.elapsed() < grace / 10, "after {:?}", lost.elapsed());
    assert_eq!(*progress.ended.borrow(), 0, "the reconcile did not end by itself");
    let left = leases.get("mainstay").await.expect("the Lease");
    assert_eq!(holder(&left), "intruder", "a lost Lease is not released");
}

#[tokio::test]
async fn a_process_with_all_threads_blocked_ends_after_its_grace_period() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let grace = Duration::from_secs(2);
    let mut process = start_blocked(&cluster, &identity, grace).await;
    let leases = cluster.api::<Lease>();
    let held = leases.get("mainstay").await.expect("the Lease");

    let signalled = Instant::now();
    process.terminate();
    let status = process.ended().await;
    figure("ha.grace_2s_blocked_exit", signalled.elapsed().as_secs_f64(), "s");
    assert!(signalled.elapsed() < grace + SLACK, "ended only after {:?}", signalled.elapsed());
    assert_eq!(status.code(), Some(1), "late work is a failure");
    let log = process.log();
    let named = "still running after shutdown.gracePeriod 2s: slow";
    let reported =
        log.iter().any(|line| line["error"].as_str().is_some_and(|error| error.starts_with(named)));
    assert!(reported, "the log lacks the late controller: {log:#?}");
    let left = leases.get("mainstay").await.expect("the Lease");
    assert_eq!(holder(&left), holder(&held), "the Lease is left to expire");
}

#[tokio::test]
async fn a_second_signal_ends_a_stopping_process_at_once() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let mut process = start_blocked(&cluster, &identity, Duration::from_secs(50)).await;
    process.terminate();
    process.logged("the signal", |line| line["signal"] == "SIGTERM").await;

    let signalled = Instant::now();
    process.terminate();
    let status = process.ended().await;
    figure("ha.second_sigterm_to_exit", signalled.elapsed().as_secs_f64(), "s");
    assert_eq!(status.code(), Some(1));
    assert!(signalled.elapsed() < AT_ONCE, "ended only after {:?}", signalled.elapsed());
}

#[tokio::test]
async fn a_process_with_controllers_only_stops_at_a_signal() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let bare = json!({
        "leaderElection": {"enabled": false},
        "health": {"bindAddress": ""},
        "metrics": {"bindAddress": ""},
    });
    let mut process = ManagerProcess::start(binary, &cluster, &identity, "bare", &bare);
    process.logged("the first sync", |line| line["msg"] == "every source has synced").await;
    process.terminate();
    let status = process.ended().await;
    assert!(status.success(), "{status}: {:#?}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_manager_lets_its_lease_expire() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let never = CancellationToken::new();
    let grace = Duration::from_secs(10);
    let (dropped, _progress) = start_waiting(&cluster, &identity, grace, &never).await;
    drop(dropped);
    // A run of its reconcile proves that it leads.
    let (next, mut progress) = start_waiting(&cluster, &identity, grace, &never).await;
    never.cancel();
    progress.ended.wait_for(|ended| *ended == 1).await.expect("a reconcile of the next manager");
    next.stop().await.expect("stopped in order");
}

/// Starts a manager with one reconcile that waits for the gate, and waits until it has begun.
async fn start_waiting(
    cluster: &TestCluster,
    identity: &Identity,
    grace: Duration,
    gate: &CancellationToken,
) -> (LocalManager, slow::Progress) {
    let mut progress = None;
    let task = Task::Wait(gate.clone());
    let manager = LocalManager::start_with(cluster, identity, &with_grace(grace), |manager| {
        progress = Some(slow::register(manager, task, 1).expect("registered"));
    })
    .await;
    let mut progress = progress.expect("registered");
    let began = progress.began.wait_for(|began| *began == 1);
    tokio::time::timeout(wait::PATIENCE, began)
        .await
        .expect("the reconcile begins in time")
        .expect("a sender");
    (manager, progress)
}

/// Starts a process whose reconciles block all its threads, and waits until all are blocked.
async fn start_blocked(cluster: &TestCluster, identity: &Identity, grace: Duration) -> ManagerProcess {
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let changes = with_grace(grace);
    let process =
        ManagerProcess::start_with(binary, cluster, identity, "slow", &changes, &[(slow::VARIABLE, "300")]);
    all_blocked(&process).await;
    process
}
