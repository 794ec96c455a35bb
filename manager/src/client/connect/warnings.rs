//! Logs what the API server warns of, each text once.
//!
//! A `Warning` header of code 299 is how the server says that a version is deprecated, a field is unknown, or an
//! admission policy would rather not. It rides on an answer that succeeded, so nobody sees it unless the client tells. The
//! Lease's own stack is left out: nothing may stand between a renewal and its answer.
//!
//! Differs from client-go, which logs a warning each time unless it is told otherwise.
//! Format: [RFC 7234, 5.5](https://www.rfc-editor.org/rfc/rfc7234#section-5.5).
//!
//! # Invariants
//! 1. A text is logged once while it is among the last [`REMEMBERED`] different ones.
//! 2. What is logged is one line of at most [`MAX_TEXT`] characters, whatever the server sent.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::header::WARNING;
use http::{HeaderMap, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tower::{BoxError, Layer, Service};

use crate::client::recent::Recent;

use super::ResponseBody;

/// Texts that are known to have been logged.
const REMEMBERED: usize = 512;
/// Characters of a text that are logged; the server itself cuts those of webhooks at 256.
const MAX_TEXT: usize = 512;
/// The code for a warning that says something about the request for good.
const PERSISTENT: &str = "299";

/// The warnings already logged by one [`Connections`](super::Connections), all roles together.
#[derive(Clone)]
pub(super) struct Warnings {
    /// Locked for a look-up.
    told: Arc<Mutex<Recent<String, ()>>>,
}

/// Puts [`Warned`] around a service.
pub(super) struct WarningLayer {
    pub(super) warnings: Warnings,
}

/// A service whose answers' warnings are logged.
#[derive(Clone)]
pub(super) struct Warned<S> {
    inner: S,
    warnings: Warnings,
}

// === impl Warnings ===

impl Warnings {
    pub(super) fn new() -> Self {
        Self { told: Arc::new(Mutex::new(Recent::new(REMEMBERED))) }
    }

    fn tell(&self, method: &http::Method, path: &str, headers: &HeaderMap) {
        for header in headers.get_all(WARNING) {
            for text in texts(&String::from_utf8_lossy(header.as_bytes())) {
                if self.is_new(&text) {
                    tracing::warn!(%method, path, warning = text, "the API server warns");
                }
            }
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut new = false;
        self.told.lock().get_or_insert_with(&text.to_owned(), || new = true);
        new
    }
}

impl fmt::Debug for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warnings")
    }
}

// === impl Warned ===

impl<S> Layer<S> for WarningLayer {
    type Service = Warned<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Warned { inner, warnings: self.warnings.clone() }
    }
}

impl<S> Service<Request<Body>> for Warned<S>
where
    S: Service<Request<Body>, Response = Response<ResponseBody>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let warnings = self.warnings.clone();
        let method = request.method().clone();
        let uri = request.uri().clone();
        let sending = self.inner.call(request);
        Box::pin(async move {
            let response = sending.await?;
            if response.headers().contains_key(WARNING) {
                warnings.tell(&method, uri.path(), response.headers());
            }
            Ok(response)
        })
    }
}

/// Reads the texts of one header, ready to be logged. What cannot be read ends it: the rest would be guessing.
fn texts(header: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = header.trim_start();
    while let Some((warning, after)) = warning(rest) {
        if let Some(text) = warning.filter(|text| !text.is_empty()) {
            texts.push(printable(&text));
        }
        rest = after;
    }
    texts
}

/// Reads `code agent "text" ["date"]` and the comma after it; the text is there if the code is the one for warnings.
fn warning(header: &str) -> Option<(Option<String>, &str)> {
    let (code, rest) = header.split_once(' ')?;
    let (agent, rest) = rest.trim_start().split_once(' ')?;
    if code.len() != 3 || !code.bytes().all(|byte| byte.is_ascii_digit()) || agent.is_empty() {
        return None;
    }
    let (text, mut rest) = quoted(rest.trim_start())?;
    if let Some((_date, after)) = quoted(rest.trim_start()) {
        rest = after;
    }
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(',').map(str::trim_start).or_else(|| rest.is_empty().then_some(""))?;
    Some(((code == PERSISTENT).then_some(text), rest))
}

/// Reads a string in quotes, in which a backslash takes the next character as it is.
fn quoted(header: &str) -> Option<(String, &str)> {
    let inner = header.strip_prefix('"')?;
    let mut text = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((text, &inner[at + 1..])),
            '\\' => text.push(characters.next()?.1),
            other => text.push(other),
        }
    }
    None
}

/// Makes one line of it that no terminal takes for orders, and cuts it.
fn printable(text: &str) -> String {
    let mut line = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == MAX_TEXT {
            line.push('…');
            break;
        }
        if is_an_order(character) {
            line.extend(character.escape_unicode());
        } else {
            line.push(character);
        }
    }
    line
}

/// Control characters, line and paragraph ends, and what turns the direction of writing.
fn is_an_order(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_warning_of_a_header_is_read() {
        let check = |header: &str, expected: &[&str]| assert_eq!(texts(header), expected, "{header}");
        check(r#"299 - "unknown field \"spec.bogus\"""#, &[r#"unknown field "spec.bogus""#]);
        check(
            r#"299 - "a, b", 299 - "c\\d" "Wed, 21 Oct 2015 07:28:00 GMT",299 x:1 "e""#,
            &["a, b", r"c\d", "e"],
        );
        check(r#"110 - "stale", 299 - "real""#, &["real"]);
        check(r#"299 - """#, &[]);
    }

    #[test]
    fn what_cannot_be_read_ends_the_header() {
        for header in [
            "",
            "299",
            "299 -",
            "299 - text",
            r#"299 - "open"#,
            r#"29 - "x""#,
            r#"abc - "x""#,
            r#"299 - "x" y"#,
            r#"299 - "x\"#,
        ] {
            assert!(texts(header).is_empty(), "{header}");
        }
        assert_eq!(texts(r#"299 - "first", nonsense"#), ["first"]);
    }

    #[test]
    fn a_text_is_one_printable_line_of_bounded_length() {
        assert_eq!(printable("a\nb\u{1b}[31m\u{202e}c"), "a\\u{a}b\\u{1b}[31m\\u{202e}c");
        let long = printable(&"é".repeat(MAX_TEXT + 9));
        assert_eq!(long.chars().count(), MAX_TEXT + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_text_is_new_once_and_memory_is_bounded() {
        let warnings = Warnings::new();
        assert!(warnings.is_new("deprecated"));
        for number in 0..10_000 {
            assert!(warnings.is_new(&number.to_string()));
            assert!(!warnings.is_new("deprecated"), "seen all the time, after {number}");
        }
    }
}
