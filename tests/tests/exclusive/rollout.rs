//! A rolling update of the replicas while two hundred WaitDeployments change: no change is lost, and there is
//! hardly a moment without a leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::manifests::Identity;
use mainstay_tests::process::get;
use mainstay_tests::report::figure;
use mainstay_tests::wait::{until_all, until_so};
use mainstay_tests::{ManagerProcess, TestCluster};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Number of objects that change all the time.
const OBJECTS: u32 = 200;
/// Pause between two changes, each of another object.
const CHANGE_PERIOD: Duration = Duration::from_millis(5);
/// Longest time without a leader, over the whole rollout.
const LEADERLESS: Duration = Duration::from_secs(1);
/// The annotation of the Pod template with the number of the last change.
const TURN: &str = "example.com/turn";

fn name_of(number: u32) -> String {
    format!("web-{number}")
}

/// Starts a replica and waits until it is ready, as a rollout does before it stops an old one.
async fn ready(cluster: &TestCluster, identity: &Identity, name: &str) -> ManagerProcess {
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let process = ManagerProcess::start(binary, cluster, identity, name, &json!({}));
    let probes = process.address("probes").await;
    until_so(&format!("{name} to be ready"), async || get(probes, "/readyz").await.0 == 200).await;
    process
}

/// The state of the Lease as a watch has seen it.
#[derive(Default)]
struct Seen {
    holder: String,
    /// Time during which the Lease named no holder, all together.
    leaderless: Duration,
}

/// Follows the Lease until the task is dropped.
async fn follow(leases: Api<Lease>, seen: Arc<Mutex<Seen>>) {
    let mut free_since = None;
    let lease = leases.get("mainstay").await.expect("a Lease");
    let mut version = lease.metadata.resource_version.expect("a version");
    loop {
        let fields = WatchParams::default().fields("metadata.name=mainstay");
        let mut events = leases.watch(&fields, &version).await.expect("a watch").boxed();
        while let Some(event) = events.next().await {
            let Ok(WatchEvent::Modified(lease)) = event else { continue };
            version = lease.metadata.resource_version.clone().expect("a version");
            let holder = holder(&lease);
            let mut seen = seen.lock();
            if holder.is_empty() {
                free_since.get_or_insert_with(Instant::now);
            } else if let Some(since) = free_since.take() {
                seen.leaderless += Instant::now() - since;
            }
            seen.holder = holder;
        }
    }
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

/// Changes one object after the other until `stop`, and records the last change of each.
async fn change(objects: Api<WaitDeployment>, turns: Arc<Vec<AtomicU32>>, stop: CancellationToken) {
    for (turn, number) in (1_u32..).zip((0..OBJECTS).cycle()) {
        if stop.is_cancelled() {
            return;
        }
        let annotations = json!({TURN: turn.to_string()});
        let patch = Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}));
        objects.patch(&name_of(number), &PatchParams::default(), &patch).await.expect("changed");
        turns[number as usize].store(turn, Ordering::SeqCst);
        sleep(CHANGE_PERIOD).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_under_load_loses_no_change_and_hardly_a_moment_of_leadership() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let identity = cluster.install_base().await;
    let objects = cluster.api::<WaitDeployment>();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": "Complete"});
    let wait_for = json!({"dependencies": [{"name": "schema", "resource": job, "optional": true}]});
    let changes = json!({"spec": {"replicas": 0, "waitFor": wait_for}});
    for number in 0..OBJECTS {
        let object = wait_deployment(&name_of(number), &changes);
        objects.create(&PostParams::default(), &object).await.expect("created");
    }
    let mut replicas = Vec::new();
    for name in ["old-1", "old-2"] {
        replicas.push(ready(&cluster, &identity, name).await);
    }
    replicas[0].leads().await;

    let seen = Arc::<Mutex<Seen>>::default();
    let mut background = JoinSet::new();
    background.spawn(follow(cluster.api(), Arc::clone(&seen)));
    // The last change of each object, by its number.
    let turns: Arc<Vec<AtomicU32>> = Arc::new((0..OBJECTS).map(|_| AtomicU32::new(0)).collect());
    let stop = CancellationToken::new();
    let mut churn = JoinSet::new();
    churn.spawn(change(objects, Arc::clone(&turns), stop.clone()));
    for name in ["new-1", "new-2"] {
        let new = ready(&cluster, &identity, name).await;
        let mut old = replicas.remove(0);
        old.terminate();
        assert!(old.ended().await.success(), "it ends in good order: {:#?}", old.log());
        replicas.push(new);
    }
    let settled = async || {
        let lease = cluster.api::<Lease>().get("mainstay").await.expect("a Lease");
        let holder = holder(&lease);
        !holder.is_empty() && seen.lock().holder == holder
    };
    until_so("a new leader, seen by the watch", settled).await;
    let total = seen.lock().leaderless;
    background.shutdown().await;
    stop.cancel();
    churn.join_next().await.expect("a task").expect("every change went through");

    let all = |deployments: &[Deployment]| {
        turns.iter().zip(0..).all(|(turn, number)| {
            let name = name_of(number);
            let deployment = deployments.iter().find(|one| one.metadata.name.as_deref() == Some(&*name));
            let annotations =
                deployment.and_then(|one| one.spec.template.metadata.as_ref()?.annotations.as_ref());
            let found = annotations.and_then(|all| all.get(TURN)).and_then(|turn| turn.parse::<u32>().ok());
            found.unwrap_or_default() == turn.load(Ordering::SeqCst)
        })
    };
    until_all(&cluster.api(), &ListParams::default(), "the last change of every object", all).await;
    figure("rollout.leaderless_ms", total.as_secs_f64() * 1e3, "ms");
    assert!(total <= LEADERLESS, "{total:?} without a leader");
    for mut replica in replicas {
        replica.terminate();
        assert!(replica.ended().await.success());
    }
    cluster.stop().await;
}
