//! A position in the history of a resource.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::table::{Progress, Table};
use super::{Change, GroupResource, Store};

/// Most changes that one read of the history returns, so that a long replay does not hold the lock.
const BATCH: usize = 256;

/// The changes of a resource after a revision, in the order of the writes.
///
/// A watcher holds no changes itself: it reads them from the history when it is asked for the next ones. One that
/// has not asked for so long that its next change was forgotten is cut.
pub struct Watcher {
    store: Store,
    resource: GroupResource,
    signal: watch::Receiver<()>,
    /// The number of times that watches of the resource had been ended before this one started.
    term: u64,
    seen: u64,
}

// === impl Watcher ===

impl Watcher {
    pub(super) fn new(store: Store, resource: GroupResource, table: &Table, from: u64) -> Self {
        let (signal, term) = table.subscribe();
        Self { store, resource, signal, term, seen: from }
    }

    /// Waits for changes and returns them, at least one; `None` when the watcher was cut or the watches of its
    /// resource have ended.
    ///
    /// # Cancel safety
    /// A call that is dropped has read nothing.
    pub async fn next(&mut self) -> Option<Vec<Arc<Change>>> {
        loop {
            // Before the look at the history, so that a change right after it is not missed.
            self.signal.mark_unchanged();
            match self.ready() {
                Ok(changes) if changes.is_empty() => self.signal.changed().await.ok()?,
                Ok(changes) => return Some(changes),
                Err(Cut) => return None,
            }
        }
    }

    /// Returns the changes that have been made already, possibly none.
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

    /// Returns the revision up to which every change has been returned: the resourceVersion of a bookmark.
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
