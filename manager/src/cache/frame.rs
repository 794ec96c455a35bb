//! Where one event of a watch ends and the next begins, and what else a server says around objects.
//!
//! Objects are found and left as raw bytes. A line is kept only while it is being completed, and one longer than
//! the limit is dropped as it arrives: memory is bounded by the limit, not by what is sent.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Cursor, Malformed};

/// Cuts a byte stream into lines.
#[derive(Debug)]
pub(super) struct Lines {
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
pub(super) enum Line {
    Whole(Bytes),
    /// Longer than the limit and gone; told once, when the limit is passed. This is its beginning.
    TooLong(Bytes),
}

/// One watch event, its object unread.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) object: Raw<'a>,
}

/// Bytes that begin with an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether the rest of the watch event follows that it came in, instead of nothing.
    in_event: bool,
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
        Self { begun: BytesMut::new(), rest: Bytes::new(), limit, dropping: false }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: Bytes) {
        self.rest = if self.rest.is_empty() {
            bytes
        } else {
            // Only if there was more to give out.
            [&self.rest[..], &bytes[..]].concat().into()
        };
    }

    /// Gives the next complete, non-empty line; `None` until more bytes come.
    pub(super) fn next(&mut self) -> Option<Line> {
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

// === impl Event, Raw ===

impl<'a> Event<'a> {
    /// Reads a line. An object that came or went in the order every server writes is left unread, so that it is walked
    /// once, by who opens it.
    pub(super) fn read(line: &'a [u8]) -> serde_json::Result<Self> {
        if let Some((kind, bytes)) = cut(line) {
            return Ok(Self { kind: Cow::Borrowed(kind), object: Raw { bytes, in_event: true } });
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

impl Raw<'_> {
    /// Makes sure that only what may follow the object does.
    pub(super) fn end(self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        // An event has two members; a server that knows a third one may send it.
        while self.in_event && !cursor.take(b'}') {
            if !(cursor.take(b',') && cursor.value()?.text.starts_with('"') && cursor.take(b':')) {
                return cursor.fail("a comma or the end of the event");
            }
            cursor.value()?;
        }
        cursor.end()
    }
}

impl<'a> From<&'a [u8]> for Raw<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, in_event: false }
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

    /// Whether the position asked for leads nowhere: it is forgotten, or the server, set back, has not come so far; or
    /// the next event tells of an object that was deleted because it could not be read, and will be met again there.
    pub(super) fn is_expired(&self) -> bool {
        let reason = self.reason.as_str();
        let ahead = self.code == 504 && self.message.contains("Too large resource version");
        self.code == 410 || matches!(reason, "Expired" | "Gone" | "StoreReadError") || ahead
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
            lines.push(Bytes::from_static(head));
            let mut found = drain(&mut lines);
            lines.push(Bytes::from_static(tail));
            found.extend(drain(&mut lines));
            assert_eq!(found, [whole("one"), whole("two\r"), whole("three")], "cut at {cut}");
        }
    }

    #[test]
    fn a_line_that_came_in_one_piece_is_not_copied() {
        let stream = Bytes::from(b"one\ntwo\nthr".to_vec());
        let mut lines = Lines::new(0);
        lines.push(stream.clone());
        let Some(Line::Whole(one)) = lines.next() else { panic!("a line is there") };
        assert_eq!(one.as_ptr(), stream.as_ptr());
        lines.push(Bytes::from_static(b"ee\n"));
        assert_eq!(
            drain(&mut lines),
            [whole("two"), whole("three")],
            "also when more comes before it is asked for"
        );
    }

    #[test]
    fn a_line_over_the_limit_is_dropped_once_and_the_next_is_whole() {
        let mut lines = Lines::new(4);
        lines.push(Bytes::from_static(b"1234\n12345"));
        assert_eq!(drain(&mut lines), [whole("1234"), Line::TooLong(Bytes::from_static(b"12345"))]);
        for _ in 0..100 {
            lines.push(vec![b'x'; 1000].into());
            assert_eq!(drain(&mut lines), []);
            assert!(lines.begun.capacity() < 4096, "nothing of it is kept");
        }
        lines.push(Bytes::from_static(b"x\nok\n"));
        assert_eq!(drain(&mut lines), [whole("ok")]);
    }

    #[test]
    fn an_event_is_read_in_any_order_and_with_members_of_a_later_server() {
        for line in [
            r#"{"type":"ADDED","object":{"a":{}}}"#,
            r#"{"type":"ADDED","object":{"a":{}} , "at":[{}] }"#,
            r#"{"object":{"a":{}},"type":"ADDED"}"#,
        ] {
            let event = Event::read(line.as_bytes()).unwrap();
            let mut cursor = Cursor::new(event.object.bytes).unwrap();
            let object = cursor.value().unwrap();
            assert_eq!((&*event.kind, object.text), ("ADDED", r#"{"a":{}}"#), "{line}");
            event.object.end(&mut cursor).unwrap();
        }
    }

    #[test]
    fn what_follows_an_object_is_the_end_of_its_event_and_nothing_else() {
        for rest in ["", "}}", "}x", ",}", r#","a"}"#, r#","a":}"#, ",1:2}"] {
            let line = format!(r#"{{"type":"MODIFIED","object":{{}}{rest}"#);
            let event = Event::read(line.as_bytes()).unwrap();
            let mut cursor = Cursor::new(event.object.bytes).unwrap();
            cursor.value().unwrap();
            assert!(event.object.end(&mut cursor).is_err(), "{line}");
        }
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
