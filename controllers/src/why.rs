//! Why an object waits: `mainstay why NAMESPACE/NAME`, and the page `/debug/waitdeployments/NAMESPACE/NAME` behind it.
//!
//! What stands in the object's status is told as it stands there; beside it stands what the manager knows and writes
//! nowhere, since it changes with every probe: the last attempt, the next one, who else waits for the same. A dependency that is itself a
//! WaitDeployment is told with what it waits for in turn.
//!
//! # Invariants
//! 1. Asking changes nothing: no dependency is looked at because somebody wants to know.
//! 2. An answer is bounded, however many ways lead from one WaitDeployment to another: each is told in full once, and at
//!    most a hundred are.
//! 3. No control character of what a tenant wrote reaches a terminal.

mod page;
mod text;

#[cfg(test)]
mod tests;

use clap::{Arg, ArgMatches, Command};
use mainstay::program::Question;
use serde::{Deserialize, Serialize};

pub use page::Why;

/// Name of the page under `/debug`.
pub const PAGE: &str = "waitdeployments";

/// What is known of one WaitDeployment. Times are seconds counted from the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether the replica that was asked leads: only that one probes.
    pub leading: bool,
    /// Status of the condition Ready; empty before anything was said.
    pub ready: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Whether the status speaks of the current spec.
    pub observed: bool,
    /// For how long the gate has been closed; `null` if it is open.
    pub closed_seconds: Option<f64>,
    /// When `onDeadline` applies, negative if it has; `null` without a deadline, and while the gate is open.
    pub deadline_seconds: Option<f64>,
    /// What follows then.
    pub on_deadline: String,
    /// `All` or `Any`.
    pub r#match: String,
    /// Whether its dependencies are left out: they stand elsewhere in the answer, or it is long enough without them.
    pub elsewhere: bool,
    /// What of the spec cannot be acted on.
    pub invalid: Option<String>,
    /// In the order of the spec.
    pub dependencies: Vec<Dependency>,
}

/// One dependency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// What is looked at, in a few words.
    pub check: String,
    /// Whether it is reported only.
    pub optional: bool,
    /// Whether it holds; `null` if nothing is known of it.
    pub ready: Option<bool>,
    /// Why.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// For how long `ready` has been so.
    pub since_seconds: Option<f64>,
    /// What the probes of it do; `null` for what the API server tells.
    pub probe: Option<Probe>,
    /// How many other objects wait for the same.
    pub others: usize,
    /// The first few of them.
    pub named: Vec<String>,
    /// What it waits for in turn, if it is a WaitDeployment.
    pub waits: Option<Box<Answer>>,
}

/// The probes of one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// From one to the next, before jitter.
    pub period_seconds: f64,
    /// How long ago the last one began.
    pub began_seconds: Option<f64>,
    /// How long it took; `null` while it lasts.
    pub took_seconds: Option<f64>,
    /// Reason of its result, which need not be that of the dependency before a threshold is reached.
    pub last: Option<String>,
    /// For how long all have ended so.
    pub unchanged_seconds: Option<f64>,
    /// Successes in a row.
    pub successes: u32,
    /// Failures in a row.
    pub failures: u32,
    /// When the next one begins; `null` if `held` says why not.
    pub next_seconds: Option<f64>,
    /// `inFlight`, or the limit that keeps it.
    pub held: Option<String>,
}

/// Returns the command `why`.
pub fn question() -> Question {
    let key = Arg::new("object").value_name("NAMESPACE/NAME").required(true).help("The WaitDeployment");
    let command =
        Command::new("why").about("Print why a WaitDeployment waits: a tree of its dependencies").arg(key);
    let show = |body: &str| serde_json::from_str(body).map(|answer: Answer| text::tree(&answer));
    Question::new(command, path, show)
}

fn path(matches: &ArgMatches) -> Result<String, String> {
    let key = matches.get_one::<String>("object").map(String::as_str).unwrap_or_default();
    let is_name = |text: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        (1..=253).contains(&text.len()) && text.bytes().all(inner)
    };
    match key.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(format!("/debug/{PAGE}/{namespace}/{name}"))
        }
        _ => Err(format!("{key:?} names no object; expected NAMESPACE/NAME, such as shop/web")),
    }
}
