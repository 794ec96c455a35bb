//! The memory of the server: every object at every revision of a recent window.
//!
//! One counter numbers all writes of the whole store. Each resource (a group and a plural name, shared by all
//! versions of its kind) has an ordered map of current objects and a history of changes. Older states are the
//! current state with later changes undone; a watch is a position in the history, so a replay and a live stream
//! are the same thing, and a slow watcher costs the writers nothing.
//!
//! The store knows no kind and no HTTP. It sets `metadata.resourceVersion` of each object it keeps and leaves
//! every other field to its callers.
//!
//! # Invariants
//! 1. Revisions grow by one per write, and the history of a resource is in revision order.
//! 2. All fields of [`State`] change under one lock, which is never held while an object is encoded.
//! 3. A change above the floor of its resource is in the history, so every state from the floor on can be
//!    rebuilt.

mod key;
mod table;
mod version;
mod watcher;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use key::KeyRange;
use table::Table;

pub use key::{GroupResource, Key};
pub use version::{Change, EventType, Version};
pub use watcher::{Cut, Watcher};

/// A source of the wall clock, so that tests decide what time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How much of the past the store keeps, per resource.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Changes that stay however old they are.
    pub min_changes: usize,
    /// Changes beyond this number go, however young they are.
    pub max_changes: usize,
    /// Age up to which a change stays, unless there are more than `max_changes`.
    pub min_age: Duration,
    /// Changes that connected watchers may be behind although the window has moved on. A watcher further behind
    /// is cut.
    pub watch_buffer: usize,
}

/// Every state of the objects in memory; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// The objects of a list, in key order, at one revision.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The revision of the state that the objects were read from.
    pub revision: u64,
    /// The objects.
    pub items: Vec<Arc<Version>>,
}

/// Which state a read wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The current state.
    Newest,
    /// The current state, which must have reached this revision.
    NotOlderThan(u64),
    /// The state at exactly this revision.
    Exact(u64),
}

/// A read that the store cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The history does not reach back to the revision; list again without one.
    #[error("revision {requested} is older than the kept history, which starts at {floor}")]
    Expired {
        /// The revision that was asked for.
        requested: u64,
        /// The oldest revision that can be read.
        floor: u64,
    },
    /// The revision has not been reached yet.
    #[error("revision {requested} is newer than the current revision {current}")]
    Future {
        /// The revision that was asked for.
        requested: u64,
        /// The revision of the newest write.
        current: u64,
    },
}

/// A write that met another state than its caller had read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// An object to create exists.
    #[error("the object exists already")]
    Exists(Arc<Version>),
    /// An object to change is at another revision, or gone.
    #[error("the object is not at the expected revision")]
    Conflict(Option<Arc<Version>>),
}

struct Shared {
    state: Mutex<State>,
    window: Window,
    clock: Clock,
}

struct State {
    /// The revision of the newest write.
    revision: u64,
    /// The newest revision that [`Store::compact`] was called at; the floor of resources that appear later.
    compacted: u64,
    tables: HashMap<GroupResource, Table>,
}

// === impl Window ===

impl Default for Window {
    /// At least 100 changes and 75 seconds, as the watch cache of kube-apiserver; at most 16,384 changes.
    fn default() -> Self {
        Self { min_changes: 100, max_changes: 16_384, min_age: Duration::from_secs(75), watch_buffer: 1_000 }
    }
}

// === impl Store ===

