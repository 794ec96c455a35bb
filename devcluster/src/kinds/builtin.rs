//! The built-in kinds, read from a table that a program makes from the packages of Kubernetes.
//!
//! The table (`data/kinds.jsonl`, one JSON value in each line) is in the binary. Its first line names the
//! release of Kubernetes, then follow a line for each kind and a line for each struct type. The lines of types
//! are parsed at their first use, so that starting a server costs nothing for kinds that it never meets.

use std::sync::{Arc, LazyLock};

use super::kind::Kind;

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

/// Returns the built-in kind of this name.
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Kind>> {
    kinds().iter().find(|known| known.group == group && known.version == version && known.kind == kind)
}

/// Returns the release of Kubernetes that the table was made from, such as `v1.36.3`.
pub fn release() -> &'static str {
    table::header().release
}

#[cfg(test)]
mod tests;
