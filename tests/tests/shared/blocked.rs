//! Reconciles that block their threads neither lose the Lease nor delay the health endpoints.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use mainstay::election::DEFAULT_LEASE_DURATION;
use mainstay_tests::audit::{Write, terms};
use mainstay_tests::checks::Checks;
use mainstay_tests::process::get;
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::slow::{self, Task};
use mainstay_tests::wait::PATIENCE;
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The shipped timings, so that a slow server ends no term. The Lease expires while a reconcile blocks,
/// unless it is renewed meanwhile.
const LEASE: Duration = DEFAULT_LEASE_DURATION;
/// Too late for an answer on any machine: one that waited for a blocked thread would take longer. The kubelet
/// times out after a second by default; the figures show the real times.
const TOO_LATE: Duration = Duration::from_secs(10);
/// Pause between two rounds of requests.
const PROBE_PERIOD: Duration = Duration::from_millis(100);
/// A process blocked for less than this must still be alive: the limit is 30 s, counted from the last
/// heartbeat, a second or more before the block.
const ALIVE: Duration = Duration::from_secs(20);
/// Allowed drift between the clock of the log and the test's clock during a block: far more than the real
/// drift.
const CLOCKS: Duration = Duration::from_secs(1);

fn changes(workers: usize) -> Value {
    json!({"controllers": {"*": {"workers": workers}}})
}

/// Polls the endpoints of one process; every answer must come in time.
struct Poller {
    probes: SocketAddr,
    metrics: SocketAddr,
    /// The time of the slowest answer.
    slowest: Duration,
}

// === impl Poller ===

impl Poller {
    fn new(probes: SocketAddr, metrics: SocketAddr) -> Self {
        Self { probes, metrics, slowest: Duration::ZERO }
    }

    /// Requests every endpoint once. Asserts that `/readyz` and `/metrics` succeed; returns whether `/livez`
    /// does, with its body.
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

// More threads than the blocked one, on any machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_blocking_reconcile_affects_neither_the_lease_nor_the_health_endpoints() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    cluster.prefer_elections().await;
    let blocks = Duration::from_secs(if long_form() { 60 } else { 40 });
    let mut progress = None;
    let manager = LocalManager::start_with(&cluster, &identity, &changes(2), |manager| {
        progress = Some(slow::register(manager, Task::Block(blocks), 1).expect("registered"));
    })
    .await;
    let mut progress = progress.expect("registered");
    progress.began.wait_for(|began| *began == 1).await.expect("the reconcile begins");

    let began = Timestamp::now();
    let mut seen = began;
    let mut poller = Poller::new(manager.probes(), manager.metrics());
    while *progress.ended.borrow() == 0 {
        seen = Timestamp::now();
        let (alive, body) = poller.round().await;
        assert!(alive, "/livez: {body}");
    }
    figure("blocked.one_thread_slowest_answer", poller.slowest.as_secs_f64(), "s");
    let looked = seen.duration_since(began).unsigned_abs();
    assert!(looked > LEASE, "the observed block of {looked:?} is too short to lose the Lease");
    assert_held(&cluster, "blocked.one_thread", began).await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test]
