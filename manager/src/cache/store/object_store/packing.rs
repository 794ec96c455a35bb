//! Access of the packer to the bodies of a store.

use super::ObjectStore;
use crate::cache::object::dictionary::Packed;
use crate::cache::object::view::View;
use crate::cache::store::packer::PackQueue;
use crate::cache::store::select::Select;

// === impl ObjectStore ===

impl ObjectStore {
    /// Calls `act` with the queue and the bytes of all stored objects as they are kept.
    pub(crate) fn with_pack_queue<T>(&self, act: impl FnOnce(&mut PackQueue, usize) -> T) -> T {
        let mut table = self.table.write();
        let bytes = table.bytes;
        let outcome = act(&mut table.pack_queue, bytes);
        drop(table);
        self.freed.notify_waiters();
        outcome
    }

    /// Swaps in the packed form of versions that are still stored, and subtracts the `taken` bytes from the
    /// queue.
    pub(crate) fn packed(&self, batch: Vec<(View, Packed)>, taken: usize) {
        let mut table = self.table.write();
        let replaced = table.pack(batch);
        table.pack_queue.done(taken);
        drop(table);
        self.freed.notify_waiters();
        // The memory of the bodies is freed outside the lock.
        drop(replaced);
    }

    /// Returns all stored objects, even before the first sync.
    pub(crate) fn everything(&self) -> Vec<View> {
        let (mut walk, everything) = (self.table.read().walk(), Select::all());
        let mut views = Vec::new();
        while self.table.read().stride(&mut walk, &everything, &mut views) {}
        views
    }
}
