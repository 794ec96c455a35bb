//! Reconciles that block their threads cost neither the Lease nor the answer of a probe.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_tests::audit::terms;
use mainstay_tests::process::get;
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::slow::{self, Task};
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::all_blocked;

/// Several times over while a reconcile blocks.
const LEASE: Duration = Duration::from_secs(5);
/// What a probe may take to be answered: the kubelet's default timeout.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two rounds of probes.
const PROBE_PERIOD: Duration = Duration::from_millis(100);

fn changes(workers: usize) -> Value {
    json!({
        "leaderElection": {"leaseDuration": "5s", "renewDeadline": "3s", "retryPeriod": "1s"},
        "controllers": {"*": {"workers": workers}},
    })
}

// More threads than the one that is blocked, on any machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_reconcile_that_blocks_its_thread_costs_neither_the_lease_nor_a_probe() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let blocks = Duration::from_secs(if long_form() { 60 } else { 20 });
    let mut progress = None;
    let manager = LocalManager::start_with(&cluster, &identity, &changes(2), |manager| {
        progress = Some(slow::register(manager, Task::Block(blocks), 1).expect("registered"));
    })
    .await;
    let mut progress = progress.expect("registered");
    progress.began.wait_for(|began| *began == 1).await.expect("the reconcile begins");

    let began = Timestamp::now();
    let (probes, metrics) = (manager.probes(), manager.metrics());
    let slowest = probed(probes, metrics, 200, async || *progress.ended.borrow() == 1).await;
    figure("blocked.one_thread_slowest_answer", slowest.as_secs_f64(), "s");
    let lasted = Timestamp::now().duration_since(began).unsigned_abs();
    assert!(lasted > blocks / 2, "it blocked while we looked, for {lasted:?}");
    assert_held(&cluster, "blocked.one_thread", began);
    manager.stop().await.expect("stopped in order");
}

#[tokio::test]
async fn a_process_with_all_threads_blocked_keeps_its_lease_and_answers() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    // Beyond 30 s the process says that it is stuck, as it should.
    let blocks = Duration::from_secs(if long_form() { 28 } else { 15 });
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let changes = changes(slow::threads());
    // Far longer than we look, so that the end of one is not the end of the block.
    let environment = [(slow::VARIABLE, "300")];
    let process = ManagerProcess::start_with(binary, &cluster, &identity, "slow", &changes, &environment);
    let (probes, metrics) = (process.address("probes").await, process.address("metrics").await);
    all_blocked(&process).await;

    let (began, clock) = (Timestamp::now(), Instant::now());
    let slowest = probed(probes, metrics, 200, async || clock.elapsed() > blocks).await;
    figure("blocked.all_threads_slowest_answer", slowest.as_secs_f64(), "s");
    assert_held(&cluster, "blocked.all_threads", began);
}

/// Asks again and again until `over`; every answer comes in time, and says that all is well. Returns the time the
/// slowest one took.
async fn probed(
    probes: SocketAddr,
    metrics: SocketAddr,
    expected: u16,
    over: impl AsyncFn() -> bool,
) -> Duration {
    let mut slowest = Duration::ZERO;
    while !over().await {
        for (address, path) in [(probes, "/livez"), (probes, "/readyz"), (metrics, "/metrics")] {
            let asked = Instant::now();
            let (status, body) = get(address, path).await;
            let took = asked.elapsed();
            assert_eq!(status, expected, "{path}: {body}");
            assert!(took < PROBE_TIMEOUT, "{path} was answered after {took:?}");
            slowest = slowest.max(took);
        }
        tokio::time::sleep(PROBE_PERIOD).await;
    }
    slowest
}

/// There was one term all along, renewed at least as often as the Lease needs.
fn assert_held(cluster: &TestCluster, name: &str, began: Timestamp) {
    let writes = cluster.writes();
    let terms = terms(&writes);
    assert_eq!(terms.len(), 1, "the Lease never changed hands: {terms:#?}");
    assert_eq!(terms[0].until, None, "nor was it let go");
    let since = terms[0].from.max(began);
    let renewals: Vec<Timestamp> = writes
        .iter()
        .filter(|write| write.is_of_lease() && write.is_accepted() && write.received >= since)
        .map(|write| write.received)
        .collect();
    let ends = [Timestamp::now()];
    let mut last = since;
    let mut longest = Duration::ZERO;
    for at in renewals.iter().chain(&ends) {
        longest = longest.max(at.duration_since(last).unsigned_abs());
        last = *at;
    }
    figure(&format!("{name}_longest_gap_between_renewals"), longest.as_secs_f64(), "s");
    assert!(longest < LEASE, "{longest:?} without a renewal, among {}", renewals.len());
}
