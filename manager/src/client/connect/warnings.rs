//! Logs the warnings of the API server, each text once.
//!
//! A `Warning` header of code 299 reports a deprecated version, an unknown field, or an admission policy that
//! would reject the object. It comes with a successful response, so it stays unseen unless the client logs
//! it. The stack of the Lease has no such layer: as little code as possible is between a renewal and its
//! response.
//!
//! Differs from client-go, which logs every occurrence of a warning by default.
//! Format: [RFC 7234, 5.5](https://www.rfc-editor.org/rfc/rfc7234#section-5.5).
//!
//! # Invariants
//! 1. A text is not logged again while it is among the last [`REMEMBERED`] different ones.
//! 2. Each log entry is one line of at most [`MAX_TEXT`] characters of the text, also for hostile texts.

use std::sync::Arc;

use futures_util::TryFutureExt as _;
use http::header::WARNING;
use http::{HeaderMap, Request};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Service as _, service_fn};

use crate::util::BoundedMap;

use super::Stack;

/// Number of logged warnings that are remembered, so that they are not logged again.
const REMEMBERED: usize = 512;
/// Maximum number of characters of a warning that are logged; the API server cuts warnings of webhooks at
/// 256.
const MAX_TEXT: usize = 512;
/// The code in all `Warning` headers of the API server: "miscellaneous persistent warning".
const PERSISTENT: &str = "299";

/// The warnings of the API server already logged by one [`Connections`](super::Connections), all roles
/// together.
#[derive(Clone)]
pub(super) struct Warnings {
    /// The texts of warnings that were logged. Locked for single look-ups only.
    logged: Arc<Mutex<BoundedMap<Arc<str>, ()>>>,
}

// === impl Warnings ===

impl Warnings {
    pub(super) fn new() -> Self {
        Self { logged: Arc::new(Mutex::new(BoundedMap::new(REMEMBERED))) }
    }

    /// Makes a stack that logs the warnings in the responses of `inner`.
    pub(super) fn of(&self, mut inner: Stack) -> Stack {
        let warnings = self.clone();
        Stack::new(service_fn(move |request: Request<Body>| {
            let (warnings, method, uri) = (warnings.clone(), request.method().clone(), request.uri().clone());
            inner.call(request).inspect_ok(move |response| {
                if response.headers().contains_key(WARNING) {
                    warnings.log(&method, uri.path(), response.headers());
                }
            })
        }))
    }

    fn log(&self, method: &http::Method, path: &str, headers: &HeaderMap) {
        for header in headers.get_all(WARNING) {
            for text in texts(&String::from_utf8_lossy(header.as_bytes())) {
                if self.logged.lock().insert(Arc::from(&*text), (), Instant::now()).is_none() {
                    tracing::warn!(%method, path, warning = text, "warning from the API server");
                }
            }
        }
    }
}

/// Reads the texts of the warnings in one `Warning` header and makes them printable. Stops at the first
/// syntax error and ignores the rest of the header.
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

/// Reads one warning, `code agent "text" ["date"]`, and the comma after it. Returns the text, if the code is
/// [`PERSISTENT`], and the rest of the header; `None` after a syntax error.
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

/// Reads a string in quotes, in which a backslash escapes the next character. Returns the string and the rest
/// of the header; `None` without the closing quote.
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

/// Escapes the characters that could break a log line or control a terminal, and cuts the text at
/// [`MAX_TEXT`] characters.
fn printable(text: &str) -> String {
    let escaped = |c: char| if is_control(c) { c.escape_unicode().to_string() } else { c.to_string() };
    let end = if text.chars().nth(MAX_TEXT).is_some() { "…" } else { "" };
    text.chars().take(MAX_TEXT).map(escaped).collect::<String>() + end
}

/// Returns whether a character is a control character, a line or paragraph separator, or a mark of text
/// direction.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests;
