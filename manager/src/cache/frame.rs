//! Where one object ends and the next begins, in a watch stream and in a page of a list.
//!
//! Objects are found and left as raw bytes. A line is kept only while it is being completed, and one longer than
//! the limit is dropped as it arrives: memory is bounded by the limit, not by what is sent.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Cuts a byte stream into lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come, and what came after it.
    buffer: BytesMut,
    /// How much of `buffer` is known to hold no line end.
    searched: usize,
    /// Longest line given out; 0 = no limit.
    limit: usize,
    /// Inside a line that is too long, up to its end.
    dropping: bool,
}

/// One line, or what became of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Bytes),
    /// Longer than the limit and gone; told once, when the limit is passed.
    TooLong,
}

/// One watch event, its object unread.
#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// What a bookmark carries.
#[derive(Debug, Deserialize)]
pub(super) struct Bookmark {
    pub(super) metadata: BookmarkMeta,
}

/// The metadata of a bookmark.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BookmarkMeta {
    pub(super) resource_version: String,
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

/// One page of a list, its items unread.
#[derive(Debug, Deserialize)]
pub(super) struct Page<'a> {
    pub(super) metadata: PageMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// Where a page stands in its list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub(super) resource_version: String,
    /// Asks for the next page; `None` or empty on the last.
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

/// The server's own words about a failure.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) code: u16,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) details: Option<StatusDetails>,
}

/// Details of a [`Status`].
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusDetails {
    #[serde(default)]
    pub(super) uid: Option<String>,
    #[serde(default)]
    pub(super) retry_after_seconds: Option<u64>,
}

// === impl Lines ===

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, limit, dropping: false }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Gives the next complete, non-empty line; `None` until more bytes come.
    pub(super) fn next(&mut self) -> Option<Line> {
        loop {
            let end = self.buffer.get(self.searched..)?.iter().position(|byte| *byte == b'\n');
            let Some(end) = end.map(|at| self.searched + at) else { return self.incomplete() };
            let mut line = self.buffer.split_to(end + 1);
            self.searched = 0;
            if std::mem::take(&mut self.dropping) {
                continue;
            }
            line.truncate(end);
            if self.exceeds(end) {
                return Some(Line::TooLong);
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Line::Whole(line.freeze()));
            }
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    fn incomplete(&mut self) -> Option<Line> {
        self.searched = self.buffer.len();
        if self.dropping || self.exceeds(self.searched) {
            self.buffer = BytesMut::new();
            self.searched = 0;
            return (!std::mem::replace(&mut self.dropping, true)).then_some(Line::TooLong);
        }
        None
    }

    fn exceeds(&self, length: usize) -> bool {
        self.limit != 0 && length > self.limit
    }
}

// === impl Bookmark ===

impl Bookmark {
    /// Whether it ends the initial events of a watch.
    pub(super) fn ends_initial_events(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get("k8s.io/initial-events-end")).is_some_and(|value| value == "true")
    }
}

// === impl Page ===

impl<'a> Page<'a> {
    pub(super) fn read(body: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &'a [u8]> {
        self.items.iter().flatten().map(|raw| raw.get().as_bytes())
    }
}

impl PageMeta {
    pub(super) fn next(&self) -> Option<&str> {
        self.next.as_deref().filter(|token| !token.is_empty())
    }
}

// === impl Status ===

impl Status {
    /// Reads a failure; text that is no Status is its own message.
    pub(super) fn read(code: u16, body: &[u8]) -> Self {
        let mut status: Self = serde_json::from_slice(body).unwrap_or_else(|_| Self {
            message: String::from_utf8_lossy(body).chars().take(200).collect::<String>().trim().to_owned(),
            ..Self::default()
        });
        if status.code == 0 {
            status.code = code;
        }
        status
    }

    pub(super) fn is_expired(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone"
    }

    pub(super) fn retry_after(&self) -> Option<std::time::Duration> {
        self.details.as_ref()?.retry_after_seconds.map(std::time::Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(lines: &mut Lines) -> Vec<Line> {
        std::iter::from_fn(|| lines.next()).collect()
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn lines_are_found_however_the_stream_is_cut() {
        let stream = b"one\n\ntwo\r\nthree\n";
        for cut in 0..stream.len() {
            let mut lines = Lines::new(0);
            let (head, tail) = stream.split_at(cut);
            lines.push(head);
            let mut found = drain(&mut lines);
            lines.push(tail);
            found.extend(drain(&mut lines));
            assert_eq!(found, [whole("one"), whole("two\r"), whole("three")], "cut at {cut}");
        }
    }

    #[test]
    fn a_line_over_the_limit_is_dropped_once_and_the_next_is_whole() {
        let mut lines = Lines::new(4);
        lines.push(b"1234\n12345");
        assert_eq!(drain(&mut lines), [whole("1234"), Line::TooLong]);
        for _ in 0..100 {
            lines.push(&[b'x'; 1000]);
            assert_eq!(drain(&mut lines), []);
            assert!(lines.buffer.capacity() < 4096, "nothing of it is kept");
        }
        lines.push(b"x\nok\n");
        assert_eq!(drain(&mut lines), [whole("ok")]);
    }

    #[test]
    fn a_page_gives_its_items_as_they_were_written() {
        let body =
            br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":""},"items":[ {"a":1}, 2 ]}"#;
        let page = Page::read(body).unwrap();
        assert_eq!(page.items().collect::<Vec<_>>(), [&br#"{"a":1}"#[..], b"2"]);
        assert_eq!((page.metadata.resource_version.as_str(), page.metadata.next()), ("7", None));
        assert_eq!(
            Page::read(br#"{"metadata":{"resourceVersion":"7"},"items":null}"#).unwrap().items().count(),
            0
        );
    }

    #[test]
    fn only_an_annotation_that_says_true_ends_the_initial_events() {
        let bookmark = |value: &str| {
            let text = format!(
                r#"{{"metadata":{{"resourceVersion":"9","annotations":{{"k8s.io/initial-events-end":"{value}"}}}}}}"#
            );
            serde_json::from_str::<Bookmark>(&text).unwrap().ends_initial_events()
        };
        assert!(bookmark("true") && !bookmark("false"));
        let plain: Bookmark = serde_json::from_str(r#"{"metadata":{"resourceVersion":"9"}}"#).unwrap();
        assert!(!plain.ends_initial_events());
    }

    #[test]
    fn a_failure_in_plain_text_keeps_its_words() {
        let status = Status::read(429, b"Too many requests, please try again later.\n");
        assert_eq!(
            (status.code, status.message.as_str()),
            (429, "Too many requests, please try again later.")
        );
        let status = Status::read(429, br#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":3}}"#);
        assert_eq!(status.retry_after(), Some(std::time::Duration::from_secs(3)));
    }
}
