//! A reader of the changes of a resource.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::table::{Progress, Table};
use super::{Change, GroupResource, Store};

/// Maximum number of changes in one read of the history; bounds the time that a replay holds the lock.
const BATCH: usize = 256;

/// The changes of a resource after a revision, in the order of the writes.
///
/// A watcher buffers no changes: each call reads them from the history. A watcher is cut when its next change
/// was dropped from the history before the watcher read it.
pub struct Watcher {
    store: Store,
    resource: GroupResource,
    signal: watch::Receiver<()>,
    /// The number of times that watches of the resource had been ended when this watcher started.
    term: u64,
    /// The revision up to which every change has been returned.
    seen: u64,
}

// === impl Watcher ===

impl Watcher {
    pub(super) fn new(store: Store, resource: GroupResource, table: &Table, from: u64) -> Self {
        let (signal, term) = table.subscribe();
        Self { store, resource, signal, term, seen: from }
    }

    /// Waits for changes and returns at least one; `None` when the watcher was cut or the watches of its
    /// resource have ended.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call returns it.
    pub async fn next(&mut self) -> Option<Vec<Arc<Change>>> {
        loop {
            // Must precede the read of the history; otherwise a change right after the read would be missed.
            self.signal.mark_unchanged();
            match self.ready() {
                Ok(changes) if changes.is_empty() => {
                    self.signal.changed().await.ok()?;
                    // Lets other ready tasks write first, so that one read returns their changes together.
                    tokio::task::yield_now().await;
                }
                Ok(changes) => return Some(changes),
                Err(Cut) => return None,
            }
        }
    }

    /// Returns the next changes without waiting; empty if the watcher is up to date.
    pub fn ready(&mut self) -> Result<Vec<Arc<Change>>, Cut> {
        let state = self.store.shared.state.lock();
        let table = state.tables.get(&self.resource).ok_or(Cut)?;
        match table.changes(self.seen, self.term, BATCH) {
            Progress::Changes(changes) => {
                self.seen = changes.last().map_or(self.seen, |change| change.revision());
                Ok(changes)
            }
            Progress::UpToDate => {
                self.seen = self.seen.max(state.revision);
                Ok(Vec::new())
            }
            Progress::Cut => Err(Cut),
        }
    }

    /// Returns the revision up to which every change has been returned; a bookmark carries it.
    pub fn seen(&self) -> u64 {
        self.seen
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("resource", &self.resource)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// The watcher has missed changes, or the watches of its resource have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the watch has ended")]
pub struct Cut;
