//! Who has to be ready before others start.
//!
//! A runnable that declares its readiness is entered here when it is added, and asked for from then on: those behind it
//! start once no gate before them is shut, and `/readyz/NAME` tells how far it has come.
//!
//! # Invariants
//! 1. An entry that has not ended well stays shut until it is ready: what has failed opens nothing in the moment before
//!    the manager hears of the failure.
//! 2. An entry that is ready stays so; it goes with the runnable's end.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::RunnableGroup;
use crate::health::Finding;

/// The runnables of one manager that declare when they are ready. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(super) struct Gates {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// In the order they were added. Locked before the progress of an entry.
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Permit = a runnable has become ready, or is over.
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

/// The entry of one runnable. Cheap to clone.
#[derive(Clone)]
pub(super) struct Gate {
    gates: Gates,
    entry: Arc<Entry>,
}

// === impl Gates ===

impl Gates {
    /// Enters a runnable that is not ready until it says so.
    pub(super) fn enter(&self, name: &'static str, group: RunnableGroup) -> Gate {
        let entry = Arc::new(Entry { name, group, progress: Mutex::new(Progress::Held) });
        self.shared.entries.lock().push(Arc::clone(&entry));
        Gate { gates: self.clone(), entry }
    }

    /// Returns who of a group is not ready, in the order they were added.
    pub(super) fn shut(&self, group: RunnableGroup) -> Vec<&'static str> {
        let entries = self.shared.entries.lock();
        let shut = |entry: &&Arc<Entry>| entry.group == group && *entry.progress.lock() != Progress::Ready;
        entries.iter().filter(shut).map(|entry| entry.name).collect()
    }

    /// Waits until somebody has become ready, or is over.
    ///
    /// # Cancel safety
    /// Nothing is missed: the next call returns for what changed meanwhile.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// What `/readyz` is told.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.shared.entries.lock().iter().map(|entry| entry.finding()).collect()
    }
}

// === impl Entry ===

impl Entry {
    fn finding(&self) -> Finding {
        let outcome = match (*self.progress.lock(), self.group) {
            (Progress::Ready, _) => Ok(()),
            (Progress::Started, _) => Err(format!("{} runs and has not said that it is ready", self.name)),
            (Progress::Held, RunnableGroup::LeaderElection) => Err(format!(
                "{} has not been started: it runs on the leader only, once the caches are listed",
                self.name
            )),
            (Progress::Held, _) => {
                Err(format!("{} has not been started: what it starts after is not ready", self.name))
            }
        };
        // A standby replica is as ready as the leader.
        let counts = self.group != RunnableGroup::LeaderElection;
        Finding { name: self.name.to_owned(), counts, outcome }
    }
}

// === impl Gate ===

impl Gate {
    /// The runnable is about to run.
    pub(super) fn started(&self) {
        *self.entry.progress.lock() = Progress::Started;
    }

    /// The runnable says that it is ready. Says nothing once it is over.
    pub(super) fn ready(&self) {
        *self.entry.progress.lock() = Progress::Ready;
        self.gates.shared.changed.notify_one();
    }

    /// The runnable has ended without error: nobody waits for it, or asks about it, any more.
    pub(super) fn over(&self) {
        self.gates.shared.entries.lock().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        self.gates.shared.changed.notify_one();
    }
}
