//! What a write came to.

use std::sync::Arc;

/// What came of making an object as it should be, or of a dry run of that.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<K> {
    /// It was not there and is now as returned.
    Created(Arc<K>),
    /// It was there and is now as returned.
    Changed(Arc<K>),
    /// It was so already: it is the version that the caller gave, and none is newer by this write.
    Unchanged,
}

// === impl Effect ===

impl<K> Effect<K> {
    /// Returns whether the object is another one now than the caller knew.
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Unchanged)
    }

    /// Returns the object as the server has it; `None` if it is the version that the caller gave.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Created(object) | Self::Changed(object) => Some(object),
            Self::Unchanged => None,
        }
    }
}
