//! Status and text of an answer, in controller-runtime's format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bytes::Bytes;
use http::StatusCode;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};

/// Answer of a health endpoint: a status and a plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status of the answer: 200, 404, 405 or 500.
    pub status: StatusCode,
    /// The whole body of the answer, a plain text.
    pub body: String,
}

/// The options in the query of a request to a health endpoint.
#[derive(Debug, Default)]
pub(super) struct Options {
    verbose: bool,
    excluded: BTreeSet<String>,
}

// === impl Options ===

impl Options {
    pub(super) fn from_query(query: Option<&str>) -> Self {
        let mut options = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                // Any value counts: `?verbose=false` is verbose in controller-runtime too.
                "verbose" => options.verbose = true,
                "exclude" => {
                    options.excluded.insert(value.into_owned());
                }
                _ => {}
            }
        }
        options
    }
}

/// Runs the health checks of an endpoint that are not excluded and returns its answer. The answer has one
/// line for each check if one failed or `verbose` is set.
pub(super) fn aggregate<C>(
    options: &Options,
    checks: &BTreeMap<String, C>,
    run: impl Fn(&str, &C) -> Result<(), String>,
) -> Answer {
    let mut failed = false;
    let mut unknown = options.excluded.clone();
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
    if !failed && !options.verbose {
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
    // A write into a String cannot fail.
    writeln!(lines, "healthz check {verdict}").unwrap_or_default();
    Answer { status, body: lines }
}

// === impl Answer ===

impl Answer {
    /// Returns the answer for a single health check, with the reason of its failure.
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
