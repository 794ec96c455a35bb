//! How long there is no leader when the leader changes, and the cost of idle replicas.
//!
//! `cargo bench -p mainstay-tests --bench handover` starts a control plane, and this program again as the
//! *replicas*, each a process with the shipped configuration. It prints one line `figure NAME VALUE UNIT` per
//! figure:
//!
//! - `handover.release_ms`: from the end of the old leader's last reconcile, or from SIGTERM if that is
//!   later, to the first reconcile of the standby. Every worker of the old leader is in a reconcile when the
//!   signal arrives. `handover.sigterm_ms` starts at the signal itself.
//! - `handover.crash_over_lease_ms`: after SIGKILL, from the expiry of the Lease (the old leader's last
//!   renewal plus one lease duration) to the first reconcile of the standby. `handover.crash_ms` starts at
//!   the signal, which comes between two renewals.
//! - `idle.*`: processor time in percent of one core, how often per second the kernel schedules a thread, and
//!   resident memory of both replicas, with 20 controllers over 10 kinds.
//!
//! The replicas and this program read the same clock. With `MAINSTAY_BENCH=quick`, and when run as a test,
//! there are fewer objects and rounds, a shorter Lease and a shorter measurement. As a test it compares the
//! figures with bounds that even a slow machine meets, and fails if a release takes as long as the expiry of
//! the Lease, if a standby takes over before that expiry, or if an idle process uses too much processor time
//! or memory.

mod idle;
mod replica;
mod rounds;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use mainstay_tests::TestCluster;
use mainstay_tests::report::figure;
use serde_json::{Value, json};

/// The allocator of the program `mainstay`, so that the replicas behave like it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The size of the measurement.
#[derive(Clone, Copy)]
struct Form {
    /// Whether this runs as a test, which fails if a figure is out of its bounds.
    test: bool,
    objects: usize,
    releases: usize,
    crashes: usize,
    lease: Lease,
    /// Duration of the measurement of idle replicas.
    idle: Duration,
}

/// The durations of the election in seconds.
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
        // Without a control plane `exclusive` prints why and returns None.
        let Some(cluster) = TestCluster::exclusive().await else { return Ok(ExitCode::SUCCESS) };
        let measured = measure(&cluster, form).await;
        cluster.stop().await;
        measured.map(|()| ExitCode::SUCCESS)
    })
}

async fn measure(cluster: &TestCluster, form: Form) -> anyhow::Result<()> {
    idle::measure(cluster, form).await.context("idle replicas")?;
    rounds::fill(cluster, form.objects).await.context("filling the cluster")?;
    rounds::run(cluster, form).await.context("changes of the leader")
}

// === impl Form ===

impl Form {
    /// Returns None if the arguments name another test.
    fn new() -> Option<Self> {
        // `cargo bench` passes `--bench`, `cargo test` does not.
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
            // The shipped durations.
            let lease = Lease { duration: 15, deadline: 10, retry: 2 };
            Self { test, objects: 10_000, releases: 20, crashes: 20, lease, idle: Duration::from_mins(2) }
        })
    }

    /// Returns the changes to the shipped configuration.
    fn changes(&self) -> Value {
        let Lease { duration, deadline, retry } = self.lease;
        json!({
            "leaderElection": {
                "leaseDuration": format!("{duration}s"),
                "renewDeadline": format!("{deadline}s"),
                "retryPeriod": format!("{retry}s"),
            },
            "inspect": {"bindAddress": "127.0.0.1:0"},
            // At debug the replicas log each reconcile.
            "logging": {"level": "info,handover=debug"},
        })
    }

    /// Prints median and maximum of some milliseconds. As a test, fails if one is outside of `bounds`.
    fn print(&self, name: &str, mut values: Vec<f64>, bounds: std::ops::Range<f64>) -> anyhow::Result<()> {
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else { return Ok(()) };
        let middle = values.len() / 2;
        // The median of an even number of values is the mean of the two in the middle.
        let median = f64::midpoint(values[middle], values[(values.len() - 1) / 2]);
        figure(&format!("{name}_ms_p50"), median, "ms");
        figure(&format!("{name}_ms_max"), *most, "ms");
        let met = bounds.contains(least) && bounds.contains(most);
        anyhow::ensure!(met || !self.test, "{name}: {values:.1?} ms, not all in {bounds:?}");
        Ok(())
    }
}

// === impl Lease ===

impl Lease {
    fn millis(self) -> f64 {
        Duration::from_secs(self.duration).as_secs_f64() * 1e3
    }
}
