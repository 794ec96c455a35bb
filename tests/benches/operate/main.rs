//! What it costs to look at a manager, to change it while it runs, and to count what it does.
//!
//! `cargo bench -p mainstay-tests --bench operate` starts this program again as the *subjects*, managers in processes of
//! their own, with our controllers' settings and no API server, since nothing here asks one. It prints one line
//! `figure NAME VALUE UNIT` per figure; names after `--`, such as `inspect`, choose among its parts:
//!
//! - `inspect`: how soon `mainstay inspect` shows its first rows of a queue with 50,000 keys, 5,000 of them in backoff, and
//!   what that does to the reconciles meanwhile.
//!
//! - `overhead`: what counters, histograms and the span cost each reconcile, with the log at info.
//!
//! - `reload`: how long after a save of the configuration the last of sixteen workers is at work.
//!
//! With `MAINSTAY_BENCH=quick`, and when run as a test, there are fewer keys and shorter rounds; as a test it holds the
//! figures against what no machine is slow enough to miss.

mod inspect;
mod overhead;
mod reload;
mod subject;

use std::process::ExitCode;

use anyhow::Context as _;

/// The allocator of the program `mainstay`: the subjects are to be as that is.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How much is done.
#[derive(Clone, Copy)]
struct Form {
    /// Whether the figures are held against their bounds.
    test: bool,
    /// Whether it is to be over soon.
    quick: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    // Before anything else: the subjects are this program too.
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
        // What cargo says to a benchmark, and not to a test.
        let test = !std::env::args().any(|argument| argument == "--bench");
        let quick = test || std::env::var("MAINSTAY_BENCH").is_ok_and(|form| form == "quick");
        Self { test, quick }
    }

    /// Whether this part was asked for. The runner of tests passes on the name of one test, which may be of another file.
    fn wants(part: &str) -> bool {
        let name = format!("operate::{part}");
        let mut asked = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
        asked.peek().is_none() || asked.any(|asked| name.contains(&asked))
    }
}