async fn a_process_with_all_threads_blocked_keeps_its_lease_and_fails_livez() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    cluster.prefer_elections().await;
    // `/livez` fails after half of this time; the other half is left to observe that.
    let blocks = Duration::from_mins(1);
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let seconds = blocks.as_secs().to_string();
    let environment = [(slow::VARIABLE, seconds.as_str())];
    let changes = changes(slow::threads());
    let process = ManagerProcess::start_with(binary, &cluster, &identity, "slow", &changes, &environment);
    let mut poller = Poller::new(process.address("probes").await, process.address("metrics").await);
    let mut checks = Checks::of(poller.probes, &[]).await;

    let (first, last) = blocked_since(&process).await;
    // A lower bound counts from the first blocked thread, an upper bound from the last.
    let (some, all) = (instant(first), instant(last));
    let stuck = loop {
        let (alive, body) = poller.round().await;
        if !alive {
            assert!(body.contains("runtime"), "it names the stuck part: {body}");
            break Instant::now();
        }
        assert!(all.elapsed() < blocks, "/livez still succeeds after the whole block");
    };
    let liveness = ["/livez", "/livez/runtime", "/healthz", "/healthz/runtime"];
    let told = checks.turned(false, &liveness, all).await;
    let alive = loop {
        if poller.round().await.0 {
            break Instant::now();
        }
        assert!(all.elapsed() < blocks + PATIENCE, "/livez still fails long after the block");
    };
    let back = checks.turned(true, &liveness, all + blocks).await;
    checks.are_unchanged();
    figure("blocked.all_threads_slowest_answer", poller.slowest.as_secs_f64(), "s");
    figure("blocked.all_threads_stuck_after", (stuck - all).as_secs_f64(), "s");
    figure("blocked.all_threads_alive_again_after", (alive - all).as_secs_f64(), "s");
    assert!(stuck - some > ALIVE, "/livez failed after {:?}", stuck - some);
    if long_form() {
        assert!(told.last < Duration::from_secs(32), "failed after {told:?}");
        assert!(back.last < Duration::from_secs(5), "alive again after {back:?}");
    }
    assert!(alive - some + CLOCKS > blocks, "the threads were free again after {:?}", alive - some);
    assert_held(&cluster, "blocked.all_threads", last).await;
}

/// Waits until reconciles block every thread of a slow process. Returns when the first and the last of them
/// began, by the times in the log, which do not depend on when the test reads it.
async fn blocked_since(process: &ManagerProcess) -> (Timestamp, Timestamp) {
    let began = |line: &Value| line["msg"] == slow::BEGAN;
    process.logged_times("every thread is blocked", slow::threads(), began).await;
    let at = |line: &Value| line["ts"].as_str().and_then(|at| at.parse().ok());
    let times: Option<Vec<Timestamp>> = process.log().iter().filter(|line| began(line)).map(at).collect();
    let mut times = times.expect("each line has a time");
    times.sort_unstable();
    (times[0], times[times.len() - 1])
}

/// Returns this moment on the monotonic clock.
fn instant(at: Timestamp) -> Instant {
    let ago = Timestamp::now().duration_since(at).unsigned_abs();
    Instant::now().checked_sub(ago).expect("the machine ran by then")
}

/// Asserts one single term, renewed at least as often as the Lease needs.
async fn assert_held(cluster: &TestCluster, name: &str, began: Timestamp) {
    // The time after `end` is not checked. Once the log has a later renewal, it has all earlier ones.
    let end = Timestamp::now();
    let renews = |write: &Write| write.is_of_lease() && write.is_accepted();
    let told = |writes: &[Write]| {
        let is_later = |write: &Write| renews(write) && write.received >= end;
        writes.iter().any(is_later).then(|| writes.to_vec())
    };
    let writes = cluster.until_written("a renewal after the block", told).await;
    let terms = terms(&writes);
    assert_eq!(terms.len(), 1, "the Lease has one holder all the time: {terms:#?}");
    assert_eq!(terms[0].until, None, "the Lease was not released");
    let since = terms[0].from.max(began);
    let renewals = writes.iter().filter(|write| renews(write)).map(|write| write.received);
    let renewals: Vec<Timestamp> = renewals.filter(|at| (since..end).contains(at)).collect();
    let mut last = since;
    let mut longest = Duration::ZERO;
    for at in renewals.iter().chain([&end]) {
        longest = longest.max(at.duration_since(last).unsigned_abs());
        last = *at;
    }
    figure(&format!("{name}_longest_gap_between_renewals"), longest.as_secs_f64(), "s");
    assert!(longest < LEASE, "{longest:?} without a renewal, among {}", renewals.len());
}
