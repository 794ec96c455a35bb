//! The cost of inspecting a manager, of reloading its configuration, and of its metrics and spans.
//!
//! `cargo bench -p mainstay-tests --bench operate` starts this program again as the *subjects*, managers in
//! processes of their own. There is no API server, because no subject sends a request. It prints one line
//! `figure NAME VALUE UNIT` per figure; names after `--`, such as `inspect`, select some of its parts:
//!
//! - `inspect`: how soon `mainstay inspect` prints the first rows of a queue with 50,000 keys, 5,000 of them
//!   in backoff, and how much that delays reconciles.
//!
//! - `overhead`: the time that counters, histograms and the span add to each reconcile, with the log at info.
//!
//! - `reload`: the time from a save of the configuration until the last of sixteen workers is reconciling.
//!
//! With `MAINSTAY_BENCH=quick`, and when run as a test, there are fewer keys and shorter rounds. As a test it
//! compares the figures with bounds that even a slow machine meets.

mod inspect;
mod overhead;
mod reload;
mod subject;

use std::process::ExitCode;

use anyhow::Context as _;

/// The allocator of the program `mainstay`, so that the subjects behave like it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The size of the measurement.
#[derive(Clone, Copy)]
struct Form {
    /// Whether this runs as a test, which fails if a figure is out of its bounds.
    test: bool,
    /// Whether the measurement is the short one.
    quick: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    // First, because a subject is a process of this program too.
    if let Some(exit) = subject::main() {
        return Ok(exit);
    }
    let form = Form::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        if Form::wants("inspect") {
            inspect::measure(form).await.context("inspect")?;
        }
        if Form::wants("overhead") {
            overhead::measure(form).await.context("overhead")?;
        }
        if Form::wants("reload") {
            reload::measure(form).await.context("reload")?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

// === impl Form ===

impl Form {
    fn new() -> Self {
        // `cargo bench` passes `--bench`, `cargo test` does not.
        let test = !std::env::args().any(|argument| argument == "--bench");
        let quick = test || std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick");
        Self { test, quick }
    }

    /// Returns whether the arguments select this part. `cargo test` may pass a filter for a test in another
    /// file.
    fn wants(part: &str) -> bool {
        let name = format!("operate::{part}");
        let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
        filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
    }
}
