//! Cuts a page of a list into its items while it arrives.
//!
//! Only brackets and strings are tracked, so invalid JSON inside the braces of one item does not affect the
//! others. An item longer than the limit is dropped as it arrives. The JSON around the items, called the
//! envelope, is small and parsed at the end.

use bytes::BytesMut;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::cache::informer::Limited;

/// Largest number of bytes that are kept of the envelope, the JSON of a list page around its items. It holds
/// a version and a continue token.
const MAX_ENVELOPE: usize = 64 * 1024;

/// Reads one page of a list chunk by chunk, and cuts it into its items.
#[derive(Default)]
pub(crate) struct PageReader {
    /// The JSON of the page with an empty `items` array.
    envelope: BytesMut,
    /// The beginning of an item of the page, of which the end has not arrived.
    item: BytesMut,
    /// Longest item that is returned whole, in bytes.
    limit: usize,
    /// Whether bytes are dropped up to the end of an item that is too long.
    dropping: bool,
    position: Position,
    /// Number of open brackets in the JSON of the page, including those of the envelope.
    depth: usize,
    string: StringState,
    /// Offset in the envelope at which the last JSON string began. The string is a key if a colon follows.
    string_start: usize,
}

/// The part of a list page that the next byte belongs to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Envelope,
    /// The next byte is after the key `items` of the page and before its array.
    ItemsKey,
    /// The next byte is in an item of the list or in the white space around it.
    Item,
    /// The next byte is the comma after an item, or the end of the array of items.
    AfterItem,
}

/// Whether the next byte of a list page is in a JSON string.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum StringState {
    #[default]
    Outside,
    Inside,
    /// The next byte is inside a JSON string, right after a backslash.
    Escaped,
}

/// The metadata of a list, as one page of it contains it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    /// Token to request the next page of the list; `None` or empty on the last page.
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    metadata: PageMeta,
    /// The items of the list, which are required. A body without `items` is no list; if it were read as an
    /// empty one, the store would lose its objects.
    #[serde(borrow)]
    items: &'a RawValue,
}

// === impl PageReader ===

impl PageReader {
    /// Makes a reader of one page that returns items of up to `limit` bytes whole.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Consumes `bytes` up to the end of an item of the list and returns the item; `None` when all bytes are
    /// consumed.
    pub(crate) fn next(&mut self, bytes: &mut &[u8]) -> Option<Limited> {
        while let Some((&byte, after)) = bytes.split_first() {
            if self.position != Position::Item {
                self.read_envelope(byte);
                *bytes = after;
                continue;
            }
            let end = self.end_of_item(bytes);
            let (item, rest) = bytes.split_at_checked(end.unwrap_or(bytes.len())).unwrap_or((*bytes, &[]));
            *bytes = rest;
            let too_long = self.buffer_item(item);
            let whole = end.and_then(|_| self.finish_item());
            if let Some(item) = too_long.or(whole) {
                return Some(item);
            }
        }
        None
    }

    /// Parses the JSON around the items, after the whole page was read, and returns the metadata of the list.
    pub(crate) fn end(self) -> serde_json::Result<PageMeta> {
        let envelope: Envelope<'_> = serde_json::from_slice(&self.envelope)?;
        match envelope.items.get() {
            "[]" | "null" => Ok(envelope.metadata),
            _ => Err(serde_json::Error::custom("items is not a list")),
        }
    }

    /// Adds a byte outside the items to the envelope, the JSON around them, and finds the part of the next
    /// byte.
    fn read_envelope(&mut self, byte: u8) {
        let is_comma_of_items = self.position == Position::AfterItem && byte == b',';
        if self.envelope.len() < MAX_ENVELOPE && !is_comma_of_items {
            self.envelope.extend_from_slice(&[byte]);
        }
        let in_string = self.string != StringState::Outside;
        self.track(byte);
        if in_string {
            return;
        }
        if byte == b'"' {
            self.string_start = self.envelope.len();
        }
        self.position = self.next_position(byte);
    }

    /// Returns the offset of the comma or bracket that ends the current item; `None` if it has not arrived.
    /// One loop instead of a call per byte, since items are nearly all of a page.
    fn end_of_item(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.string == StringState::Inside {
                at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
            }
            let byte = *bytes.get(at)?;
            if self.string == StringState::Outside && self.depth == 2 && matches!(byte, b',' | b']') {
                return Some(at);
            }
            self.track(byte);
            at += 1;
        }
    }

    /// Updates the string state and the number of open brackets after a byte of the page's JSON.
    fn track(&mut self, byte: u8) {
        match (self.string, byte) {
            (StringState::Inside, b'"') => self.string = StringState::Outside,
            (StringState::Inside, b'\\') => self.string = StringState::Escaped,
            (StringState::Escaped, _) | (StringState::Outside, b'"') => self.string = StringState::Inside,
            (StringState::Outside, b'{' | b'[') => self.depth += 1,
            (StringState::Outside, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            (StringState::Inside | StringState::Outside, _) => {}
        }
    }

    fn next_position(&self, byte: u8) -> Position {
        match (self.position, byte) {
            (Position::Envelope, b':') if self.depth == 1 && self.is_items_key() => Position::ItemsKey,
            (Position::ItemsKey, b'[') if self.depth == 2 => Position::Item,
            (Position::AfterItem, b',') => Position::Item,
            (Position::ItemsKey, b' ' | b'\n' | b'\r' | b'\t') => Position::ItemsKey,
            (Position::ItemsKey | Position::AfterItem, _) => Position::Envelope,
            (position, _) => position,
        }
    }

    /// Returns whether the string before the colon at the end of the envelope is `items`.
    fn is_items_key(&self) -> bool {
        let key = self.envelope.get(self.string_start..).unwrap_or_default();
        key.strip_prefix(b"items\"").is_some_and(|rest| rest.trim_ascii() == b":")
    }

    /// Adds bytes to the current item; returns the beginning of the item once it is longer than the limit.
    fn buffer_item(&mut self, bytes: &[u8]) -> Option<Limited> {
        if self.dropping {
            return None;
        }
        let bytes = if self.item.is_empty() { bytes.trim_ascii_start() } else { bytes };
        let room = self.limit.saturating_add(1).saturating_sub(self.item.len());
        self.item.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.dropping = self.item.len() > self.limit;
        self.dropping.then(|| Limited::TooLong(std::mem::take(&mut self.item).freeze()))
    }

    /// Returns the list item that ends at this position, unless it was dropped or is only white space.
    fn finish_item(&mut self) -> Option<Limited> {
        self.position = Position::AfterItem;
        let item = self.item.split().freeze();
        let item = item.slice_ref(item.trim_ascii());
        let dropped = std::mem::take(&mut self.dropping);
        (!dropped && !item.is_empty()).then_some(Limited::Whole(item))
    }
}

// === impl PageMeta ===

impl PageMeta {
    /// Returns the continue token of the next page of the list; `None` on the last page.
    pub(crate) fn next(&self) -> Option<&str> {
        self.next.as_deref().filter(|token| !token.is_empty())
    }
}

#[cfg(test)]
mod tests;
