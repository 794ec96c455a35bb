//! What all versions of one store have in common.

use super::meta::Pool;
use super::recent::Recent;
use crate::key::KindId;

/// Held by each version in place of the copies.
pub(super) struct Home {
    pub(super) kind: KindId,
    /// How every body begins: `{"apiVersion":"v1","kind":"Pod"`.
    pub(super) head: Box<str>,
    pub(super) pool: Pool,
    pub(super) recent: Recent,
}

// === impl Home ===

impl Home {
    pub(super) fn new(kind: KindId) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let (version, name) = (quoted(&kind.api_version()), quoted(kind.kind()));
        let head = format!(r#"{{"apiVersion":{version},"kind":{name}"#).into_boxed_str();
        Self { kind, head, pool: Pool::default(), recent: Recent::default() }
    }
}
