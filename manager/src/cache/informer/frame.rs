//! Cuts a watch response into lines, and reads events, bookmarks and Status errors.
//!
//! Objects stay raw bytes. An incomplete line is buffered up to the limit, and a longer one is dropped as it
//! arrives, so memory is bounded by the limit and not by the response.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use kube::core::Status;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cache::informer::Limited;
use crate::cache::object::Raw;

/// Cuts the byte stream of a watch response into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The beginning of a line of the response, of which the end has not arrived.
    partial: BytesMut,
    /// Longest line that is returned whole, in bytes.
    limit: usize,
    /// Whether bytes are dropped up to the end of a line that is too long.
    dropping: bool,
}

/// One watch event with its object unparsed.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    /// The event's `type`: `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub(crate) event_type: Cow<'a, str>,
    pub(crate) object: Raw<'a>,
}

/// A watch event with its members in any order.
#[derive(Deserialize)]
struct AnyEvent<'a> {
    #[serde(rename = "type", borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The object of a bookmark event, as far as it is read.
#[derive(Debug, Deserialize)]
pub(crate) struct Bookmark {
    pub(crate) metadata: BookmarkMeta,
}

/// The metadata of a bookmark event: its resourceVersion and annotations.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BookmarkMeta {
    pub(crate) resource_version: String,
    annotations: Option<BTreeMap<String, String>>,
}

// === impl Lines ===

impl Lines {
    /// Makes a reader of lines that returns lines of up to `limit` bytes whole.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Consumes `bytes` up to the end of a non-empty line and returns the line; `None` when all bytes are
    /// consumed. A line that arrived in one chunk is a slice of `bytes`, not a copy.
    pub(crate) fn next(&mut self, bytes: &mut Bytes) -> Option<Limited> {
        loop {
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                return self.buffer(&std::mem::take(bytes));
            };
            let mut line = bytes.split_to(end + 1);
            if std::mem::take(&mut self.dropping) {
                continue;
            }
            line.truncate(end);
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&line);
                line = std::mem::take(&mut self.partial).freeze();
            }
            if line.len() > self.limit {
                return Some(Limited::TooLong(line));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Limited::Whole(line));
            }
        }
    }

    /// Adds bytes without a line end to the partial line; returns its beginning once it is longer than the
    /// limit.
    fn buffer(&mut self, bytes: &[u8]) -> Option<Limited> {
        if self.dropping {
            return None;
        }
        self.partial.extend_from_slice(bytes);
        self.dropping = self.partial.len() > self.limit;
        self.dropping.then(|| Limited::TooLong(std::mem::take(&mut self.partial).freeze()))
    }
}

// === impl Event ===

impl<'a> Event<'a> {
    /// Reads a watch event from a line. If its members stand in the order that API servers write, the object
    /// is not parsed here, so that its bytes are scanned only once, by
    /// [`Scan::open`](crate::cache::object::Scan::open).
    pub(crate) fn read(line: &'a [u8]) -> serde_json::Result<Self> {
        if let Some((event_type, bytes)) = split_ordinary(line) {
            tracing::trace!(event_type, "watch event");
            return Ok(Self { event_type: Cow::Borrowed(event_type), object: Raw::in_event(bytes) });
        }
        let AnyEvent { event_type, object } = serde_json::from_slice(line)?;
        Ok(Self { event_type, object: object.get().as_bytes().into() })
    }
}

/// Splits a watch event of an object, as API servers write it, into its type and the bytes from the object
/// on; `None` for any other line.
fn split_ordinary(line: &[u8]) -> Option<(&'static str, &[u8])> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    ["ADDED", "MODIFIED", "DELETED"].into_iter().find_map(|event_type| {
        let object = rest.strip_prefix(event_type.as_bytes())?.strip_prefix(br#"","object":"#)?;
        Some((event_type, object))
    })
}

// === impl Bookmark ===

impl Bookmark {
    /// Returns whether this bookmark ends the initial events of a watch.
    pub(crate) fn ends_initial_events(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get("k8s.io/initial-events-end")).is_some_and(|value| value == "true")
    }
}

// === Status ===

/// Reads the Status in the body of a failed request. A body that is no JSON becomes the message, up to 200
/// characters. `code` is the HTTP status, for a body without a code.
pub(crate) fn read_status(code: u16, body: &[u8]) -> Status {
    let mut status: Status = serde_json::from_slice(body).unwrap_or_else(|_| {
        // A Status that is not written by a Go server may not parse as a whole; these three fields decide.
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = || String::from_utf8_lossy(body).chars().take(200).collect::<String>().trim().to_owned();
        Status {
            code: json["code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or_default(),
            reason: json["reason"].as_str().unwrap_or_default().to_owned(),
            message: json["message"].as_str().map_or_else(text, str::to_owned),
            ..Status::default()
        }
    });
    if status.code == 0 {
        status.code = code;
    }
    status
}

/// Returns whether this error of the server means that a watch cannot resume from its resource version. The
/// version has expired, or it is newer than any of a server that was restored from a backup, or the next
/// event is the deletion of an object that the server could not read (`StoreReadError`), so that each retry
/// would fail on the same event.
pub(crate) fn is_expired(status: &Status) -> bool {
    let reason = status.reason.as_str();
    let ahead = status.code == 504 && status.message.contains("Too large resource version");
    status.code == 410 || matches!(reason, "Expired" | "Gone" | "StoreReadError") || ahead
}

#[cfg(test)]
mod tests;
