//! A short form of manager's example `retry-storm`: objects that always fail hardly delay healthy objects.
//!
//! The example prints the figures in `docs/retries.md`. A test fails only if the figures are ten times worse,
//! because the machine also does other work. With `MAINSTAY_LONG=1` the storm is as long as in the example.

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

/// Number of runs of the storm. The test prints the median of each figure.
const ROUNDS: usize = 3;

/// Time beyond `maxWait` that a retry may wait on a busy machine: more than the reconciles of other retries
/// that are as old, and less than the rest of the window, which is how long a retry would wait if fresh work
/// always went first.
const SLACK: Duration = Duration::from_secs(4);

/// Returns the plan of the example; in the short form with the same rates for a quarter of the time.
fn plan() -> Plan {
    let full = Plan::full();
    if long_form() {
        return full;
    }
    let window = Duration::from_secs(5);
    Plan { failing: full.failing / 4, creations: window, window, ..full }
}

/// Returns a plan with fresh work for ten workers, but only four workers, so that a retry runs only because
/// of its age. At most forty keys wait, so that fresh work is not much older than `maxWait` itself.
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

/// Returns whether the figures are within ten times their bounds: 1 ms at the median and 5 ms at p99 over the
/// watcher, and twice the p99 of the watcher itself. If even the watcher takes longer than 50 ms, the machine
/// is busy, and the p99 of the watcher replaces the 5 ms bound.
fn hardly_delayed(figures: &Figures) -> bool {
    figures.over_watcher_p50 <= 10.0
        && figures.over_watcher_p99 <= figures.watcher_p99.max(50.0)
        && figures.healthy_p99 <= 20.0 * figures.watcher_p99
}

/// Returns whether failing objects were retried, and did not run only when they were created.
fn goes_on(figures: &Figures, plan: &Plan) -> bool {
    figures.failing_runs >= 2.0 * f64::from(u32::try_from(plan.failing).expect("thousands"))
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_objects_hardly_delay_healthy_objects() {
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
    assert!(
        hardly_delayed(&figures),
        "more than ten times over the bounds, at the median: {figures}; {rounds:?}"
    );
    assert!(goes_on(&figures, &plan()), "the failing objects were not retried: {figures}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_run_within_max_wait_under_more_fresh_work_than_workers_can_do() {
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
        assert!(goes_on(&figures, &plan), "with retryShare {retry_share} nothing was retried: {figures}");
    }
    cluster.stop().await;
}
