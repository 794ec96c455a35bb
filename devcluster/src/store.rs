//! In-memory storage of objects, with every revision of a recent window.
//!
//! One counter numbers all writes of the whole store. Each resource (a group and a plural name, shared by all
//! versions of its kind) has an ordered map of current objects and a history of changes. An older state is
//! computed from the current state by undoing later changes. A watch is a position in the history, so a
//! replay and a live stream use the same code, and a slow watcher does not slow down writers.
//!
//! A store may have a [file](Store::open), from which it starts again after the end of its process. The file
//! has the current objects only, so every older revision is expired after that.
//!
//! The store is independent of kinds and of HTTP. It sets `metadata.resourceVersion` of each stored object
//! and leaves every other field to its callers.
//!
//! # Invariants
//! 1. Revisions grow by one per write, and the history of a resource is in revision order.
//! 2. All fields of `State` change under one lock, which is never held while an object is encoded.
//! 3. Every change with a revision above the floor of its resource is in the history, so every state from the
//!    floor on can be rebuilt.

mod file;
mod key;
mod shift;
mod table;
mod version;
mod watcher;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use file::{Content, File};
use key::KeyRange;
use table::{Load, Table};

pub use file::FileError;
pub use key::{GroupResource, Key};
pub use shift::Shift;
pub use version::{Change, EventType, Version};
pub use watcher::{Cut, Watcher};

/// The revision of an empty store, as of an empty etcd.
const FIRST: u64 = 1;

/// Returns the wall-clock time; tests inject a fixed or manual clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Limits of the history that the store keeps for each resource.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Number of newest changes that stay at any age.
    pub min_changes: usize,
    /// Number of changes above which the oldest ones are dropped at any age.
    pub max_changes: usize,
    /// Age up to which (inclusive) a change stays, unless there are more than `max_changes`.
    pub min_age: Duration,
    /// Number of changes kept for connected watchers, even those that new reads can no longer reach. A
    /// watcher whose next change was dropped is cut.
    pub watch_buffer: usize,
}

/// The objects and their history; clones share one state.
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

/// The state that a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The current state.
    Newest,
    /// The current state; an error if its revision is below this one.
    NotOlderThan(u64),
    /// The state right after the write with this revision.
    Exact(u64),
}

/// A read of a revision that is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The history does not reach back to the revision; list again at [`At::Newest`].
    #[error("revision {requested} is older than the kept history, which starts at {floor}")]
    Expired {
        /// The requested revision.
        requested: u64,
        /// The oldest available revision.
        floor: u64,
    },
    /// No write has had the revision yet.
    #[error("revision {requested} is newer than the current revision {current}")]
    Future {
        /// The requested revision.
        requested: u64,
        /// The revision of the newest write.
        current: u64,
    },
}

/// A write that was refused because the object is not in the state that the caller expected.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The object to create exists; carries its current version.
    #[error("the object exists already")]
    Exists(Arc<Version>),
    /// The object to change is at another revision (its current version), or does not exist (`None`).
    #[error("the object is not at the expected revision")]
    Conflict(Option<Arc<Version>>),
}

struct Shared {
    state: Mutex<State>,
    /// The file with the objects; `None` for a store in memory.
    file: Option<File>,
    window: Window,
    clock: Clock,
}

struct State {
    /// The revision of the newest write.
    revision: u64,
    /// The revision of the last call of [`Store::compact`], 0 before the first; the initial
    /// floor of new tables.
    compacted: u64,
    tables: HashMap<GroupResource, Table>,
}

// === impl Window ===

impl Default for Window {
    /// Keeps at least 100 changes and 75 seconds, like the watch cache of kube-apiserver; at
    /// most 16,384 changes.
    fn default() -> Self {
        Self { min_changes: 100, max_changes: 16_384, min_age: Duration::from_secs(75), watch_buffer: 1_000 }
    }
}

// === impl Store ===

