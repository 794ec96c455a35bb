//! The start of a server in a process of its own, and the memory that it adds to the process.

use std::process::Command;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use mainstay_devcluster::Embedded;
use tokio::time::Instant;

use super::{median, runtime};

/// Environment variable that makes a process start one server and print its two figures.
const CHILD: &str = "MAINSTAY_BENCH_CHILD";

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Prints the milliseconds from the start of a server to its first answer, and the megabytes that it adds.
pub(crate) fn run() -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let memory = resident_mb()?;
        let start = Instant::now();
        let server = Embedded::start().await?;
        let found = Api::<Namespace>::all(server.client()).get("default").await?;
        let took = start.elapsed();
        println!("{} {}", took.as_secs_f64() * 1e3, resident_mb()? - memory);
        drop(found);
        server.stop().await;
        Ok(())
    })
}

/// Returns the medians of the two figures over several processes.
pub(crate) fn measure(runs: usize) -> anyhow::Result<(f64, f64)> {
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let output = Command::new(std::env::current_exe()?).env(CHILD, "1").output()?;
        let text = String::from_utf8(output.stdout)?;
        let (time, size) = text.trim().split_once(' ').context("a server did not start")?;
        times.push(time.parse()?);
        sizes.push(size.parse()?);
    }
    Ok((median(times), median(sizes)))
}

/// Returns the resident memory of this process.
fn resident_mb() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}
