//! Data that all versions of one store share.

use super::meta::pool::Pool;
use super::recent::Recent;
use crate::key::KindId;

/// Data that all versions of one store share. Each version holds a reference to it.
pub(in crate::cache) struct StoreContext {
    pub(in crate::cache) kind: KindId,
    /// The beginning of every body: `{"apiVersion":"v1","kind":"Pod"`.
    pub(in crate::cache) head: Box<str>,
    /// The longest body that is kept, in bytes; 0 = no limit.
    pub(in crate::cache) max_object_bytes: usize,
    pub(in crate::cache) pool: Pool,
    pub(in crate::cache) recent: Recent,
}

// === impl StoreContext ===

impl StoreContext {
    pub(in crate::cache) fn new(kind: KindId, max_object_bytes: usize) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (version, name) = (quoted(&kind.api_version()), quoted(kind.kind()));
        let head = format!(r#"{{"apiVersion":{version},"kind":{name}"#).into_boxed_str();
        Self { kind, head, max_object_bytes, pool: Pool::default(), recent: Recent::default() }
    }

    /// Returns whether a body of this length is kept.
    pub(in crate::cache) fn affords(&self, bytes: usize) -> bool {
        self.max_object_bytes == 0 || bytes <= self.max_object_bytes
    }
}
