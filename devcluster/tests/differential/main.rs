//! The embedded server is judged by the real one: both get the same requests, and must answer alike.
//!
//! Scenarios are text files in `scenarios/`; [`script`] has their form. After them come scenarios with spoilt
//! answers, which the comparison must notice, and random sequences of requests, which shrink when they find a
//! difference. A second test compares Jobs and `CronJob`s after the controllers of both clusters
//! have run them.
//! `accepted.txt` lists the differences that stay, each with its reason. Variables:
//!
//! | | |
//! |---|---|
//! | `DIFFERENTIAL_ONLY` | a part of the names of the scenarios to run; no random steps then |
//! | `DIFFERENTIAL_SEED` | the seed of the random steps (1) |
//! | `DIFFERENTIAL_STEPS` | their number (1,000) |
//! | `DIFFERENTIAL_ENVTEST` | the folder of the suites of `envtest`; without it they do not run |
//! | `DIFFERENTIAL_RECORD` | `openapi`: only writes the `OpenAPI` documents of the real server to `data` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends with the first thing that should not be"
)]

mod accepted;
mod clients;
mod compare;
mod controllers;
mod envtest;
mod hooks;
mod kinds;
mod normal;
mod pair;
mod random;
mod record;
mod run;
mod script;
mod side;
mod spoilt;

use std::io::Write as _;

use futures_util::StreamExt as _;

use accepted::Accepted;
use pair::Pair;
use script::Scenario;

/// The scenarios, a file for each area.
const FILES: &[&str] = &[
    include_str!("scenarios/writes.txt"),
    include_str!("scenarios/reads.txt"),
    include_str!("scenarios/watches.txt"),
    include_str!("scenarios/deletion.txt"),
    include_str!("scenarios/patches.txt"),
    include_str!("scenarios/apply.txt"),
    include_str!("scenarios/custom.txt"),
    include_str!("scenarios/admission.txt"),
    include_str!("scenarios/policies.txt"),
    include_str!("scenarios/conversion.txt"),
    include_str!("scenarios/kinds.txt"),
    include_str!("scenarios/rights.txt"),
    include_str!("scenarios/networking.txt"),
    include_str!("scenarios/classes.txt"),
    include_str!("scenarios/autoscaling.txt"),
    include_str!("scenarios/batch.txt"),
    include_str!("scenarios/transport.txt"),
    include_str!("scenarios/bad_input.txt"),
    include_str!("scenarios/tables.txt"),
];

/// Scenarios, or random sequences, that run at the same time.
const AT_ONCE: usize = 3;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Prints past the test runner's capture.
fn print(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}

/// Runs all scenarios and returns the number without a difference, and the report of the others.
async fn run_scenarios(pair: &Pair, scenarios: &[Scenario], accepted: &Accepted) -> (usize, Vec<String>) {
    let (mut equal, mut reports) = (0, Vec::new());
    let mut runs = futures_util::stream::iter(scenarios)
        .map(|scenario| run::judge(pair, scenario, accepted))
        .buffered(AT_ONCE);
    while let Some(report) = runs.next().await {
        match report {
            None => equal += 1,
            Some(report) => {
                print(&report);
                reports.push(report);
            }
        }
    }
    (equal, reports)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_answer_alike() {
    let accepted = Accepted::parse(include_str!("accepted.txt"));
    let mut scenarios: Vec<_> = FILES.iter().flat_map(|text| script::parse(text)).collect();
    let only = variable("DIFFERENTIAL_ONLY");
    if let Some(part) = &only {
        scenarios.retain(|scenario| scenario.name.contains(part.as_str()));
    }
    if variable("DIFFERENTIAL_RECORD").is_some_and(|what| what == "openapi") {
        return record::openapi().await;
    }
    let Some(pair) = Pair::start(false).await else { return };

    let (equal, reports) = run_scenarios(&pair, &scenarios, &accepted).await;
    print(&format!("differential: {equal} of {} scenarios are equal", scenarios.len()));
    if only.is_none() {
        let missed = spoilt::unnoticed(&pair).await;
        assert!(missed.is_empty(), "spoilt answers that went unnoticed: {missed:?}");
        print(&format!("differential: all {} spoilt answers were noticed", spoilt::COUNT));

        let seed = variable("DIFFERENTIAL_SEED").map_or(1, |text| text.parse().expect("a seed"));
        let steps = variable("DIFFERENTIAL_STEPS").map_or(1_000, |text| text.parse().expect("a number"));
        let (done, found) = random::run(&pair, seed, steps, &accepted).await;
        print(&format!("figure dev.random_steps {done} steps"));
        print(&format!("figure dev.differences {} differences", found.len() + reports.len()));
        let with_controllers = script::parse(controllers::SCENARIOS).len();
        print(&format!("figure dev.scenarios {} scenarios", scenarios.len() + with_controllers));
        pair.stop().await;
        assert!(found.is_empty(), "random steps with a difference:\n{}", found.join("\n"));
    } else {
        pair.stop().await;
    }
    assert!(reports.is_empty(), "{} scenarios differ:\n{}", reports.len(), reports.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_of_both_servers_act_alike() {
    let accepted = Accepted::parse(include_str!("accepted.txt"));
    let mut scenarios = script::parse(controllers::SCENARIOS);
    if let Some(part) = variable("DIFFERENTIAL_ONLY") {
        scenarios.retain(|scenario| scenario.name.contains(part.as_str()));
    }
    if scenarios.is_empty() {
        return;
    }
    let Some(pair) = Pair::start(true).await else { return };
    let (equal, reports) = run_scenarios(&pair, &scenarios, &accepted).await;
    print(&format!("differential: {equal} of {} scenarios with controllers are equal", scenarios.len()));
    pair.stop().await;
    assert!(reports.is_empty(), "{} scenarios differ:\n{}", reports.len(), reports.join("\n"));
}
