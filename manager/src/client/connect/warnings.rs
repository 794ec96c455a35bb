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

use std::sync::Arc;

use futures_util::TryFutureExt as _;
use http::header::WARNING;
use http::{HeaderMap, Request};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Service as _, service_fn};

use crate::util::LogOnce;

use super::Stack;

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
    logged: Arc<Mutex<LogOnce<Arc<str>>>>,
}

// === impl Warnings ===

impl Warnings {
    pub(super) fn new() -> Self {
        Self { logged: Arc::new(Mutex::new(LogOnce::new(REMEMBERED))) }
    }

    /// Logs the warnings in the answers of a stack.
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
                if self.logged.lock().is_first(Arc::from(&*text), Instant::now()) {
                    tracing::warn!(%method, path, warning = text, "the API server warns");
                }
            }
        }
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
mod tests;
