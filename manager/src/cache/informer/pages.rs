//! Cuts a page of a list into its items while it arrives.
//!
//! Only nesting and strings are followed, so an item that is no JSON within its braces costs itself alone, and one
//! longer than the limit is dropped as it arrives. What stands around the items is small and read at the end.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

/// Most bytes kept of what stands around the items: a version and a token. More is no list.
const ENVELOPE: usize = 64 * 1024;

/// One page, as far as it has come.
pub(in crate::cache) struct PageReader {
    /// Everything but the items, `[]` in their place.
    envelope: BytesMut,
    /// The item whose end has not come, with the white space before it.
    item: BytesMut,
    /// Longest item given out; 0 = no limit.
    limit: usize,
    /// Inside an item that was too long, up to its end.
    dropping: bool,
    place: Place,
    /// Open brackets, those of the envelope included.
    depth: usize,
    text: Text,
    /// Where in the envelope the last string began, which is a key if a colon follows.
    string: usize,
}

/// Where the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Envelope,
    /// Behind the key `items`.
    Key,
    /// Within an item, or in the white space around it.
    Item,
    /// At the comma behind an item, or at the end of all.
    Between,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Outside,
    Inside,
    /// Behind a backslash.
    Escaped,
}

/// One item, or what became of it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cache) enum Item {
    Whole(Bytes),
    /// Longer than the limit and gone; this is its beginning.
    TooLong(Bytes),
}

/// Where a page stands in its list.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cache) struct PageMeta {
    pub(in crate::cache) resource_version: String,
    /// Asks for the next page; `None` or empty on the last.
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    metadata: PageMeta,
    /// Asked for: what has none is no list, whatever it says, and taken for an empty one it would empty the store.
    #[serde(borrow)]
    items: &'a RawValue,
}

// === impl PageReader ===

impl PageReader {
    pub(in crate::cache) fn new(limit: usize) -> Self {
        Self {
            envelope: BytesMut::new(),
            item: BytesMut::new(),
            limit,
            dropping: false,
            place: Place::Envelope,
            depth: 0,
            text: Text::Outside,
            string: 0,
        }
    }

    /// Takes bytes of the page up to the end of an item, and gives that; `None` when it has taken all of them.
    pub(in crate::cache) fn next(&mut self, bytes: &mut &[u8]) -> Option<Item> {
        while let Some((&byte, behind)) = bytes.split_first() {
            if self.place != Place::Item {
                self.outside(byte);
                *bytes = behind;
                continue;
            }
            let end = self.end_of_item(bytes);
            let (item, rest) = bytes.split_at_checked(end.unwrap_or(bytes.len())).unwrap_or((*bytes, &[]));
            *bytes = rest;
            let too_long = self.keep(item);
            let whole = if end.is_some() { self.complete() } else { None };
            if let Some(found) = too_long.or(whole) {
                return Some(found);
            }
        }
        None
    }

    /// Reads what stands around the items, once everything has come.
    pub(in crate::cache) fn end(self) -> serde_json::Result<PageMeta> {
        let envelope: Envelope<'_> = serde_json::from_slice(&self.envelope)?;
        match envelope.items.get() {
            "[]" | "null" => Ok(envelope.metadata),
            _ => Err(serde_json::Error::custom("items is not a list")),
        }
    }

    /// Takes a byte of what stands around the items.
    fn outside(&mut self, byte: u8) {
        let is_comma_of_items = self.place == Place::Between && byte == b',';
        if self.envelope.len() < ENVELOPE && !is_comma_of_items {
            self.envelope.extend_from_slice(&[byte]);
        }
        let in_text = self.text != Text::Outside;
        self.step(byte);
        if in_text {
            return;
        }
        if byte == b'"' {
            self.string = self.envelope.len();
        }
        self.place = self.next_place(byte);
    }

    /// Moves to the comma behind an item, or to the end of all: nearly all of a page, so in one go. Returns where it is;
    /// `None` if it has not come.
    fn end_of_item(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if self.text == Text::Inside {
                at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
            }
            let byte = *bytes.get(at)?;
            if self.text == Text::Outside && self.depth == 2 && matches!(byte, b',' | b']') {
                return Some(at);
            }
            self.step(byte);
            at += 1;
        }
    }

    /// Moves over a byte.
    fn step(&mut self, byte: u8) {
        match (self.text, byte) {
            (Text::Inside, b'"') => self.text = Text::Outside,
            (Text::Inside, b'\\') => self.text = Text::Escaped,
            (Text::Escaped, _) | (Text::Outside, b'"') => self.text = Text::Inside,
            (Text::Outside, b'{' | b'[') => self.depth += 1,
            (Text::Outside, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            (Text::Inside | Text::Outside, _) => {}
        }
    }

    fn next_place(&self, byte: u8) -> Place {
        match (self.place, byte) {
            (Place::Envelope, b':') if self.depth == 1 && self.is_items_key() => Place::Key,
            (Place::Key, b'[') if self.depth == 2 => Place::Item,
            (Place::Between, b',') => Place::Item,
            (Place::Key, b' ' | b'\n' | b'\r' | b'\t') => Place::Key,
            (Place::Key | Place::Between, _) => Place::Envelope,
            (place, _) => place,
        }
    }

    /// Whether the string before the colon that ends the envelope is `items`.
    fn is_items_key(&self) -> bool {
        let key = self.envelope.get(self.string..).unwrap_or_default();
        key.strip_prefix(b"items\"").is_some_and(|rest| rest.trim_ascii() == b":")
    }

    fn keep(&mut self, bytes: &[u8]) -> Option<Item> {
        if self.dropping {
            return None;
        }
        let bytes = if self.item.is_empty() { bytes.trim_ascii_start() } else { bytes };
        let room = match self.limit {
            0 => bytes.len(),
            limit => limit.saturating_add(1).saturating_sub(self.item.len()),
        };
        self.item.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.dropping = self.limit != 0 && self.item.len() > self.limit;
        self.dropping.then(|| Item::TooLong(std::mem::take(&mut self.item).freeze()))
    }

    /// Gives the item whose end has come, if there was one.
    fn complete(&mut self) -> Option<Item> {
        self.place = Place::Between;
        let item = self.item.split().freeze();
        let item = item.slice_ref(item.trim_ascii());
        let dropped = std::mem::take(&mut self.dropping);
        (!dropped && !item.is_empty()).then_some(Item::Whole(item))
    }
}

// === impl PageMeta ===

impl PageMeta {
    pub(in crate::cache) fn next(&self) -> Option<&str> {
        self.next.as_deref().filter(|token| !token.is_empty())
    }
}

#[cfg(test)]
mod tests;
