//! How long fresh work waits for a worker while thousands of new objects fail at once, on a real API server.
//!
//! `cargo bench -p mainstay-tests --bench burst`: 5,000 objects that always fail are created at 1,500 a
//! second, while 100 healthy ones get 100 patches a second in all. Every reconcile takes 2 ms, so that all
//! four workers are busy. It is the storm of manager's example `retry-storm`, but faster; the figures are in
//! `docs/retries.md`:
//!
//! - `burst.healthy_ms_p50` and `burst.healthy_ms_p99`: from sending a patch to the start of the reconcile
//!   that sees it.
//!
//! - `burst.watcher_ms_p99`: the control, from sending a patch to its decoding by a bare watch.
//!
//! - `burst.late_ms_max`: the longest time that a failing object waited beyond its delay; `maxWait` is the
//!   bound.
//!
//! These are medians of three runs with the defaults. The same figures of one run each follow with reconciles
//! of 1 ms (`burst.run1ms`), with `retryShare: 50` (`burst.share50`), and with two workers
//! (`burst.workers2`). With `MAINSTAY_BENCH=quick` a fifth of the objects is created, once, and only with the
//! defaults.

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
use mainstay_devcluster::DevCluster;
use mainstay_tests::report::figure;

use storm::{Figures, Plan};

/// Creations per second.
const RATE: u32 = 1_500;

/// Duration of every reconcile.
const RUN: Duration = Duration::from_millis(2);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let quick = std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick");
    let cluster = DevCluster::real().await?;
    let result = measure(&cluster, quick).await;
    cluster.stop().await;
    result
}

async fn measure(cluster: &DevCluster, quick: bool) -> anyhow::Result<()> {
    let connection = connect::infer(Some(cluster.kubeconfig_path()), None).await?;
    let plan = plan(if quick { 1_000 } else { 5_000 });
    let mut rounds = Vec::new();
    for round in 1..=if quick { 1 } else { 3 } {
        rounds.push(storm::run(&connection, &format!("burst-{round}"), &plan, |_| {}).await?);
    }
    print("burst", &Figures::median(&rounds));
    if quick {
        return Ok(());
    }
    let short = Duration::from_millis(1);
    let others = [
        ("run1ms", Plan { failing_run: short, healthy_run: short, ..plan.clone() }),
        ("share50", Plan { retry_share: 50, ..plan.clone() }),
        ("workers2", Plan { workers: 2, ..plan.clone() }),
    ];
    for (name, plan) in others {
        print(&format!("burst.{name}"), &storm::run(&connection, name, &plan, |_| {}).await?);
    }
    Ok(())
}

fn plan(failing: u32) -> Plan {
    Plan {
        failing: failing as usize,
        creations: Duration::from_secs(1) * failing / RATE,
        failing_run: RUN,
        healthy_run: RUN,
        ..Plan::full()
    }
}

fn print(prefix: &str, figures: &Figures) {
    for (name, value, unit) in figures.all() {
        figure(&format!("{prefix}.{name}"), value, unit);
    }
}
