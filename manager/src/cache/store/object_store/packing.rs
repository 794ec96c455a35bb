//! The bodies of a store, as its packer sees them.

use super::ObjectStore;
use crate::cache::object::dictionary::Packed;
use crate::cache::object::view::View;
use crate::cache::store::packer::Intake;
use crate::cache::store::select::Select;

// === impl ObjectStore ===

impl ObjectStore {
    /// Waits for the intake's next call; one that came before is not missed.
    pub(in crate::cache) async fn called(&self) {
        self.unpacked.notified().await;
    }

    /// Does something with the intake; told the bytes of everything stored, as they are kept.
    pub(in crate::cache) fn intake<T>(&self, act: impl FnOnce(&mut Intake, usize) -> T) -> T {
        let mut table = self.table.write();
        let bytes = table.bytes();
        let outcome = act(&mut table.intake, bytes);
        drop(table);
        self.freed.notify_waiters();
        outcome
    }

    /// Gives versions that are still stored their packed form, and `taken` bytes back to the intake.
    pub(in crate::cache) fn packed(&self, turn: Vec<(View, Packed)>, taken: usize) {
        let mut table = self.table.write();
        let replaced = table.pack(turn);
        table.intake.done(taken);
        drop(table);
        self.freed.notify_waiters();
        // Bodies are given back to the allocator without the lock.
        drop(replaced);
    }

    /// Returns what is stored, whether it has synced or not.
    pub(in crate::cache) fn everything(&self) -> Vec<View> {
        let (mut walk, everything) = (self.table.read().walk(), Select::all());
        let mut views = Vec::new();
        while self.table.read().stride(&mut walk, &everything, &mut views) {}
        views
    }
}
