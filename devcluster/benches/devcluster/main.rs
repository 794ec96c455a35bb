//! The speed of the embedded server, beside the real one in the same run where that can be started.
//!
//! `cargo bench -p mainstay-devcluster` prints a line `figure NAME VALUE UNIT` per figure. The real server's
//! figures end in `.real`; its programs are those of `KUBEBUILDER_ASSETS`, or are built as for the tests.
//! Without them the run has the figures of the embedded server only. `-- start`, `-- within` or `-- http`
//! selects a part. With `MAINSTAY_BENCH=quick` everything is a tenth as long.
//!
//! Figures over HTTP compare servers: one client with 16 connections calls either of them over TLS on
//! loopback, and shares the processors with it. Figures in process call the service of the embedded server
//! with JSON, from one task per processor. Start and memory are measured in processes of their own, because a
//! second start in the same process finds the tables of the first.

#![expect(clippy::print_stdout, reason = "the figures are the output")]
#![expect(clippy::cast_precision_loss, reason = "figures have a few digits")]

mod connection;
mod fresh;
mod objects;
mod over_http;
mod within;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use mainstay_devcluster::{ControlPlane, Embedded, Options};
use tokio::time::Instant;

/// The allocator of the program `mainstay`, so that the server behaves like that of `mainstay dev`.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The amount of work of each measurement.
#[derive(Clone, Copy)]
struct Form {
    /// Fresh processes that start a server.
    starts: usize,
    /// Objects that the measurements in process create or apply.
    writes: usize,
    /// Objects created over HTTP on the embedded server; a quarter of them on the real one.
    http_creates: usize,
    /// Objects whose creation 100 watchers see on the embedded server; a quarter of them on the real one.
    watched_creates: usize,
    /// Lists of 5,000 objects.
    lists: usize,
}

fn main() -> anyhow::Result<()> {
    if fresh::is_child() {
        return fresh::run();
    }
    let form = Form::new();
    if selected("start") {
        let (start_ms, empty_mb) = fresh::measure(form.starts)?;
        figure("dev.start_ms", start_ms, "ms");
        figure("dev.empty_mb", empty_mb, "MB");
    }
    runtime()?.block_on(async {
        if selected("within") {
            within::measure(form).await?;
        }
        if selected("http") { compare(form).await } else { Ok(()) }
    })
}

/// Measures both servers over HTTP.
async fn compare(form: Form) -> anyhow::Result<()> {
    let embedded = Embedded::start().await?;
    over_http::measure(&config(Kubeconfig::from_yaml(embedded.kubeconfig())?).await?, "", form, 1).await?;
    embedded.stop().await;

    match ControlPlane::start(Options { bare: true, ..Options::default() }).await {
        Ok(real) => {
            let config = config(Kubeconfig::read_from(real.kubeconfig_path())?).await?;
            let measured = over_http::measure(&config, ".real", form, 4).await;
            real.stop().await;
            measured
        }
        Err(error) => {
            println!("skipped the real server: {error}");
            Ok(())
        }
    }
}

/// Returns whether the arguments select a part; without arguments all parts are selected.
fn selected(part: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|name| name == part)
}

// === impl Form ===

impl Form {
    fn new() -> Self {
        if std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick") {
            Self { starts: 1, writes: 4_000, http_creates: 4_000, watched_creates: 400, lists: 3 }
        } else {
            Self { starts: 9, writes: 40_000, http_creates: 40_000, watched_creates: 8_000, lists: 21 }
        }
    }
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.2} {unit}");
}

/// Returns the operations per second since `start`.
fn rate(operations: usize, start: Instant) -> f64 {
    operations as f64 / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

async fn config(kubeconfig: Kubeconfig) -> anyhow::Result<Config> {
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
