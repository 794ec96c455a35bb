//! The health endpoints `/healthz`, `/livez` and `/readyz`. Every check passes: a server in this process that
//! answers at all has its store.

use super::answer::Answer;
use crate::api::Query;
use crate::kinds::quoted;

const LIVENESS: [&str; 3] = ["ping", "log", "etcd"];
const READINESS: [&str; 5] = ["ping", "log", "etcd", "informer-sync", "shutdown"];

/// Answers a health endpoint, or one check of it.
pub(super) fn answer(endpoint: &str, check: Option<&str>, query: &Query) -> Answer {
    let checks: &[&str] = if endpoint == "readyz" { &READINESS } else { &LIVENESS };
    if let Some(check) = check {
        return if checks.contains(&check) { Answer::text(200, "ok") } else { Answer::no_page() };
    }
    if query.get("verbose").is_none() {
        return Answer::text(200, "ok");
    }
    let mut unknown: Vec<String> =
        query.all("exclude").filter(|name| !checks.contains(name)).map(quoted).collect();
    unknown.sort();
    unknown.dedup();
    let line = |check: &&str| {
        let excluded = if query.all("exclude").any(|name| name == *check) { " excluded:" } else { "" };
        format!("[+]{check}{excluded} ok\n")
    };
    let lines: Vec<String> = checks.iter().map(line).collect();
    let warning = match unknown.join(",").as_str() {
        "" => String::new(),
        names => format!("warn: some health checks cannot be excluded: no matches for {names}\n"),
    };
    Answer::text(200, format!("{}{warning}{endpoint} check passed\n", lines.concat()))
}
