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

/// Name of the page under `/debug`.
pub const PAGE: &str = "waitdeployments";

/// The state of one WaitDeployment. Times are seconds relative to the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Whether the answering replica leads: only the leader probes.
    pub leading: bool,
    /// Status of the condition Ready; empty before the first status.
    pub ready: String,
    /// Reason of the condition Ready.
    pub reason: String,
    /// Message of the condition Ready.
    pub message: String,
    /// Whether the status is about the current generation of the spec.
    pub observed: bool,
    /// For how long the gate has been closed; `null` if it is open.
    pub closed_seconds: Option<f64>,
    /// Time until `onDeadline` applies, negative if it has passed; `null` without a deadline, or while the
    /// gate is open.
    pub deadline_seconds: Option<f64>,
    /// `onDeadline`: `Fail`, `Proceed` or `KeepWaiting`.
    pub on_deadline: String,
    /// `match` of the spec: `All` or `Any`.
    pub r#match: String,
    /// Whether the dependencies are left out, because they are elsewhere in the answer or the answer is too
    /// long.
    pub elsewhere: bool,
    /// The error in the spec, if it is invalid.
    pub invalid: Option<String>,
    /// The dependencies in the order of the spec.
    pub dependencies: Vec<Dependency>,
}

/// The state of one dependency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Name of the dependency.
    pub name: String,
    /// The check in a few words, such as `TCP db:5432`.
    pub check: String,
    /// Whether the dependency is reported, but not required.
    pub optional: bool,
    /// Whether the dependency is ready; `null` without an entry in the status.
    pub ready: Option<bool>,
    /// Reason of the entry in the status, one CamelCase word.
    pub reason: String,
    /// Message of the entry in the status.
    pub message: String,
    /// How long ago `ready` last changed.
    pub since_seconds: Option<f64>,
    /// State of the target's probes; `null` for a check against the cache.
    pub probe: Option<Probe>,
    /// How many other objects wait for the same target.
    pub others: usize,
    /// The names of the first few of those objects.
    pub named: Vec<String>,
    /// The state of the dependency itself, if it is a WaitDeployment.
    pub waits: Option<Box<Answer>>,
}

/// The state of the probes of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Time from the start of one probe to that of the next, before jitter.
    pub period_seconds: f64,
    /// How long ago the last probe began.
    pub began_seconds: Option<f64>,
    /// How long the last probe took; `null` while it is in flight.
    pub took_seconds: Option<f64>,
    /// Reason of the last result. Before a threshold is reached, the dependency may have another reason.
    pub last: Option<String>,
    /// For how long all probes have had this result.
    pub unchanged_seconds: Option<f64>,
    /// Successes in a row.
    pub successes: u32,
    /// Failures in a row.
    pub failures: u32,
    /// Time until the next probe; `null` if `delayed_by` is set.
    pub next_seconds: Option<f64>,
    /// The cause of a delay of the next probe: `inFlight`, or the name of the limit.
    pub delayed_by: Option<String>,
}

/// Returns the command `why`.
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
