//! An answer as a tree of text lines.

use std::fmt::Write as _;
use std::time::Duration;

use mainstay::program::{ShortDuration, escaped};

use super::{Answer, Dependency, Probe};

/// Returns an answer of `mainstay why` as a tree of text lines: the WaitDeployment with its dependencies.
pub(super) fn tree(answer: &Answer) -> String {
    let mut text = String::new();
    if !answer.leading {
        text.push_str("answer of a standby: it does not probe\n");
    }
    head(&mut text, answer, "");
    dependencies(&mut text, answer, "");
    text
}

fn head(text: &mut String, answer: &Answer, indent: &str) {
    let Answer { namespace, name, ready, reason, message, .. } = answer;
    let ready = match ready.as_str() {
        "" => "no status yet",
        "True" => "ready",
        "False" => "not ready",
        _ => "unknown",
    };
    let reason = if reason.is_empty() { String::new() } else { format!(", {reason}: {message}") };
    line(text, &format!("{namespace}/{name}   {ready}{reason}"));
    if !answer.observed {
        line(text, &format!("{indent}the status is about an earlier spec"));
    }
    if let Some(invalid) = &answer.invalid {
        line(text, &format!("{indent}{invalid}"));
    }
    if let Some(closed) = answer.closed_seconds {
        let deadline = match answer.deadline_seconds {
            None => "no deadline".to_owned(),
            Some(left) if left >= 0.0 => format!("deadline in {}, then {}", short(left), answer.on_deadline),
            Some(over) => format!("deadline {} ago, {}", short(-over), answer.on_deadline),
        };
        let all = if answer.r#match == "Any" { "any of" } else { "all of" };
        line(text, &format!("{indent}gate closed for {}, {deadline}; waits for {all}", short(closed)));
    }
}

fn dependencies(text: &mut String, answer: &Answer, indent: &str) {
    if answer.elsewhere {
        line(text, &format!("{indent}└─ its dependencies are shown above, or left out: run why for it"));
    }
    let count = answer.dependencies.len();
    for (at, dependency) in answer.dependencies.iter().enumerate() {
        let last = at + 1 == count;
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        dependency_tree(text, dependency, &format!("{indent}{branch}"), &format!("{indent}{below}"));
    }
}

fn dependency_tree(text: &mut String, dependency: &Dependency, first: &str, indent: &str) {
    let Dependency { name, check, reason, message, .. } = dependency;
    let ready = match dependency.ready {
        None => "not checked",
        Some(true) => "ready",
        Some(false) => "not ready",
    };
    let optional = if dependency.optional { ", optional" } else { "" };
    line(text, &format!("{first}{name}   {check}{optional}"));
    let since = dependency.since_seconds.map(|since| format!(" for {}", short(since))).unwrap_or_default();
    let why = if reason.is_empty() { String::new() } else { format!(", {reason}: {message}") };
    line(text, &format!("{indent}{ready}{since}{why}"));
    if let Some(probe) = &dependency.probe {
        line(text, &format!("{indent}{}", probes(probe)));
    }
    if dependency.others > 0 {
        let more = dependency.others.saturating_sub(dependency.named.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        line(text, &format!("{indent}also waited for by {}{more}", dependency.named.join(", ")));
    }
    if let Some(waits) = &dependency.waits {
        let below = format!("{indent}   ");
        write!(text, "{indent}└─ ").ok();
        head(text, waits, &below);
        dependencies(text, waits, &below);
    }
}

fn probes(probe: &Probe) -> String {
    let every = format!("every {}", short(probe.period_seconds));
    let last = match (probe.began_seconds, probe.took_seconds) {
        (Some(began), Some(took)) => format!("last probe {} ago, took {}", short(began), short(took)),
        (Some(began), None) => format!("in flight for {}", short(began)),
        (None, _) => "not probed yet".to_owned(),
    };
    let streak = match (probe.successes, probe.failures, &probe.last) {
        (0, 0, _) => String::new(),
        (0, failures, last) => {
            let last = last.as_ref().map(|last| format!(" ({last})")).unwrap_or_default();
            format!("; {} in a row{last}", counted(failures, "failure", "failures"))
        }
        (successes, ..) => format!("; {} in a row", counted(successes, "success", "successes")),
    };
    let next = match (probe.next_seconds, probe.delayed_by.as_deref()) {
        (Some(next), _) => format!("; next in {}", short(next)),
        (None, None | Some("inFlight")) => String::new(),
        (None, Some(limit)) => format!("; due, delayed by the limit {limit}"),
    };
    format!("{last}{streak}{next}, {every}")
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Formats a number of seconds as a short duration; a value outside the range of a duration counts as 0.
fn short(seconds: f64) -> ShortDuration {
    ShortDuration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Appends a line to the text, with its control characters escaped: tenants choose names and expressions.
fn line(text: &mut String, line: &str) {
    text.push_str(&escaped(line));
    text.push('\n');
}