impl Store {
    /// Returns an empty store at revision 1, the first revision of etcd.
    pub fn new(window: Window, clock: Clock) -> Self {
        let state = State { revision: 1, compacted: 0, tables: HashMap::new() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), window, clock }) }
    }

    /// Keeps a new object and returns it with its revision set.
    pub fn create(
        &self,
        resource: &GroupResource,
        key: Key,
        value: Value,
    ) -> Result<Arc<Version>, WriteError> {
        self.write(resource, |table, revision| {
            if let Some(existing) = table.get(&key) {
                return Err(WriteError::Exists(Arc::clone(existing)));
            }
            Ok(Change::put(Version::new(key, value, revision, revision), None))
        })
        .map(|change| change.outcome())
    }

    /// Replaces an object that is still at the revision `expected`.
    pub fn update(
        &self,
        resource: &GroupResource,
        key: &Key,
        value: Value,
        expected: u64,
    ) -> Result<Arc<Version>, WriteError> {
        self.write(resource, |table, revision| {
            let previous = table.at_revision(key, expected)?;
            let version = Version::new(key.clone(), value, revision, previous.created());
            Ok(Change::put(version, Some(previous)))
        })
        .map(|change| change.outcome())
    }

    /// Removes an object that is still at the revision `expected`. Returns its last state with the revision of
    /// the deletion.
    pub fn delete(
        &self,
        resource: &GroupResource,
        key: &Key,
        expected: u64,
    ) -> Result<Arc<Version>, WriteError> {
        self.write(resource, |table, revision| {
            Ok(Change::removed(table.at_revision(key, expected)?, revision))
        })
        .map(|change| change.outcome())
    }

    /// Returns the current state of an object.
    pub fn get(&self, resource: &GroupResource, key: &Key) -> Option<Arc<Version>> {
        self.shared.state.lock().tables.get(resource)?.get(key).map(Arc::clone)
    }

    /// Returns the revision of the newest write.
    pub fn revision(&self) -> u64 {
        self.shared.state.lock().revision
    }

    /// Returns the objects of a namespace (of all namespaces if none is given) whose keys come after `after`.
    pub fn list(
        &self,
        resource: &GroupResource,
        namespace: Option<&str>,
        after: Option<&str>,
        at: At,
    ) -> Result<Listing, ReadError> {
        let state = &mut *self.shared.state.lock();
        let current = state.revision;
        let revision = match at {
            At::NotOlderThan(requested) | At::Exact(requested) if requested > current => {
                return Err(ReadError::Future { requested, current });
            }
            At::Newest | At::NotOlderThan(_) => current,
            At::Exact(requested) => requested,
        };
        let floor = state.compacted;
        let Some(table) = state.tables.get(resource) else {
            let expired = ReadError::Expired { requested: revision, floor };
            return if revision < floor { Err(expired) } else { Ok(Listing { revision, items: Vec::new() }) };
        };
        let items = if revision == current {
            table.list(&KeyRange::new(namespace, after))
        } else {
            table.reach(revision)?;
            table.list_at(&KeyRange::new(namespace, after), revision)
        };
        Ok(Listing { revision, items })
    }

    /// Returns a watcher of all changes after the revision `from`, which may lie in the future.
    pub fn watch(&self, resource: &GroupResource, from: u64) -> Result<Watcher, ReadError> {
        let mut state = self.shared.state.lock();
        let table = state.table(resource);
        table.reach(from)?;
        Ok(Watcher::new(self.clone(), resource.clone(), table, from))
    }

    /// Returns the current objects and a watcher of all changes after them.
    pub fn list_and_watch(&self, resource: &GroupResource, namespace: Option<&str>) -> (Listing, Watcher) {
        let mut state = self.shared.state.lock();
        let revision = state.revision;
        let table = state.table(resource);
        let items = table.list(&KeyRange::new(namespace, None));
        let watcher = Watcher::new(self.clone(), resource.clone(), table, revision);
        (Listing { revision, items }, watcher)
    }

    /// Forgets every state before the current one, as a compaction of etcd does. Connected watchers stay.
    pub fn compact(&self) {
        let mut state = self.shared.state.lock();
        state.compacted = state.revision;
        let revision = state.revision;
        for table in state.tables.values_mut() {
            table.compact(revision, &self.shared.window);
        }
    }

    /// Ends the watches of a resource once they have seen every change so far.
    pub fn end_watches(&self, resource: &GroupResource) {
        let mut state = self.shared.state.lock();
        let revision = state.revision;
        state.table(resource).end_watches(revision);
    }

    /// Makes one change under the lock and wakes the watchers after it.
    fn write(
        &self,
        resource: &GroupResource,
        change: impl FnOnce(&Table, u64) -> Result<Change, WriteError>,
    ) -> Result<Arc<Change>, WriteError> {
        let now = (self.shared.clock)();
        let mut state = self.shared.state.lock();
        let revision = state.revision + 1;
        let table = state.table(resource);
        let change = Arc::new(change(table, revision)?);
        table.apply(Arc::clone(&change), now, &self.shared.window);
        let signal = table.signal();
        state.revision = revision;
        drop(state);
        signal.send_replace(());
        Ok(change)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    fn table(&mut self, resource: &GroupResource) -> &mut Table {
        self.tables.entry(resource.clone()).or_insert_with(|| Table::new(self.compacted))
    }
}

#[cfg(test)]
mod tests;
