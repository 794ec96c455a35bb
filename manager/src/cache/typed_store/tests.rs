//! What the other tests of this room look at.

use super::*;

impl<K> Store<K> {
    pub(in crate::cache) fn declared(&self) -> &DeclaredIndexes {
        &self.declared
    }
}
