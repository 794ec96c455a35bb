//! The effect of a write on its object.

use std::sync::Arc;

/// The change that a write made to its object, or would make: a dry run creates and stores nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<K> {
    /// The object did not exist before the write; the value is the object as created.
    Created(Arc<K>),
    /// The object existed and the write changed it; the value is the object as stored.
    Changed(Arc<K>),
    /// The object was already as wanted: this write made no version newer than the one that the caller
    /// passed.
    Unchanged,
}

// === impl Effect ===

impl<K> Effect<K> {
    /// Returns whether the write created or changed the object.
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Unchanged)
    }

    /// Returns the object as stored by the write; `None` if the write left it unchanged, since the caller has
    /// that version.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Created(object) | Self::Changed(object) => Some(object),
            Self::Unchanged => None,
        }
    }
}
