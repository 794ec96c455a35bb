//! How long nobody leads when replicas change, and what replicas cost that have nothing to do.
//!
//! `cargo bench -p mainstay-tests --bench handover` starts a control plane and this program again as the *replicas*,
//! each a process with the configuration that we ship. It prints one line `figure NAME VALUE UNIT` per figure:
//!
//! - `handover.release_ms`: from when the old leader's last reconcile ended, and not before it was told to stop by SIGTERM,
//!   to the first reconcile of the other replica. Every worker of the old one is in the middle of a reconcile when it is
//!   told. `handover.sigterm_ms` counts from the signal itself.
//! - `handover.crash_over_lease_ms`: from the old leader's last renewal and one lease duration later to the first
//!   reconcile of the other one, after SIGKILL. `handover.crash_ms` counts from the signal, which comes between two renewals.
//! - `idle.*`: processor time in percent of one core, times put on a processor per second, and resident memory of both
//!   replicas, with 20 controllers over 10 kinds.
//!
//! The replicas and this program read one clock. With `MAINSTAY_BENCH=quick`, and when run as a test, there are few
//! objects, few rounds, and a shorter Lease and look; as a test it holds the figures against what no machine is slow enough
//! to miss: a release that others have to wait out, a take-over before its time, a process that never rests or keeps too much.

mod idle;
mod replica;
mod rounds;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use mainstay_tests::TestCluster;
use mainstay_tests::report::figure;
use serde_json::{Value, json};

/// The allocator of the program `mainstay`: the replicas are to be as that is.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How much is done.
#[derive(Clone, Copy)]
struct Form {
    /// Whether the figures are held against their bounds.
    test: bool,
    objects: usize,
    releases: usize,
    crashes: usize,
    lease: Lease,
    /// How long idle replicas are looked at.
    idle: Duration,
}

/// The timings of the election, in whole seconds.
#[derive(Clone, Copy)]
struct Lease {
    duration: u64,
    deadline: u64,
    retry: u64,
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(program) = replica::program() {
        return Ok(program.main());
    }
    let Some(form) = Form::new() else { return Ok(ExitCode::SUCCESS) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        // Where there is no control plane it has said so.
        let Some(cluster) = TestCluster::exclusive().await else { return Ok(ExitCode::SUCCESS) };
        let told = tell(&cluster, form).await;
        cluster.stop().await;
        told.map(|()| ExitCode::SUCCESS)
    })
}

async fn tell(cluster: &TestCluster, form: Form) -> anyhow::Result<()> {
    idle::look(cluster, form).await.context("idle replicas")?;
    rounds::fill(cluster, form.objects).await.context("filling the cluster")?;
    rounds::run(cluster, form).await.context("changes of the leader")
}

// === impl Form ===

impl Form {
    /// None if another test than this one was asked for.
    fn new() -> Option<Self> {
        // What cargo says to a benchmark, and not to a test.
        let test = !std::env::args().any(|argument| argument == "--bench");
        let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
        if test && names.next().is_some_and(|name| !"handover".contains(&name)) {
            return None;
        }
        let quick = test || std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick");
        Some(if quick {
            let lease = Lease { duration: 5, deadline: 3, retry: 1 };
            Self { test, objects: 500, releases: 3, crashes: 2, lease, idle: Duration::from_secs(10) }
        } else {
            // What we ship.
            let lease = Lease { duration: 15, deadline: 10, retry: 2 };
            Self { test, objects: 10_000, releases: 20, crashes: 20, lease, idle: Duration::from_mins(2) }
        })
    }

    /// Returns the changes to the configuration that the replicas run with.
    fn changes(&self) -> Value {
        let Lease { duration, deadline, retry } = self.lease;
        json!({
            "leaderElection": {
                "leaseDuration": format!("{duration}s"),
                "renewDeadline": format!("{deadline}s"),
                "retryPeriod": format!("{retry}s"),
            },
            "inspect": {"bindAddress": "127.0.0.1:0"},
            // The replicas tell of each reconcile.
            "logging": {"level": "info,handover=debug"},
        })
    }

    /// Prints median and worst of some milliseconds. As a test, none may be outside of `bounds`.
    fn print(&self, name: &str, mut values: Vec<f64>, bounds: std::ops::Range<f64>) -> anyhow::Result<()> {
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else { return Ok(()) };
        let middle = values.len() / 2;
        // Of an even number the mean of both in the middle.
        let median = f64::midpoint(values[middle], values[(values.len() - 1) / 2]);
        figure(&format!("{name}_ms_p50"), median, "ms");
        figure(&format!("{name}_ms_max"), *most, "ms");
        let held = bounds.contains(least) && bounds.contains(most);
        anyhow::ensure!(held || !self.test, "{name}: {values:.1?} ms, not all in {bounds:?}");
        Ok(())
    }
}

// === impl Lease ===

impl Lease {
    fn millis(self) -> f64 {
        Duration::from_secs(self.duration).as_secs_f64() * 1e3
    }
}
