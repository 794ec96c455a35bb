//! The form of scenarios.
//!
//! A scenario starts with `== name`; comments start with `#`. A line is a step:
//!
//! ```text
//! VERB PATH[?QUERY] [@HEADER:VALUE] [BODY] [-> LABEL]
//! ```
//!
//! - VERB: GET, POST, PUT, DELETE; the patches JSON, MERGE, STRATEGIC and APPLY; `WATCH name`, whose events
//!   are collected until the end; `AWAIT`, a GET that is repeated until the object exists, or until the
//!   condition in place of the body is True; `SLEEP` with milliseconds in place of the path; `REVIEWS`, the
//!   reviews that the webhooks of this scenario have got since the last such step.
//! - HEADER: its name; the value may have variables.
//! - PATH: a short name of `kinds.rs` and the rest (`cm/a`, `w/a/status`), or a whole path.
//! - BODY: YAML on one line or on further lines that are indented. apiVersion and kind are filled in. In
//!   single quotes it is sent as it stands. `${a} + {…}` is the answer with label `a` with a merge patch.
//! - `${a.metadata.uid}` is a field of an answer, `${ns}` the namespace of this run; `hooks.rs` has variables
//!   for webhooks.

use std::fmt;

use super::kinds;

/// A named sequence of steps.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// One step; the texts still have their variables.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) verb: String,
    /// The name of a watch; empty for other verbs.
    pub(crate) watch: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) label: Option<String>,
}

/// A kind with a short name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alias {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
}

/// Reads the scenarios of a file.
pub(crate) fn parse(text: &str) -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().chain(["== end"]) {
        if let Some(name) = line.strip_prefix("== ") {
            if let Some(last) = scenarios.last_mut() {
                last.steps = lines.drain(..).map(|line| Step::parse(&line)).collect();
            }
            scenarios.push(Scenario { name: name.trim().to_owned(), steps: Vec::new() });
        } else if line.starts_with(' ') {
            let last = lines.last_mut().expect("a step before its further lines");
            last.push(' ');
            last.push_str(line.trim());
        } else if !line.is_empty() && !line.starts_with('#') {
            lines.push(line.to_owned());
        }
    }
    scenarios.pop();
    scenarios
}

// === impl Step ===

impl Step {
    /// Reads one step.
    pub(crate) fn parse(line: &str) -> Self {
        let (line, label) = match line.rsplit_once(" -> ") {
            Some((line, label)) => (line, Some(label.trim().to_owned())),
            None => (line, None),
        };
        let (verb, mut rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let mut watch = String::new();
        if verb == "WATCH" {
            let (name, after) = rest.split_once(' ').expect("a watch has a name");
            (watch, rest) = (name.to_owned(), after);
        }
        let (path, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut headers = Vec::new();
        while let Some(after) = rest.strip_prefix('@') {
            let (header, after) = after.split_once(' ').unwrap_or((after, ""));
            let (name, value) = header.split_once(':').expect("a header has a value");
            headers.push((name.to_owned(), value.to_owned()));
            rest = after;
        }
        let body = rest.trim().to_owned();
        Self { verb: verb.to_owned(), watch, path: path.to_owned(), headers, body, label }
    }

    /// Returns the path and query, and the kind of its short name.
    pub(crate) fn target(path: &str, namespace: &str) -> (String, Option<Alias>) {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let (short, rest) = path.split_once('/').map_or((path, ""), |(short, rest)| (short, rest));
        let alias = kinds::alias(short);
        let mut full = match alias {
            None => path.to_owned(),
            Some(alias) => {
                let root = if alias.api_version == "v1" { "api" } else { "apis" };
                let place = if alias.namespaced { format!("namespaces/{namespace}/") } else { String::new() };
                let slash = if rest.is_empty() { "" } else { "/" };
                format!("/{root}/{}/{place}{}{slash}{rest}", alias.api_version, alias.plural)
            }
        };
        if let Some(query) = query {
            full.push('?');
            full.push_str(query);
        }
        (full, alias)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verb)?;
        for part in [&self.watch, &self.path] {
            if !part.is_empty() {
                write!(f, " {part}")?;
            }
        }
        for (name, value) in &self.headers {
            write!(f, " @{name}:{value}")?;
        }
        if !self.body.is_empty() {
            write!(f, " {}", self.body)?;
        }
        self.label.iter().try_for_each(|label| write!(f, " -> {label}"))
    }
}
