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
use mainstay::queue::DEFAULT_MAX_WAIT;
use mainstay_tests::TestCluster;
use mainstay_tests::report::{figure, long_form};

use storm::{Figures, Plan};

/// Runs of the storm; of each figure the median is told.
const ROUNDS: usize = 3;

/// The rates of the example, for a quarter of its time.
fn plan() -> Plan {
    let full = Plan::full();
    if long_form() {
        return full;
    }
    Plan { failing: full.failing / 4, window: Duration::from_secs(5), ..full }
}

fn told(form: &str, figures: &Figures) {
    for (name, value, unit) in figures.all() {
        figure(&format!("storm{form}.{name}"), value, unit);
    }
}

/// Returns whether the figures are within ten times 1 ms, 5 ms, and twice what the watcher needs itself. Where even the
/// watcher is later than the 5 ms allow, the machine is busy, and its own lateness is the measure.
fn hardly_delayed(figures: &Figures) -> bool {
    figures.over_watcher_p50 <= 10.0
        && figures.over_watcher_p99 <= figures.watcher_p99.max(50.0)
        && figures.healthy_p99 <= 20.0 * figures.watcher_p99
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_always_fail_hardly_delay_the_others_and_are_not_starved_by_them() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let connection = connect::infer(Some(cluster.kubeconfig_path()), None).await.expect("a connection");
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        let storm = storm::run(&connection, &format!("storm-{round}"), &plan(), |_| {}).await;
        rounds.push(storm.expect("every patch is seen and every object runs"));
    }
    let figures = Figures::median(&rounds);
    told("", &figures);
    let least = Plan { retry_share: 1, ..plan() };
    let least = storm::run(&connection, "storm-least", &least, |_| {}).await.expect("the same");
    told(".share1", &least);

    // A defect shows in every round, a busy machine hardly in all.
    assert!(
        rounds.iter().any(hardly_delayed),
        "ten times slower than is meant, in every round; at the median: {figures}"
    );
    let longest = DEFAULT_MAX_WAIT.as_secs_f64() * 1000.0;
    for figures in rounds.iter().chain([&least]) {
        assert!(figures.late_max <= longest, "a failing object waits beyond maxWait: {figures}");
    }
    cluster.stop().await;
}
