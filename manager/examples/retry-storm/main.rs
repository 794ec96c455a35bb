//! The cost of objects that keep failing for the others: the retries of the article, and a storm of retries.
//!
//! `cargo run --example retry-storm` starts an API server in this process and runs both parts on it, about
//! two minutes in all; `-- article` and `-- storm` after it run one of them. `docs/retries.md` explains the
//! figures.

mod article;
mod ledger;
mod load;
mod site;
mod storm;
mod watcher;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use mainstay::client::connect;
use mainstay_devcluster::DevCluster;

use storm::{Figures, Plan};

/// Runs of the storm; the median of each figure is printed.
const ROUNDS: usize = 3;

/// The parts that the command line selects.
struct Parts {
    article: bool,
    storm: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(parts) = Parts::from_arguments() else {
        complain("usage: cargo run --example retry-storm [-- article | storm]");
        return ExitCode::from(2);
    };
    match run(&parts).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&format!("error: {problem:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(parts: &Parts) -> anyhow::Result<()> {
    let cluster = DevCluster::start().await?;
    let result = run_parts(parts, &cluster).await;
    cluster.stop().await;
    result
}

async fn run_parts(parts: &Parts, cluster: &DevCluster) -> anyhow::Result<()> {
    let connection = connect::infer(Some(cluster.kubeconfig_path()), None).await?;
    if parts.article {
        article::run(&connection).await.context("the article's case")?;
    }
    if parts.storm {
        let plan = Plan::full();
        say(&format!(
            "\nthe storm: {} objects that always fail are created within {:?}, while {} others are patched, \
             {} patches a second; {} workers",
            plan.failing, plan.creations, plan.healthy, plan.patches_per_second, plan.workers
        ));
        let mut rounds = Vec::new();
        for round in 1..=ROUNDS {
            let figures = storm::run(&connection, &format!("storm-{round}"), &plan, say).await?;
            say(&format!("run {round} of {ROUNDS}: {figures}"));
            rounds.push(figures);
        }
        let least = Plan { retry_share: 1, ..plan };
        let figures = storm::run(&connection, "storm-least", &least, say).await?;
        say(&format!("with retryShare 1: {figures}\n"));
        print(&Figures::median(&rounds), "");
        print(&figures, ".share1");
    }
    Ok(())
}

/// Prints one figure per line, for scripts to compare.
fn print(figures: &Figures, form: &str) {
    for (name, value, unit) in figures.all() {
        say(&format!("figure storm{form}.{name} {value:.3} {unit}"));
    }
}

fn say(line: &str) {
    // Fails if the reader has closed the pipe, which is fine.
    drop(writeln!(std::io::stdout(), "{line}"));
}

fn complain(line: &str) {
    // Fails if standard error is closed; there is no other place to report it.
    drop(writeln!(std::io::stderr(), "{line}"));
}

// === impl Parts ===

impl Parts {
    /// Reads the command line; `None` if it is not valid.
    fn from_arguments() -> Option<Self> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Some(Self { article: true, storm: true }),
            ["article"] => Some(Self { article: true, storm: false }),
            ["storm"] => Some(Self { article: false, storm: true }),
            _ => None,
        }
    }
}
