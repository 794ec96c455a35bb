//! Runnables that declare their readiness, and block later start groups until they are ready.
//!
//! A runnable that declares its readiness has an entry here from the moment it is added. Later start groups
//! start once every entry before them is ready, and `/readyz/NAME` shows the state of the entry.
//!
//! # Invariants
//! 1. A runnable that fails does not become ready, so that no group starts before the manager handles the
//!    failure.
//! 2. An entry that is ready stays ready until the runnable ends, which removes it.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::RunnableGroup;
use crate::health::Finding;

/// The runnables of one manager that declare their readiness. Cheap to clone; all clones are one list.
#[derive(Clone, Default)]
pub(super) struct ReadinessList {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The runnables that declare their readiness, in the order of their addition. Locked before the progress
    /// of an entry.
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Has a permit after a runnable has become ready or has ended.
    changed: Notify,
}

struct Entry {
    name: &'static str,
    group: RunnableGroup,
    progress: Mutex<Progress>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Held,
    Started,
    Ready,
}

/// The entry of one runnable in the list of runnables that declare their readiness. Cheap to clone.
#[derive(Clone)]
pub(super) struct ReadinessEntry {
    readiness_list: ReadinessList,
    entry: Arc<Entry>,
}

// === impl ReadinessList ===

impl ReadinessList {
    /// Adds a runnable, not ready yet, to the list and returns its entry.
    pub(super) fn enter(&self, name: &'static str, group: RunnableGroup) -> ReadinessEntry {
        let entry = Arc::new(Entry { name, group, progress: Mutex::new(Progress::Held) });
        self.shared.entries.lock().push(Arc::clone(&entry));
        ReadinessEntry { readiness_list: self.clone(), entry }
    }

    /// Returns the names of the runnables of a group that are not ready, in the order of their addition.
    pub(super) fn shut(&self, group: RunnableGroup) -> Vec<&'static str> {
        let entries = self.shared.entries.lock();
        let shut = |entry: &&Arc<Entry>| entry.group == group && *entry.progress.lock() != Progress::Ready;
        entries.iter().filter(shut).map(|entry| entry.name).collect()
    }

    /// Waits until a runnable has become ready or has ended.
    ///
    /// # Cancel safety
    /// The next call returns for changes in between.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Returns the results of the checks `/readyz/NAME` of all runnables in the list.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.shared.entries.lock().iter().map(|entry| entry.finding()).collect()
    }
}

// === impl Entry ===

impl Entry {
    fn finding(&self) -> Finding {
        let outcome = match (*self.progress.lock(), self.group) {
            (Progress::Ready, _) => Ok(()),
            (Progress::Started, _) => Err(format!("{} runs and is not ready yet", self.name)),
            (Progress::Held, RunnableGroup::LeaderElection) => Err(format!(
                "{} has not started: it runs on the leader only, after the first lists of the caches",
                self.name
            )),
            (Progress::Held, _) => {
                Err(format!("{} has not started: an earlier start group is not ready", self.name))
            }
        };
        // A standby replica counts as ready without it.
        let counts = self.group != RunnableGroup::LeaderElection;
        Finding { name: self.name.to_owned(), counts, outcome }
    }
}

// === impl ReadinessEntry ===

impl ReadinessEntry {
    /// Marks the runnable of this entry as started.
    pub(super) fn started(&self) {
        *self.entry.progress.lock() = Progress::Started;
    }

    /// Marks the runnable of this entry as ready. No effect after its end.
    pub(super) fn ready(&self) {
        *self.entry.progress.lock() = Progress::Ready;
        self.readiness_list.shared.changed.notify_one();
    }

    /// Removes this entry from the list, because its runnable has ended without error.
    pub(super) fn over(&self) {
        self.readiness_list.shared.entries.lock().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        self.readiness_list.shared.changed.notify_one();
    }
}
