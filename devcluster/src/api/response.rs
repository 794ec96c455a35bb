//! A successful response without HTTP.

use std::sync::Arc;

use bytes::Bytes;
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

    /// Returns the list object as JSON.
    pub fn json(&self) -> Bytes {
        self.clone().pieces(usize::MAX).next().unwrap_or_default()
    }

    /// Returns the list object as JSON, joined from the shared encodings of its items, in pieces of `size`
    /// bytes or one item more. The first pieces can be sent before the last ones are joined.
    pub fn pieces(self, size: usize) -> impl Iterator<Item = Bytes> + Send {
        let (api_version, kind, metadata) = (self.kind.api_version(), &self.kind.list_kind, self.metadata());
        let head =
            format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{metadata},"items":["#);
        let mut out = head.into_bytes();
        let (mut items, mut separator) = (Some(self.items.into_iter()), "");
        std::iter::from_fn(move || {
            while out.len() < size {
                let Some(item) = items.as_mut()?.next() else {
                    items = None;
                    out.extend_from_slice(b"]}");
                    break;
                };
                out.extend_from_slice(separator.as_bytes());
                separator = ",";
                if self.kind.type_name.is_some() {
                    // Items of typed lists have no type of their own.
                    put_without_type(&item.json(), &mut out);
                } else {
                    out.extend_from_slice(&item.json());
                }
            }
            let length = out.len();
            Some(std::mem::replace(&mut out, Vec::with_capacity(length)).into())
        })
    }
}

/// Appends the JSON of an object, whose fields are sorted, without `apiVersion` and `kind`.
fn put_without_type(json: &[u8], out: &mut Vec<u8>) {
    let mut rest = json.get(1..).unwrap_or_default();
    out.push(b'{');
    while rest.first() == Some(&b'"') {
        let end = field_end(rest);
        let (field, after) = rest.split_at(end);
        let kind = field.starts_with(br#""kind":"#);
        if !kind && !field.starts_with(br#""apiVersion":"#) {
            out.extend_from_slice(field);
            out.push(b',');
        }
        rest = after.strip_prefix(b",").unwrap_or(after);
        if kind {
            break;
        }
    }
    if rest.first() == Some(&b'"') {
        out.extend_from_slice(rest);
    } else {
        if out.last() == Some(&b',') {
            out.truncate(out.len() - 1);
        }
        out.push(b'}');
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
