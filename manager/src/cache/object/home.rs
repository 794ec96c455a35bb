//! What all versions of one store have in common.

use super::meta::pool::Pool;
use super::recent::Recent;
use crate::key::KindId;

/// Held by each version in place of the copies.
pub(in crate::cache) struct Home {
    pub(in crate::cache) kind: KindId,
    /// How every body begins: `{"apiVersion":"v1","kind":"Pod"`.
    pub(in crate::cache) head: Box<str>,
    /// Longest body kept, in bytes; 0 = no limit.
    pub(in crate::cache) max_object_bytes: usize,
    pub(in crate::cache) pool: Pool,
    pub(in crate::cache) recent: Recent,
}

// === impl Home ===

impl Home {
    pub(in crate::cache) fn new(kind: KindId, max_object_bytes: usize) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (version, name) = (quoted(&kind.api_version()), quoted(kind.kind()));
        let head = format!(r#"{{"apiVersion":{version},"kind":{name}"#).into_boxed_str();
        Self { kind, head, max_object_bytes, pool: Pool::default(), recent: Recent::default() }
    }

    /// Returns whether a body of so many bytes is kept.
    pub(in crate::cache) fn affords(&self, bytes: usize) -> bool {
        self.max_object_bytes == 0 || bytes <= self.max_object_bytes
    }
}
