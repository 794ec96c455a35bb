//! The end of a leader: work first, then the Lease; and what happens when the work does not end.

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

/// What ending at once may take: a process, not a grace period.
const AT_ONCE: Duration = Duration::from_secs(3);
/// What a stop may take beyond its grace period.
const SLACK: Duration = Duration::from_secs(10);

/// A Lease of few seconds, renewed every second.
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
    let later = wait::until(&leases, "mainstay", "renewed twice more, or let go", {
        let second = renewed(&held) + Duration::from_millis(2500);
        move |lease| renewed(lease) >= second || holder(lease).is_empty()
    })
    .await;
    assert_eq!(holder(&later), holder(&held), "it is kept while a reconcile runs");
    assert_eq!(*progress.ended.borrow(), 0);

    let opened = Instant::now();
    gate.cancel();
    progress.ended.wait_for(|ended| *ended == 1).await.expect("the reconcile was let finish");
    wait::until(&leases, "mainstay", "let go", |lease| holder(lease).is_empty()).await;
    figure("ha.last_reconcile_to_release", opened.elapsed().as_secs_f64(), "s");
    manager.stopped().await.expect("everything ended in time");
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

    let error = manager.stop().await.expect_err("a reconcile was late");
    assert_eq!(error.to_string(), "still running after shutdown.gracePeriod 2s: slow");
    let left = leases.get("mainstay").await.expect("the Lease");
    assert_eq!(holder(&left), holder(&held), "it is left to run out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_lost_while_stopping_ends_the_work_at_once_and_stays_the_other_ones() {
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
    manager.stopped().await.expect("nothing was late: what ran was dropped");
    figure("ha.lease_lost_while_stopping_to_end", lost.elapsed().as_secs_f64(), "s");
    assert!(lost.elapsed() < grace / 10, "after {:?}", lost.elapsed());
    assert_eq!(*progress.ended.borrow(), 0, "the reconcile did not end by itself");
    let left = leases.get("mainstay").await.expect("the Lease");
    assert_eq!(holder(&left), "intruder", "it is not ours to release");
}

#[tokio::test]
async fn threads_that_are_all_blocked_cannot_keep_a_process_beyond_its_grace_period() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let grace = Duration::from_secs(2);
    let mut process = start_blocked(&cluster, &identity, grace).await;
    let leases = cluster.api::<Lease>();
    let held = leases.get("mainstay").await.expect("the Lease");

    let asked = Instant::now();
    process.terminate();
    let status = process.ended().await;
    figure("ha.grace_2s_blocked_exit", asked.elapsed().as_secs_f64(), "s");
    assert!(asked.elapsed() < grace + SLACK, "ended only after {:?}", asked.elapsed());
    assert_eq!(status.code(), Some(1), "late work is a failure");
    let log = process.log();
    let named = "still running after shutdown.gracePeriod 2s: slow";
    let told = log.iter().any(|line| line["error"].as_str().is_some_and(|error| error.starts_with(named)));
    assert!(told, "it names who was late: {log:#?}");
    let left = leases.get("mainstay").await.expect("the Lease");
    assert_eq!(holder(&left), holder(&held), "it is left to run out");
}

#[tokio::test]
async fn a_second_signal_ends_a_stopping_process_at_once() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let mut process = start_blocked(&cluster, &identity, Duration::from_secs(50)).await;
    process.terminate();
    process.logged("it is stopping", |line| line["signal"] == "SIGTERM").await;

    let asked = Instant::now();
    process.terminate();
    let status = process.ended().await;
    figure("ha.second_sigterm_to_exit", asked.elapsed().as_secs_f64(), "s");
    assert_eq!(status.code(), Some(1));
    assert!(asked.elapsed() < AT_ONCE, "ended only after {:?}", asked.elapsed());
}

#[tokio::test]
async fn a_process_with_nothing_but_controllers_hears_the_signal() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let bare = json!({
        "leaderElection": {"enabled": false},
        "health": {"bindAddress": ""},
        "metrics": {"bindAddress": ""},
    });
    let mut process = ManagerProcess::start(binary, &cluster, &identity, "bare", &bare);
    process.logged("it is at work", |line| line["msg"] == "every source has synced").await;
    process.terminate();
    assert!(process.ended().await.success(), "it stops in good order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_manager_lets_its_lease_run_out() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let never = CancellationToken::new();
    let grace = Duration::from_secs(10);
    let (dropped, _progress) = start_waiting(&cluster, &identity, grace, &never).await;
    drop(dropped);
    // It leads as soon as its reconcile begins.
    let (next, mut progress) = start_waiting(&cluster, &identity, grace, &never).await;
    never.cancel();
    progress.ended.wait_for(|ended| *ended == 1).await.expect("the next one works");
    next.stop().await.expect("stopped in order");
}

/// Starts a manager whose one reconcile waits for the gate, and waits until that has begun.
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
        .expect("it lives");
    (manager, progress)
}

/// Starts a process whose reconciles block all its threads, and waits until they do.
async fn start_blocked(cluster: &TestCluster, identity: &Identity, grace: Duration) -> ManagerProcess {
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let changes = with_grace(grace);
    let process =
        ManagerProcess::start_with(binary, cluster, identity, "slow", &changes, &[(slow::VARIABLE, "300")]);
    all_blocked(&process).await;
    process
}
