//! A value that is made of stored objects, and made again when it is first needed after a change of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// A value that is read from the store.
#[derive(Debug)]
pub(super) struct Derived<T> {
    /// The number of changes of the objects so far, and one for the first read.
    changes: AtomicU64,
    /// The newest value, and the number of changes that it has at least.
    newest: RwLock<(u64, Arc<T>)>,
}

// === impl Derived ===

impl<T: Default> Default for Derived<T> {
    fn default() -> Self {
        Self { changes: AtomicU64::new(1), newest: RwLock::default() }
    }
}

impl<T> Derived<T> {
    /// Has the value read again. Called after each change of one of the objects.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the value after all changes so far. `read` gets the value of before.
    pub(super) fn newest(&self, read: impl FnOnce(&T) -> T) -> Arc<T> {
        // A change that comes after this is counted again, so the value is never newer than its number.
        let changes = self.changes.load(Ordering::Acquire);
        let (number, known) = self.newest.read().clone();
        if number == changes {
            return known;
        }
        let value = Arc::new(read(&known));
        let mut newest = self.newest.write();
        if newest.0 < changes {
            *newest = (changes, Arc::clone(&value));
        }
        value
    }
}