impl Store {
    /// Returns an empty store at the revision of an empty etcd.
    pub fn new(window: Window, clock: Clock) -> Self {
        let state = State { revision: FIRST, compacted: 0, tables: HashMap::new() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), file: None, window, clock }) }
    }

    /// Returns a store with the objects of a file, which is made if it does not exist, and which no other
    /// process may open meanwhile. Reads and watches of revisions from before are expired, and later writes
    /// get higher ones.
    ///
    /// # Errors
    /// If the file cannot be opened, is open elsewhere, or is none of a store.
    pub fn open(path: &Path, window: Window, clock: Clock) -> Result<Self, FileError> {
        let opened = File::open(path, &window)?;
        Ok(Self::of_file(opened, window, clock))
    }

    fn of_file((file, Content { revision, tables }): (File, Content), window: Window, clock: Clock) -> Self {
        let state = Mutex::new(State { revision, compacted: revision, tables });
        Self { shared: Arc::new(Shared { state, file: Some(file), window, clock }) }
    }

    /// Returns whether the objects are in a file.
    pub fn has_file(&self) -> bool {
        self.shared.file.is_some()
    }

    /// Fails if an earlier write did not reach the file, as none does after that.
    pub fn check_file(&self) -> Result<(), FileError> {
        self.shared.file.as_ref().map_or(Ok(()), File::check)
    }

    /// Returns once every write so far is on the disk; at once for a store in memory.
    ///
    /// # Errors
    /// If a write fails.
    pub async fn written(&self) -> Result<(), FileError> {
        match &self.shared.file {
            Some(file) => file.written(self.revision()).await,
            None => Ok(()),
        }
    }

    /// Closes the file, so that others may open it, once every write so far is on the disk. Later writes
    /// fail. No effect on a store in memory.
    pub async fn close(&self) {
        if let Some(file) = &self.shared.file {
            file.close().await;
        }
    }

    /// Stores a new object and returns it with its revision set.
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

    /// Removes an object that is still at the revision `expected`. Returns its last content with the
    /// revision of the deletion.
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

    /// Puts an object into the store at a revision of the past, in place of one with the same key. Watches
    /// do not report it, older states of the resource are dropped, and later writes get higher revisions.
    pub fn import(&self, resource: &GroupResource, key: Key, value: Value, revision: u64) {
        let mut state = self.shared.state.lock();
        state.revision = state.revision.max(revision);
        let current = state.revision;
        state.table(resource).import(
            Version::new(key, value, revision, revision),
            current,
            &self.shared.window,
        );
    }

    /// Gives a resource its first objects, at the first revision, but for those that a file has. `load` is
    /// called under the lock of the store, once the resource is used.
    pub fn prepare(
        &self,
        resource: &GroupResource,
        load: impl FnOnce() -> Vec<(Key, Value)> + Send + 'static,
    ) {
        let load: Load = Box::new(load);
        let mut state = self.shared.state.lock();
        let floor = state.compacted;
        state.tables.entry(resource.clone()).or_insert_with(|| Table::new(floor)).prepare(load);
    }

    /// Returns the current version of an object; `None` if it does not exist.
    pub fn get(&self, resource: &GroupResource, key: &Key) -> Option<Arc<Version>> {
        self.shared.state.lock().used(resource)?.get(key).map(Arc::clone)
    }

    /// Returns whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.shared.state.lock().tables.is_empty()
    }

    /// Returns the revision of the newest write.
    pub fn revision(&self) -> u64 {
        self.shared.state.lock().revision
    }

    /// Returns the objects of a namespace (`None`: of all) with keys greater than `after` (`None`: all keys).
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
        let Some(table) = state.used(resource) else {
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

    /// Returns a watcher of all changes after the revision `from`, which may be above the current revision.
    pub fn watch(&self, resource: &GroupResource, from: u64) -> Result<Watcher, ReadError> {
        let mut state = self.shared.state.lock();
        let table = state.table(resource);
        table.reach(from)?;
        Ok(Watcher::new(self.clone(), resource.clone(), table, from))
    }

    /// Returns the current objects of a namespace (`None`: of all), and a watcher of all later changes.
    pub fn list_and_watch(&self, resource: &GroupResource, namespace: Option<&str>) -> (Listing, Watcher) {
        let mut state = self.shared.state.lock();
        let revision = state.revision;
        let table = state.table(resource);
        let items = table.list(&KeyRange::new(namespace, None));
        let watcher = Watcher::new(self.clone(), resource.clone(), table, revision);
        (Listing { revision, items }, watcher)
    }

    /// Drops every state before the current one, as a compaction of etcd does. Connected watchers stay.
    pub fn compact(&self) {
        let mut state = self.shared.state.lock();
        state.compacted = state.revision;
        let revision = state.revision;
        for table in state.tables.values_mut() {
            table.compact(revision, &self.shared.window);
        }
    }

    /// Ends the watches of a resource after they have returned every change made so far.
    pub fn end_watches(&self, resource: &GroupResource) {
        let mut state = self.shared.state.lock();
        let revision = state.revision;
        state.table(resource).end_watches(revision);
    }

    /// Makes one change under the lock; wakes the watchers and drops old changes outside it.
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
        let dropped = table.apply(Arc::clone(&change), now, &self.shared.window);
        let signal = table.signal();
        state.revision = revision;
        if let Some(file) = &self.shared.file {
            file.append(resource, &change);
        }
        drop(state);
        signal.send_replace(());
        drop(dropped);
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
        let table = self.tables.entry(resource.clone()).or_insert_with(|| Table::new(self.compacted));
        table.load();
        table
    }

    /// Returns the table of a resource; `None` if the resource has never had an object.
    fn used(&mut self, resource: &GroupResource) -> Option<&Table> {
        let table = self.tables.get_mut(resource)?;
        table.load();
        Some(table)
    }
}

#[cfg(test)]
mod tests;
