//! Where one event of a watch ends and the next begins, and what else a server says around objects.
//!
//! Objects are found and left as raw bytes. A line is kept only while it is being completed, and one longer than
//! the limit is dropped as it arrives: memory is bounded by the limit, not by what is sent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use kube::core::Status;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cache::object::raw::Raw;

/// Cuts a byte stream into lines.
#[derive(Debug)]
pub(in crate::cache) struct Lines {
    /// The beginning of a line whose end has not come.
    begun: BytesMut,
    /// What came after it and has not been looked at. A line that came in one piece is given out of here, uncopied.
    rest: Bytes,
    /// Longest line given out; 0 = no limit.
    limit: usize,
    /// Inside a line that is too long, up to its end.
    dropping: bool,
}

/// One line, or what became of it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cache) enum Line {
    Whole(Bytes),
    /// Longer than the limit and gone; told once, when the limit is passed. This is its beginning.
    TooLong(Bytes),
}

/// One watch event, its object unread.
#[derive(Debug)]
pub(in crate::cache) struct Event<'a> {
    pub(in crate::cache) kind: Cow<'a, str>,
    pub(in crate::cache) object: Raw<'a>,
}

/// One watch event in any order of its members.
#[derive(Deserialize)]
struct AnyEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// What a bookmark carries.
#[derive(Debug, Deserialize)]
pub(in crate::cache) struct Bookmark {
    pub(in crate::cache) metadata: BookmarkMeta,
}

/// The metadata of a bookmark.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cache) struct BookmarkMeta {
    pub(in crate::cache) resource_version: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

// === impl Lines ===

impl Lines {
    pub(in crate::cache) fn new(limit: usize) -> Self {
        Self { begun: BytesMut::new(), rest: Bytes::new(), limit, dropping: false }
    }

    /// Takes the next bytes of the stream.
    pub(in crate::cache) fn push(&mut self, bytes: Bytes) {
        self.rest = if self.rest.is_empty() {
            bytes
        } else {
            // Only if there was more to give out.
            [&self.rest[..], &bytes[..]].concat().into()
        };
    }

    /// Gives the next complete, non-empty line; `None` until more bytes come.
    pub(in crate::cache) fn next(&mut self) -> Option<Line> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.rest) else { return self.incomplete() };
            let mut line = self.rest.split_to(end + 1);
            if std::mem::take(&mut self.dropping) {
                continue;
            }
            line.truncate(end);
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(&line);
                line = std::mem::take(&mut self.begun).freeze();
            }
            if self.exceeds(line.len()) {
                return Some(Line::TooLong(line));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Line::Whole(line));
            }
        }
    }

    fn incomplete(&mut self) -> Option<Line> {
        let rest = std::mem::take(&mut self.rest);
        if self.dropping {
            return None;
        }
        self.begun.extend_from_slice(&rest);
        if self.exceeds(self.begun.len()) {
            self.dropping = true;
            return Some(Line::TooLong(std::mem::take(&mut self.begun).freeze()));
        }
        None
    }

    fn exceeds(&self, length: usize) -> bool {
        self.limit != 0 && length > self.limit
    }
}

// === impl Event ===

impl<'a> Event<'a> {
    /// Reads a line. An object that came or went in the order every server writes is left unread, so that it is walked
    /// once, by who opens it.
    pub(in crate::cache) fn read(line: &'a [u8]) -> serde_json::Result<Self> {
        if let Some((kind, bytes)) = cut(line) {
            return Ok(Self { kind: Cow::Borrowed(kind), object: Raw::in_event(bytes) });
        }
        let AnyEvent { kind, object } = serde_json::from_slice(line)?;
        Ok(Self { kind, object: object.get().as_bytes().into() })
    }
}

/// Parts an ordinary event about an object from what stands before the object.
fn cut(line: &[u8]) -> Option<(&'static str, &[u8])> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    ["ADDED", "MODIFIED", "DELETED"].into_iter().find_map(|kind| {
        let object = rest.strip_prefix(kind.as_bytes())?.strip_prefix(br#"","object":"#)?;
        Some((kind, object))
    })
}

// === impl Bookmark ===

impl Bookmark {
    /// Whether it ends the initial events of a watch.
    pub(in crate::cache) fn ends_initial_events(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get("k8s.io/initial-events-end")).is_some_and(|value| value == "true")
    }
}

// === Status ===

/// Reads the server's own words about a failure; text that is no Status is its own message.
pub(in crate::cache) fn read_status(code: u16, body: &[u8]) -> Status {
    let mut status: Status = serde_json::from_slice(body).unwrap_or_else(|_| {
        // Not what a Go server writes; what matters of it is read all the same.
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

/// Whether the position asked for leads nowhere: it is forgotten, or the server, set back, has not come so far; or the
/// next event tells of an object that was deleted because it could not be read, and will be met again there.
pub(in crate::cache) fn is_expired(status: &Status) -> bool {
    let reason = status.reason.as_str();
    let ahead = status.code == 504 && status.message.contains("Too large resource version");
    status.code == 410 || matches!(reason, "Expired" | "Gone" | "StoreReadError") || ahead
}

#[cfg(test)]
mod tests;
