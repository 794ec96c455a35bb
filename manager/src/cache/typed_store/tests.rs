//! Access for other tests of the cache.

use super::*;

impl<K> Store<K> {
    pub(in crate::cache) fn declared(&self) -> &DeclaredIndexes {
        &self.declared
    }
}
