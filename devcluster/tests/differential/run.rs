//! Runs a scenario on both servers.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::accepted::Accepted;
use super::compare::{self, Difference};
use super::controllers;
use super::normal;
use super::pair::Pair;
use super::script::Scenario;

/// How long both watchers may take for the same number of events.
const SETTLE_CHECKS: usize = 60;
const SETTLE_PAUSE: Duration = Duration::from_millis(25);
/// How often both must have had the same number of events in a row.
const SETTLED: usize = 3;
/// A difference counts if it shows up this often: the real server's caches may lag behind for a moment.
const TRIES: usize = 2;
/// Differences of one scenario that are printed.
const PRINTED: usize = 8;

/// The number of runs so far, for the names of namespaces.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Returns a report of the differences that the list does not have.
pub(crate) async fn judge(pair: &Pair, scenario: &Scenario, accepted: &Accepted) -> Option<String> {
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("t{run}");
        pair.namespace(&namespace).await;
        found = differences(pair, scenario, &namespace).await;
        found.retain(|difference| !accepted.has(&scenario.name, &difference.path));
        if found.is_empty() {
            return None;
        }
    }
    let mut report = format!("== {}", scenario.name);
    for difference in found.iter().take(PRINTED) {
        let _infallible = write!(report, "\n   {difference}");
    }
    if found.len() > PRINTED {
        let _infallible = write!(report, "\n   and {} more", found.len() - PRINTED);
    }
    Some(report)
}

/// Returns the differences of one run in a namespace that exists.
pub(crate) async fn differences(pair: &Pair, scenario: &Scenario, namespace: &str) -> Vec<Difference> {
    let (embedded, real) = transcripts(pair, scenario, namespace).await;
    let (mut embedded, mut real) = (normal::normalised(embedded), normal::normalised(real));
    if pair.controllers {
        controllers::outcome(&mut embedded);
        controllers::outcome(&mut real);
    }
    compare::compare(&embedded, &real)
}

/// Returns what both servers answered.
pub(crate) async fn transcripts(pair: &Pair, scenario: &Scenario, namespace: &str) -> (Value, Value) {
    let (mut embedded, mut real) = pair.sides(namespace);
    tokio::join!(embedded.run(&scenario.steps), real.run(&scenario.steps));
    let (mut settled, mut before) = (0, (0, 0));
    for _ in 0..SETTLE_CHECKS {
        let now = (embedded.events(), real.events());
        settled = if now.0 == now.1 && now == before { settled + 1 } else { 0 };
        before = now;
        if settled == SETTLED || (now == (0, 0) && !scenario.steps.iter().any(|step| step.verb == "WATCH")) {
            break;
        }
        tokio::time::sleep(SETTLE_PAUSE).await;
    }
    (embedded.transcript(), real.transcript())
}
