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
#[derive(Debug)]
pub(super) struct PageReader {
    /// Everything but the items, `[]` in their place.
    envelope: BytesMut,
    /// The item whose end has not come.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Envelope,
    /// Behind the key `items`.
    Key,
    /// Between items.
    Items,
    /// Within one that stands at this depth.
    Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Outside,
    Inside,
    /// Behind a backslash.
    Escaped,
}

/// One item, or what became of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Whole(Bytes),
    /// Longer than the limit and gone; this is its beginning.
    TooLong(Bytes),
}

/// Where a page stands in its list.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub(super) resource_version: String,
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
    pub(super) fn new(limit: usize) -> Self {
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
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<Item> {
        while let Some(&byte) = bytes.first() {
            if self.place == Place::Item && self.depth > 2 {
                let (nested, rest) = bytes.split_at_checked(self.nested(bytes)).unwrap_or((*bytes, &[]));
                *bytes = rest;
                let too_long = self.keep(nested);
                let whole = if self.depth == 2 { self.complete() } else { None };
                if let Some(found) = too_long.or(whole) {
                    return Some(found);
                }
                continue;
            }
            let length = if self.text == Text::Inside { plain(bytes).max(1) } else { 1 };
            let (head, rest) = bytes.split_at_checked(length).unwrap_or((*bytes, &[]));
            *bytes = rest;
            if self.place == Place::Items && self.text == Text::Outside && !between(byte) {
                self.place = Place::Item;
            }
            let found = match self.place {
                Place::Item if ends_item(self.text, self.depth, byte) => {
                    // A number or a word, which only what follows it ends.
                    let item = self.complete();
                    self.outside(head);
                    item
                }
                Place::Item => {
                    let too_long = self.keep(head);
                    self.follow(byte);
                    let ends = self.depth == 2 && self.text == Text::Outside && byte == b'"';
                    let whole = if ends { self.complete() } else { None };
                    too_long.or(whole)
                }
                Place::Items | Place::Envelope | Place::Key => {
                    self.outside(head);
                    None
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Reads what stands around the items, once everything has come.
    pub(super) fn end(self) -> serde_json::Result<PageMeta> {
        let envelope: Envelope<'_> = serde_json::from_slice(&self.envelope)?;
        match envelope.items.get() {
            "[]" | "null" => Ok(envelope.metadata),
            _ => Err(serde_json::Error::custom("items is not a list")),
        }
    }

    /// Takes what stands around the items: commas between them aside, it is kept.
    fn outside(&mut self, bytes: &[u8]) {
        let Some(&byte) = bytes.first() else { return };
        let kept = self.place != Place::Items || byte == b']';
        if kept && self.envelope.len() < ENVELOPE {
            self.envelope.extend_from_slice(bytes);
        }
        self.follow(byte);
    }

    /// Moves over a byte; within a string, over a run that begins with it.
    fn follow(&mut self, byte: u8) {
        match (self.text, byte) {
            (Text::Inside, b'"') => {
                self.text = Text::Outside;
                return;
            }
            (Text::Inside, b'\\') => self.text = Text::Escaped,
            (Text::Escaped, _) => self.text = Text::Inside,
            (Text::Outside, b'"') => {
                self.text = Text::Inside;
                self.string = self.envelope.len();
            }
            (Text::Outside, b'{' | b'[') => self.depth += 1,
            (Text::Outside, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if self.text == Text::Outside {
            self.place = self.next_place(byte);
        }
    }

    /// Moves over what is nested in an item: nearly all of a page, so in one go. Returns how far, which is behind the item
    /// if it ends here.
    fn nested(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(rest @ [byte, ..]) = bytes.get(at..) {
            at += 1;
            match (self.text, byte) {
                (Text::Inside, _) => {
                    let run = plain(rest);
                    at += run;
                    match rest.get(run) {
                        Some(b'"') => self.text = Text::Outside,
                        Some(_) => self.text = Text::Escaped,
                        None => return bytes.len(),
                    }
                }
                (Text::Escaped, _) | (Text::Outside, b'"') => self.text = Text::Inside,
                (Text::Outside, b'{' | b'[') => self.depth += 1,
                (Text::Outside, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 2 {
                        break;
                    }
                }
                (Text::Outside, _) => {}
            }
        }
        at
    }

    fn next_place(&self, byte: u8) -> Place {
        match (self.place, byte) {
            (Place::Envelope, b':') if self.depth == 1 && self.is_items_key() => Place::Key,
            (Place::Key, b'[') if self.depth == 2 => Place::Items,
            (Place::Key, b' ' | b'\n' | b'\r' | b'\t') => Place::Key,
            (Place::Key, _) | (Place::Items, b']') => Place::Envelope,
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
        let room = match self.limit {
            0 => bytes.len(),
            limit => limit.saturating_add(1).saturating_sub(self.item.len()),
        };
        self.item.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.dropping = self.limit != 0 && self.item.len() > self.limit;
        self.dropping.then(|| Item::TooLong(std::mem::take(&mut self.item).freeze()))
    }

    fn complete(&mut self) -> Option<Item> {
        self.place = Place::Items;
        let dropped = std::mem::take(&mut self.dropping);
        (!dropped).then(|| Item::Whole(self.item.split().freeze()))
    }
}

/// How many bytes of a string come before the next that means something.
fn plain(bytes: &[u8]) -> usize {
    memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
}

/// Whether a byte stands between items, or ends them all.
fn between(byte: u8) -> bool {
    matches!(byte, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t')
}

fn ends_item(text: Text, depth: usize, byte: u8) -> bool {
    text == Text::Outside && depth == 2 && between(byte)
}

// === impl PageMeta ===

impl PageMeta {
    pub(super) fn next(&self) -> Option<&str> {
        self.next.as_deref().filter(|token| !token.is_empty())
    }
}

#[cfg(test)]
mod tests;
