//! The storm of manager's example `retry-storm`, short: the others hardly notice objects that always fail.
//!
//! The example prints the figures that `docs/retries.md` tells. Here they may be ten times worse before a test fails,
//! because the machine also does other things. `MAINSTAY_LONG=1` gives the example's own storm.

#[path = "../../../manager/examples/retry-storm/ledger.rs"]
mod ledger;
#[path = "../../../manager/examples/retry-storm/load.rs"]
mod load;
#[path = "../../../manager/examples/retry-storm/site.rs"]
mod site;
#[path = "../../../manager/examples/retry-storm/storm.rs"]
mod storm;
#[path = "../../../manager/examples/retry-storm/watcher.rs"]
mod watcher;

use std::time::Duration;

use mainstay::client::connect;
use mainstay::queue::DEFAULT_RETRY_SHARE;
use mainstay_tests::TestCluster;
use mainstay_tests::report::{figure, long_form};

use storm::{Figures, Plan};

/// Runs of the storm; of each figure the median is told.
const ROUNDS: usize = 3;

/// What a machine that also does other things may add to `maxWait`: more than the runs of others as old, and less than
/// the rest of the window, which is what a retry would wait if fresh work went first for ever.
const SLACK: Duration = Duration::from_secs(4);

/// The rates of the example, for a quarter of its time.
fn plan() -> Plan {
    let full = Plan::full();
    if long_form() {
        return full;
    }
    let window = Duration::from_secs(5);
    Plan { failing: full.failing / 4, creations: window, window, ..full }
}

/// Fresh work for ten workers, where there are four: a retry is let through for its age, or not at all. No more than
/// forty keys wait, so that fresh work is not much older than `maxWait` itself.
fn pressed(retry_share: u8) -> Plan {
    Plan {
        failing: 100,
        healthy: 40,
        patches_per_second: 100,
        creations: Duration::from_secs(10),
        window: Duration::from_secs(10),
        workers: 4,
        retry_share,
        max_wait: Duration::from_secs(1),
        failing_run: Duration::from_millis(1),
        healthy_run: Duration::from_millis(100),
    }
}

/// Returns whether the figures are within ten times 1 ms, 5 ms, and twice what the watcher needs itself. Where even the
/// watcher is later than the 5 ms allow, the machine is busy, and its own lateness is the measure.
fn hardly_delayed(figures: &Figures) -> bool {
    figures.over_watcher_p50 <= 10.0
        && figures.over_watcher_p99 <= figures.watcher_p99.max(50.0)
        && figures.healthy_p99 <= 20.0 * figures.watcher_p99
}

/// Returns whether failing objects ran again and again, and not only when they were created.
fn goes_on(figures: &Figures, plan: &Plan) -> bool {
    figures.failing_runs >= 2.0 * f64::from(u32::try_from(plan.failing).expect("thousands"))
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_always_fail_hardly_delay_the_others() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let connection = connect::infer(Some(cluster.kubeconfig_path()), None).await.expect("a connection");
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        let storm = storm::run(&connection, &format!("storm-{round}"), &plan(), |_| {}).await;
        rounds.push(storm.expect("every patch is seen and every object runs"));
    }
    let figures = Figures::median(&rounds);
    for (name, value, unit) in figures.all() {
        figure(&format!("storm.{name}"), value, unit);
    }
    assert!(hardly_delayed(&figures), "ten times slower than is meant, at the median: {figures}; {rounds:?}");
    assert!(goes_on(&figures, &plan()), "the failing objects stand still: {figures}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_always_fail_run_within_max_wait_of_their_time_however_much_fresh_work_there_is() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let connection = connect::infer(Some(cluster.kubeconfig_path()), None).await.expect("a connection");
    for retry_share in [1, DEFAULT_RETRY_SHARE] {
        let plan = pressed(retry_share);
        let storm = storm::run(&connection, &format!("pressed-{retry_share}"), &plan, |_| {}).await;
        let figures = storm.expect("every patch is seen and every object runs");
        figure(&format!("storm.pressed_share{retry_share}.late_ms_max"), figures.late_max, "ms");
        figure(&format!("storm.pressed_share{retry_share}.failing_runs"), figures.failing_runs, "runs");
        let longest = (plan.max_wait + SLACK).as_secs_f64() * 1000.0;
        assert!(
            figures.late_max <= longest,
            "with retryShare {retry_share} a failing object waits far beyond maxWait: {figures}"
        );
        assert!(goes_on(&figures, &plan), "with retryShare {retry_share} they stand still: {figures}");
    }
    cluster.stop().await;
}
