//! Why a WaitDeployment waits: the command `mainstay why NAMESPACE/NAME`, and the debug page
//! `/debug/waitdeployments/NAMESPACE/NAME` that it reads.
//!
//! The page shows the object's status unchanged. It adds data that the manager does not write to the status,
//! because it changes with every probe: the last probe, the next one, and other objects that wait for the
//! same target. A dependency that is a WaitDeployment is shown with its own dependencies.
//!
//! # Invariants
//! 1. A request for the page has no side effect: it starts no check of a dependency.
//! 2. The page is bounded, however many dependencies connect WaitDeployments: each is expanded once, and at
//!    most a hundred are.
//! 3. No control character in a name or message written by a tenant reaches a terminal.

mod page;
mod text;

#[cfg(test)]
mod tests;

use clap::{Arg, ArgMatches, Command};
use mainstay::config::{is_dns_name, is_namespace};
use mainstay::program::PageCommand;
use serde::{Deserialize, Serialize};

pub use page::Why;

/// Name under `/debug` of the page about WaitDeployments and their dependencies.
pub const PAGE: &str = "waitdeployments";

/// The answer of the page `/debug/waitdeployments`: the state of one WaitDeployment. Times are seconds
/// relative to the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Namespace of the WaitDeployment.
    pub namespace: String,
    /// Name of the WaitDeployment.
    pub name: String,
    /// Whether the answering replica leads: only the leader probes.
    pub leading: bool,
    /// Status of the condition Ready: True, False or Unknown; empty before the first status.
    pub ready: String,
    /// Reason of the condition Ready; empty before the first status.
    pub reason: String,
    /// Message of the condition Ready; empty before the first status.
    pub message: String,
    /// Whether the status of the WaitDeployment is about the current generation of its spec.
    pub observed: bool,
    /// Seconds for which the gate has been closed; `null` if it is open.
    pub closed_seconds: Option<f64>,
    /// Seconds until `onDeadline` applies, negative if it has passed; `null` without a deadline, or while the
    /// gate is open.
    pub deadline_seconds: Option<f64>,
    /// Value of `onDeadline` in the spec: `Fail`, `Proceed` or `KeepWaiting`.
    pub on_deadline: String,
    /// Value of `match` in the spec: `All` or `Any` of the dependencies have to be ready.
    pub r#match: String,
    /// Whether the dependencies of the WaitDeployment are left out, because they are elsewhere in the answer
    /// or the answer is too long.
    pub elsewhere: bool,
    /// The error in the spec of the WaitDeployment; `null` if it is valid.
    pub invalid: Option<String>,
    /// The dependencies of the WaitDeployment in the order of the spec.
    pub dependencies: Vec<Dependency>,
}

/// The state of one dependency of a WaitDeployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Name of the dependency.
    pub name: String,
    /// The check of the dependency in a few words, such as `TCP db:5432`.
    pub check: String,
    /// Whether the dependency is reported, but not required.
    pub optional: bool,
    /// Whether the dependency is ready; `null` without an entry for it in the status.
    pub ready: Option<bool>,
    /// Reason of the dependency's entry in the status, one CamelCase word.
    pub reason: String,
    /// Message of the dependency's entry in the status.
    pub message: String,
    /// Seconds since `ready` of the dependency last changed.
    pub since_seconds: Option<f64>,
    /// State of the probes of the dependency; `null` for a check against the cache.
    pub probe: Option<Probe>,
    /// Number of other WaitDeployments that wait for the same target.
    pub others: usize,
    /// The names of the first few other WaitDeployments that wait for the same target.
    pub named: Vec<String>,
    /// The state of the WaitDeployment that the dependency waits for; `null` for any other dependency.
    pub waits: Option<Box<Answer>>,
}

/// The state of the probes of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Seconds from the start of one probe of the target to that of the next, before jitter.
    pub period_seconds: f64,
    /// Seconds since the last probe of the target began.
    pub began_seconds: Option<f64>,
    /// Seconds that the last probe of the target took; `null` while it is in flight.
    pub took_seconds: Option<f64>,
    /// Reason of the last probe result. Before a threshold is reached, the dependency may have another
    /// reason.
    pub last: Option<String>,
    /// Seconds for which all probes of the target have had the last result.
    pub unchanged_seconds: Option<f64>,
    /// Number of successful probes of the target in a row; 0 after a failure.
    pub successes: u32,
    /// Number of failed probes of the target in a row; 0 after a success.
    pub failures: u32,
    /// Seconds until the next probe of the target; `null` if `delayed_by` is set.
    pub next_seconds: Option<f64>,
    /// The cause of a missing `next_seconds`: `inFlight` while a probe is in flight, or the name of the limit
    /// that delays the next probe; `null` otherwise.
    pub delayed_by: Option<String>,
}

/// Returns the command `mainstay why`.
pub fn command() -> PageCommand {
    let key = Arg::new("object").value_name("NAMESPACE/NAME").required(true).help("The WaitDeployment");
    let command =
        Command::new("why").about("Print why a WaitDeployment waits: a tree of its dependencies").arg(key);
    let show = |body: &str| serde_json::from_str(body).map(|answer: Answer| text::tree(&answer));
    PageCommand::new(command, path, show)
}

fn path(matches: &ArgMatches) -> Result<String, String> {
    let key = matches.get_one::<String>("object").map(String::as_str).unwrap_or_default();
    match key.split_once('/') {
        Some((namespace, name)) if is_namespace(namespace) && is_dns_name(name) => {
            Ok(format!("/debug/{PAGE}/{namespace}/{name}"))
        }
        _ => Err(format!("{key:?} is not the name of an object; expected NAMESPACE/NAME, such as shop/web")),
    }
}
