//! The cost of waiting objects, and how soon their gates open, on a real API server.
//!
//! `cargo bench -p mainstay-tests --bench wait` runs the binary `mainstay` with probes that cannot leave
//! loopback, beside a control plane of its own: 5,000 WaitDeployments, ten for each of 500 TCP targets, a
//! tenth of which are black holes with full backlogs. It prints one line `figure NAME VALUE UNIT` per figure:
//!
//! - `wait.cpu_percent_5000`, `wait.rss_mb_5000`, `wait.rss_growth_mb_5000`, `wait.probes_per_s`: processor
//!   time, memory, growth of memory, and probes per second while all objects wait and none changes.
//!
//! - `wait.tcp_open_over_period_ms_p99`: from the moment a target listens until a watch receives the
//!   Deployment, minus the period.
//!
//! - `wait.service_open_ms_p99`: from the response to the write of an `EndpointSlice` until a watch receives
//!   the Deployment.
//!
//! After a figure that has a target comes a line `target NAME < BOUND: met`, or `missed`. The full form ends
//! with an error if memory grows.
//!
//! With `MAINSTAY_BENCH=quick`, and when run as a test, there are fewer objects and shorter measurements. As
//! a test it compares the figures with bounds that even a slow machine meets.

#![expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^52")]

mod objects;
mod stage;

use std::io::Write as _;
use std::time::Duration;

use anyhow::ensure;
use mainstay_tests::report::{figure, percentile};
use tokio::time::Instant;

use self::stage::Stage;

/// The size of the measurement.
#[derive(Clone, Copy)]
struct Form {
    /// Whether this runs as a test, which fails if a figure is out of its bounds.
    test: bool,
    /// Whether this is the full form, which has targets for its figures.
    full: bool,
    objects: usize,
    targets: usize,
    period: Duration,
    /// Duration of the measurement at rest.
    rest: Duration,
    /// Number of targets that come up.
    openings: usize,
    services: usize,
}

/// As a test: longest time from the end of the period, or from the ready endpoint, until a gate opens.
const OPEN_MS: f64 = 30_000.0;
/// As a test: largest growth of memory at rest, above the noise of an allocator.
const GROWTH_MB: f64 = 32.0;
/// In the full form: largest growth of memory at rest, as a fraction of the resident memory.
const GROWTH_PART: f64 = 0.05;

fn main() -> anyhow::Result<()> {
    let form = Form::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let Some(mut stage) = Stage::set_up(form).await? else { return Ok(()) };
        let growth = rest(form, &stage).await?;
        tcp(form, &mut stage).await?;
        service(form, &mut stage).await?;
        stage.stop().await?;
        // Checked last, so that the other figures are printed in any case.
        ensure!(!form.full || growth < GROWTH_PART, "memory grew by {:.1} % at rest", 100.0 * growth);
        Ok(())
    })
}

/// Measures while all objects wait. Returns the growth of memory as a fraction of the resident memory.
async fn rest(form: Form, stage: &Stage) -> anyhow::Result<f64> {
    // Work that the creation of the objects caused ends in the first period.
    tokio::time::sleep(form.period).await;
    let (before, began) = (stage.usage().await?, Instant::now());
    tokio::time::sleep(form.rest).await;
    let (after, took) = (stage.usage().await?, began.elapsed().as_secs_f64());
    let growth = after.resident_mb - before.resident_mb;
    let probes = (after.probes - before.probes) / took;
    let of = |name| format!("wait.{name}_{}", form.objects);
    let cpu_percent = 100.0 * (after.cpu_seconds - before.cpu_seconds) / took;
    figure(&of("cpu_percent"), cpu_percent, "percent");
    form.target(&of("cpu_percent"), cpu_percent, 20.0);
    figure(&of("rss_mb"), after.resident_mb, "MB");
    figure(&of("rss_growth_mb"), growth, "MB");
    figure("wait.probes_per_s", probes, "per_s");
    if form.test {
        ensure!(growth < GROWTH_MB, "memory grew by {growth} MB at rest");
        // One probe per target and period, which jitter shortens by up to a tenth; all objects that wait for
        // the target share the probe.
        let most = form.targets as f64 / form.period.as_secs_f64() / 0.9 + 1.0;
        ensure!(probes > 0.0 && probes <= most, "{probes} probes per second; expected at most {most}");
    }
    Ok(growth / after.resident_mb)
}

/// Measures how soon gates open while their TCP targets come up one after the other.
async fn tcp(form: Form, stage: &mut Stage) -> anyhow::Result<()> {
    let mut over = stage.open_targets(form.openings).await?;
    let period = form.period.as_secs_f64() * 1000.0;
    for took in &mut over {
        *took = (*took - period).max(0.0);
    }
    report("wait.tcp_open_over_period_ms", form, over, 1_000.0)
}

/// Measures how soon gates open while their Services get an endpoint one after the other.
async fn service(form: Form, stage: &mut Stage) -> anyhow::Result<()> {
    let took = stage.open_services(form.services).await?;
    report("wait.service_open_ms", form, took, 100.0)
}

fn report(name: &str, form: Form, mut milliseconds: Vec<f64>, target: f64) -> anyhow::Result<()> {
    milliseconds.sort_by(f64::total_cmp);
    figure(&format!("{name}_p50"), percentile(&milliseconds, 50), "ms");
    let p99 = percentile(&milliseconds, 99);
    figure(&format!("{name}_p99"), p99, "ms");
    form.target(&format!("{name}_p99"), p99, target);
    ensure!(!form.test || p99 < OPEN_MS, "{name}: {p99} ms; expected less than {OPEN_MS}");
    Ok(())
}

// === impl Form ===

impl Form {
    fn new() -> Self {
        // `cargo bench` passes `--bench`, `cargo test` does not.
        let test = !std::env::args().any(|argument| argument == "--bench");
        if test || std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick") {
            let (period, rest) = (Duration::from_secs(2), Duration::from_secs(6));
            Self { test, full: false, objects: 200, targets: 40, period, rest, openings: 8, services: 10 }
        } else {
            let (period, rest) = (Duration::from_secs(10), Duration::from_mins(1));
            Self { test, full: true, objects: 5_000, targets: 500, period, rest, openings: 50, services: 100 }
        }
    }

    /// In the full form, prints whether a figure is below its target.
    fn target(self, name: &str, value: f64, below: f64) {
        if self.full {
            let verdict = if value < below { "met" } else { "missed" };
            drop(writeln!(std::io::stdout(), "target {name} < {below}: {verdict}"));
        }
    }
}
