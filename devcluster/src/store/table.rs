//! The objects of one resource: current versions in key order, and the history of changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::watch;

use super::key::KeyRange;
use super::{Change, FIRST, Key, ReadError, Version, Window, WriteError};

/// Returns the first objects of a resource.
pub(super) type Load = Box<dyn FnOnce() -> Vec<(Key, Value)> + Send>;

/// The objects of one resource. All methods are called under the lock of the store.
pub(super) struct Table {
    current: BTreeMap<Key, Arc<Version>>,
    /// Returns the first objects; `None` once they are in `current`.
    load: Option<Load>,
    /// Changes in revision order, each with its time. Changes up to `floor` (inclusive) stay only
    /// for connected watchers.
    history: VecDeque<(Timestamp, Arc<Change>)>,
    /// The oldest revision whose state can be rebuilt.
    floor: u64,
    /// The revision of the newest change that was dropped from `history`; 0 before the first.
    forgotten: u64,
    /// Sent after every change. Watchers read the changes from `history`, so the signal carries no value.
    signal: watch::Sender<()>,
    /// The term (how often watches were ended), and the last revision that watchers of older terms may read.
    ended: (u64, u64),
}

/// The result of a watcher's read of the history.
pub(super) enum Progress {
    /// At least one change, in revision order; more may follow.
    Changes(Vec<Arc<Change>>),
    /// There is no further change yet.
    UpToDate,
    /// Changes were missed, or the watches of the resource were ended.
    Cut,
}

// === impl Table ===

impl Table {
    pub(super) fn new(floor: u64) -> Self {
        Self {
            current: BTreeMap::new(),
            load: None,
            history: VecDeque::new(),
            floor,
            forgotten: 0,
            signal: watch::Sender::new(()),
            ended: (0, 0),
        }
    }

    /// Lets the first objects be loaded on the next use.
    pub(super) fn prepare(&mut self, load: Load) {
        self.load = Some(load);
    }

    /// Loads the first objects, if that has not happened yet.
    pub(super) fn load(&mut self) {
        let Some(load) = self.load.take() else { return };
        for (key, value) in load() {
            let first = || Arc::new(Version::new(key.clone(), value, FIRST, FIRST));
            self.current.entry(key.clone()).or_insert_with(first);
        }
    }

    /// Applies a change; returns the changes that left the history, which take long to drop.
    #[must_use]
    pub(super) fn apply(&mut self, change: Arc<Change>, now: Timestamp, window: &Window) -> Vec<Arc<Change>> {
        match change.current() {
            Some(version) => drop(self.current.insert(version.key().clone(), Arc::clone(version))),
            None => drop(self.current.remove(change.key())),
        }
        self.history.push_back((now, change));
        self.expire(now, window)
    }

    /// Adds an object without a change in the history, whose older states are therefore dropped.
    pub(super) fn import(&mut self, version: Version, current: u64, window: &Window) {
        self.current.insert(version.key().clone(), Arc::new(version));
        self.compact(current, window);
    }

    /// Raises the floor to `revision` and drops the changes below it that exceed the watch buffer.
    pub(super) fn compact(&mut self, revision: u64, window: &Window) {
        self.floor = self.floor.max(revision);
        drop(self.forget(window));
    }

    /// Starts a new term; watchers of older terms end after the change at `revision`.
    pub(super) fn end_watches(&mut self, revision: u64) {
        self.ended = (self.ended.0 + 1, revision);
        self.signal.send_replace(());
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Version>> {
        self.current.get(key)
    }

    /// Returns the object if it is at the revision `expected`.
    pub(super) fn at_revision(&self, key: &Key, expected: u64) -> Result<Arc<Version>, WriteError> {
        match self.current.get(key) {
            Some(version) if version.revision() == expected => Ok(Arc::clone(version)),
            other => Err(WriteError::Conflict(other.map(Arc::clone))),
        }
    }

    pub(super) fn list(&self, range: &KeyRange) -> Vec<Arc<Version>> {
        self.current.range::<str, _>(range.bounds()).map(|(_, version)| Arc::clone(version)).collect()
    }

    /// Returns the objects at a revision, computed from the current objects by undoing every later change.
    pub(super) fn list_at(&self, range: &KeyRange, revision: u64) -> Vec<Arc<Version>> {
        let mut state: BTreeMap<&str, &Arc<Version>> = self
            .current
            .range::<str, _>(range.bounds())
            .map(|(key, version)| (key.as_str(), version))
            .collect();
        for (_, change) in self.history.iter().rev().take_while(|(_, change)| change.revision() > revision) {
            if range.contains(change.key()) {
                match change.previous() {
                    Some(previous) => drop(state.insert(previous.key().as_str(), previous)),
                    None => drop(state.remove(change.key().as_str())),
                }
            }
        }
        state.into_values().map(Arc::clone).collect()
    }

    /// Checks that the history holds every change after a revision.
    pub(super) fn reach(&self, requested: u64) -> Result<(), ReadError> {
        let floor = self.floor;
        if requested < floor { Err(ReadError::Expired { requested, floor }) } else { Ok(()) }
    }

    pub(super) fn signal(&self) -> watch::Sender<()> {
        self.signal.clone()
    }

    /// Returns a receiver that wakes after every change, and the current term.
    pub(super) fn subscribe(&self) -> (watch::Receiver<()>, u64) {
        (self.signal.subscribe(), self.ended.0)
    }

    /// Returns up to `limit` changes with revisions above `after`, for a watcher that subscribed in `term`.
    pub(super) fn changes(&self, after: u64, term: u64, limit: usize) -> Progress {
        if after < self.forgotten {
            return Progress::Cut;
        }
        let last = if term == self.ended.0 { u64::MAX } else { self.ended.1 };
        let first = self.history.partition_point(|(_, change)| change.revision() <= after);
        let changes: Vec<_> = self
            .history
            .range(first..)
            .take_while(|(_, change)| change.revision() <= last)
            .take(limit)
            .map(|(_, change)| Arc::clone(change))
            .collect();
        match (changes.is_empty(), term == self.ended.0) {
            (false, _) => Progress::Changes(changes),
            (true, true) => Progress::UpToDate,
            (true, false) => Progress::Cut,
        }
    }

    /// Raises the floor past changes that the window no longer keeps; returns those that left the history.
    fn expire(&mut self, now: Timestamp, window: &Window) -> Vec<Arc<Change>> {
        let kept = SignedDuration::try_from(window.min_age).unwrap_or(SignedDuration::MAX);
        let start = self.history.partition_point(|(_, change)| change.revision() <= self.floor);
        let mut length = self.history.len() - start;
        for (time, change) in self.history.range(start..) {
            let old = now.duration_since(*time) > kept;
            if length > window.max_changes || (length > window.min_changes && old) {
                self.floor = change.revision();
                length -= 1;
            } else {
                break;
            }
        }
        self.forget(window)
    }

    /// Takes changes up to the floor out of the history while it is longer than the watch buffer.
    fn forget(&mut self, window: &Window) -> Vec<Arc<Change>> {
        let mut dropped = Vec::new();
        while self.history.len() > window.watch_buffer
            && let Some((_, change)) =
                self.history.pop_front_if(|(_, change)| change.revision() <= self.floor)
        {
            self.forgotten = change.revision();
            dropped.push(change);
        }
        dropped
    }
}
