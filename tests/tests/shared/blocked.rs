//! Reconciles that block their threads cost neither the Lease nor the answer of a probe.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_tests::audit::terms;
use mainstay_tests::checks::Checks;
use mainstay_tests::process::get;
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::slow::{self, Task};
use mainstay_tests::wait::PATIENCE;
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::all_blocked;

/// Several times over while a reconcile blocks.
const LEASE: Duration = Duration::from_secs(5);
/// What is too late for an answer on any machine: one that waited for a blocked thread would be later still. The kubelet
/// gives up after a second by default; the figures tell.
const TOO_LATE: Duration = Duration::from_secs(10);
/// Between two rounds of probes.
const PROBE_PERIOD: Duration = Duration::from_millis(100);
/// What a process may be stuck for without being given up: the limit is 30 s, and we may have seen the beginning late.
const ALIVE: Duration = Duration::from_secs(20);

fn changes(workers: usize) -> Value {
    json!({
        "leaderElection": {"leaseDuration": "5s", "renewDeadline": "3s", "retryPeriod": "1s"},
        "controllers": {"*": {"workers": workers}},
    })
}

/// Asks one process again and again; every answer comes in time.
struct Asking {
    probes: SocketAddr,
    metrics: SocketAddr,
    /// The time the slowest answer took.
    slowest: Duration,
}

// === impl Asking ===

impl Asking {
    fn new(probes: SocketAddr, metrics: SocketAddr) -> Self {
        Self { probes, metrics, slowest: Duration::ZERO }
    }

    /// Asks for everything once. It is ready and tells its metrics; returned is whether it says that it is alive, and
    /// what it says.
    async fn round(&mut self) -> (bool, String) {
        for (address, path) in [(self.probes, "/readyz"), (self.metrics, "/metrics")] {
            let (status, body) = self.ask(address, path).await;
            assert_eq!(status, 200, "{path}: {body}");
        }
        let (status, body) = self.ask(self.probes, "/livez").await;
        assert!([200, 500].contains(&status), "/livez: {status} {body}");
        tokio::time::sleep(PROBE_PERIOD).await;
        (status == 200, body)
    }

    async fn ask(&mut self, address: SocketAddr, path: &str) -> (u16, String) {
        let asked = Instant::now();
        let answer = get(address, path).await;
        let took = asked.elapsed();
        assert!(took < TOO_LATE, "{path} was answered after {took:?}");
        self.slowest = self.slowest.max(took);
        answer
    }
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
    let mut asking = Asking::new(manager.probes(), manager.metrics());
    while *progress.ended.borrow() == 0 {
        let (alive, body) = asking.round().await;
        assert!(alive, "/livez: {body}");
    }
    figure("blocked.one_thread_slowest_answer", asking.slowest.as_secs_f64(), "s");
    let lasted = Timestamp::now().duration_since(began).unsigned_abs();
    assert!(lasted > blocks / 2, "it blocked while we looked, for {lasted:?}");
    assert_held(&cluster, "blocked.one_thread", began);
    manager.stop().await.expect("stopped in order");
}

#[tokio::test]
async fn a_process_with_all_threads_blocked_keeps_its_lease_and_tells_that_it_is_stuck() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let blocks = Duration::from_secs(if long_form() { 60 } else { 40 });
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let seconds = blocks.as_secs().to_string();
    let environment = [(slow::VARIABLE, seconds.as_str())];
    let changes = changes(slow::threads());
    let process = ManagerProcess::start_with(binary, &cluster, &identity, "slow", &changes, &environment);
    let mut asking = Asking::new(process.address("probes").await, process.address("metrics").await);
    let mut checks = Checks::of(asking.probes, &[]).await;
    all_blocked(&process).await;

    let (began, clock) = (Timestamp::now(), Instant::now());
    let stuck_after = loop {
        let (alive, body) = asking.round().await;
        if !alive {
            assert!(body.contains("runtime"), "it says what is stuck: {body}");
            break clock.elapsed();
        }
        assert!(clock.elapsed() < blocks, "blocked for so long, it still says that it is alive");
    };
    let liveness = ["/livez", "/livez/runtime", "/healthz", "/healthz/runtime"];
    let told = checks.turned(false, &liveness, clock).await;
    let alive_after = loop {
        if asking.round().await.0 {
            break clock.elapsed();
        }
        assert!(clock.elapsed() < blocks + PATIENCE, "the blocks are long over, and it is still stuck");
    };
    let back = checks.turned(true, &liveness, clock + blocks).await;
    checks.are_unchanged();
    figure("blocked.all_threads_slowest_answer", asking.slowest.as_secs_f64(), "s");
    figure("blocked.all_threads_stuck_after", stuck_after.as_secs_f64(), "s");
    figure("blocked.all_threads_alive_again_after", alive_after.as_secs_f64(), "s");
    assert!(stuck_after > ALIVE, "it was given up after {stuck_after:?}");
    if long_form() {
        assert!(told.last < Duration::from_secs(32), "told after {told:?}");
        assert!(back.last < Duration::from_secs(5), "alive again after {back:?}");
    }
    assert!(alive_after + ALIVE / 2 > blocks, "the threads were free again after {alive_after:?}");
    assert_held(&cluster, "blocked.all_threads", began);
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
