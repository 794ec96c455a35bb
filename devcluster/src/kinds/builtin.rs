//! The built-in kinds, read from a table that is generated from the packages of Kubernetes.
//!
//! The table (`data/kinds.jsonl`, one JSON value per line) is compiled into the binary. Its first line names
//! the release of Kubernetes; one line for each kind and one for each struct type follow. The line of a type
//! is parsed at its first use, so unused kinds cost no time when a server starts.

use std::sync::{Arc, LazyLock};

use super::kind::Kind;

pub mod autoscaling;
pub mod defaults;
pub mod protobuf;
mod schema;
mod table;
mod types;
pub mod validation;

pub mod typed;

pub use types::{Type, find_type};

/// Returns all built-in kinds, sorted by group, version and kind.
pub fn kinds() -> &'static [Arc<Kind>] {
    static KINDS: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(table::kinds);
    &KINDS
}

/// Returns the built-in kind with this name; `group` is empty for the core group.
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Kind>> {
    kinds().iter().find(|known| known.group == group && known.version == version && known.kind == kind)
}

/// Returns the kind of the subresource `scale`, which no endpoint of its own serves.
pub fn scale_kind() -> Kind {
    table::scale_kind()
}

/// Returns the kind of the subresource `token` of ServiceAccounts.
pub fn token_kind() -> Kind {
    table::token_kind()
}

/// Returns the release of Kubernetes that the table was generated from, such as `v1.36.3`.
pub fn release() -> &'static str {
    table::header().release
}

#[cfg(test)]
mod tests;
