//! Data that all versions of one store share.

use super::meta::pool::Pool;
use super::recent::Recent;
use crate::key::KindId;

/// Data that all versions of one store share. Each version holds a reference to it.
pub(crate) struct StoreContext {
    pub(crate) kind: KindId,
    /// The beginning of every body: `{"apiVersion":"v1","kind":"Pod"`.
    pub(crate) head: Box<str>,
    /// The longest body that is kept, in bytes.
    pub(crate) max_object_bytes: usize,
    pub(crate) pool: Pool,
    pub(crate) recent: Recent,
}

// === impl StoreContext ===

impl StoreContext {
    pub(crate) fn new(kind: KindId, max_object_bytes: usize) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (version, name) = (quoted(&kind.api_version()), quoted(kind.kind()));
        let head = format!(r#"{{"apiVersion":{version},"kind":{name}"#).into_boxed_str();
        Self { kind, head, max_object_bytes, pool: Pool::default(), recent: Recent::default() }
    }
}
