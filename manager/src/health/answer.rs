//! The text of an answer: which lines a prober reads, in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bytes::Bytes;
use http::StatusCode;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};

/// What an endpoint answers: a status and a plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200, 404, 405 or 500.
    pub status: StatusCode,
    /// The whole body.
    pub body: String,
}

/// What the query asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    verbose: bool,
    excluded: BTreeSet<String>,
}

// === impl Asked ===

impl Asked {
    pub(super) fn from_query(query: Option<&str>) -> Self {
        let mut asked = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                // Its presence counts, whatever its value: `?verbose=false` is verbose upstream too.
                "verbose" => asked.verbose = true,
                "exclude" => {
                    asked.excluded.insert(value.into_owned());
                }
                _ => {}
            }
        }
        asked
    }
}

/// Runs the checks that were not excluded and writes one line for each where lines are wanted.
pub(super) fn aggregate<C>(
    asked: &Asked,
    checks: &BTreeMap<String, C>,
    run: impl Fn(&str, &C) -> Result<(), String>,
) -> Answer {
    let mut failed = false;
    let mut unknown = asked.excluded.clone();
    let mut lines = String::new();
    for (name, check) in checks {
        let line = if unknown.remove(name) {
            format!("[+]{name} excluded: ok\n")
        } else if run(name, check).is_ok() {
            format!("[+]{name} ok\n")
        } else {
            failed = true;
            format!("[-]{name} failed: reason withheld\n")
        };
        lines.push_str(&line);
    }
    if checks.is_empty() {
        lines.push_str("[+]ping ok\n");
    }
    if !failed && !asked.verbose {
        return Answer { status: StatusCode::OK, body: "ok".to_owned() };
    }
    if !unknown.is_empty() {
        let names: Vec<_> = unknown.iter().map(|name| format!("{name:?}")).collect();
        lines.push_str("warn: some health checks cannot be excluded: no matches for ");
        lines.push_str(&names.join(","));
        lines.push('\n');
    }
    let (status, verdict) =
        if failed { (StatusCode::INTERNAL_SERVER_ERROR, "failed") } else { (StatusCode::OK, "passed") };
    // Writing into a String cannot fail.
    writeln!(lines, "healthz check {verdict}").unwrap_or_default();
    Answer { status, body: lines }
}

// === impl Answer ===

impl Answer {
    /// The answer of one check asked for by name: here the reason is shown.
    pub(super) fn single(outcome: Result<(), String>) -> Self {
        match outcome {
            Ok(()) => Self { status: StatusCode::OK, body: "ok".to_owned() },
            Err(reason) => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                body: format!("internal server error: {reason}\n"),
            },
        }
    }

    pub(super) fn not_found() -> Self {
        Self { status: StatusCode::NOT_FOUND, body: "404 page not found\n".to_owned() }
    }

    pub(super) fn method_not_allowed() -> Self {
        Self { status: StatusCode::METHOD_NOT_ALLOWED, body: "Method Not Allowed\n".to_owned() }
    }
}

impl From<Answer> for http::Response<Bytes> {
    fn from(answer: Answer) -> Self {
        let mut response = Self::new(Bytes::from(answer.body));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if answer.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}
