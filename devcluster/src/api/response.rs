//! A successful response without HTTP.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;
use serde_json::Value;

use super::watch::Watch;
use crate::kinds::Kind;
use crate::store::Version;

/// A successful response.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status code.
    pub code: u16,
    /// Texts of `Warning` headers, without duplicates.
    pub warnings: Vec<String>,
    /// The content.
    pub content: Content,
}

/// The content of a response.
#[derive(Debug)]
pub enum Content {
    /// An object, or the `Status` of a deletion.
    Object(Object),
    /// Several objects.
    List(List),
    /// A stream of events.
    Watch(Watch),
}

/// An object in a response.
#[derive(Clone, Debug)]
pub enum Object {
    /// A stored object; all readers share its encoding.
    Stored(Arc<Version>),
    /// An object built for this response, such as one converted from the stored version.
    Made(Arc<Value>),
}

/// The objects of a list.
#[derive(Clone, Debug)]
pub struct List {
    /// The kind of the objects.
    pub kind: Arc<Kind>,
    /// The revision of the listed state.
    pub revision: u64,
    /// The token that continues the list; empty on the last page.
    pub continue_token: String,
    /// Number of objects on later pages; `None` on the last page and with a selector.
    pub remaining: Option<usize>,
    /// The objects.
    pub items: Vec<Object>,
}

// === impl Response ===

impl Response {
    pub(super) fn new(code: u16, content: Content) -> Self {
        Self { code, warnings: Vec::new(), content }
    }

    /// Returns a response with a newly built object.
    pub(super) fn made(code: u16, value: Value) -> Self {
        Self::new(code, Content::Object(Object::Made(Arc::new(value))))
    }
}

// === impl Object ===

impl Object {
    /// Returns the object.
    pub fn value(&self) -> &Value {
        match self {
            Self::Stored(version) => version.value(),
            Self::Made(value) => value,
        }
    }

    /// Returns the object as JSON.
    pub fn json(&self) -> Bytes {
        match self {
            Self::Stored(version) => version.json(),
            Self::Made(value) => value.to_string().into(),
        }
    }
}

// === impl List ===

impl List {
    /// Returns the metadata of the list object.
    pub fn metadata(&self) -> Value {
        let mut metadata = serde_json::Map::new();
        // The last page of custom resources has an empty token; for built-in kinds the field is omitted.
        if !self.continue_token.is_empty() || self.kind.type_name.is_none() {
            metadata.insert("continue".to_owned(), self.continue_token.clone().into());
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
        metadata.insert("resourceVersion".to_owned(), self.revision.to_string().into());
        Value::Object(metadata)
    }

    /// Returns the list object as JSON, joined from the shared encodings of its items.
    pub fn json(&self) -> Bytes {
        let items: Vec<Bytes> = self.items.iter().map(Object::json).collect();
        let length: usize = items.iter().map(|item| item.len() + 1).sum();
        let mut out = BytesMut::with_capacity(length + 256);
        let (api_version, kind) = (self.kind.api_version(), &self.kind.list_kind);
        let head = format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{},"items":["#,
            self.metadata()
        );
        out.put_slice(head.as_bytes());
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.put_u8(b',');
            }
            if self.kind.type_name.is_some() {
                // Items of typed lists have no type of their own.
                put_without_type(item, &mut out);
            } else {
                out.put_slice(item);
            }
        }
        out.put_slice(b"]}");
        out.freeze()
    }
}

/// Appends the JSON of an object, whose fields are sorted, without `apiVersion` and `kind`.
fn put_without_type(json: &[u8], out: &mut BytesMut) {
    let mut rest = json.get(1..).unwrap_or_default();
    out.put_u8(b'{');
    while rest.first() == Some(&b'"') {
        let end = field_end(rest);
        let (field, after) = rest.split_at(end);
        let kind = field.starts_with(br#""kind":"#);
        if !kind && !field.starts_with(br#""apiVersion":"#) {
            out.put_slice(field);
            out.put_u8(b',');
        }
        rest = after.strip_prefix(b",").unwrap_or(after);
        if kind {
            break;
        }
    }
    if rest.first() == Some(&b'"') {
        out.put_slice(rest);
    } else {
        if out.last() == Some(&b',') {
            out.truncate(out.len() - 1);
        }
        out.put_u8(b'}');
    }
}

/// Returns the length of the field that the JSON starts with: up to a comma or bracket outside of it.
fn field_end(json: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at += text_length(json.get(at..).unwrap_or_default()),
            b'{' | b'[' => depth += 1,
            b',' | b'}' if depth == 0 => return at - 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    json.len()
}

/// Returns the length of the text that follows an opening quote, with its closing quote.
fn text_length(json: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) = memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        at += next + 1;
        if json.get(at - 1) == Some(&b'"') {
            return at;
        }
        at += 1;
    }
    json.len()
}
