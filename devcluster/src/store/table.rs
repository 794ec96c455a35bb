//! The objects of one resource: the current ones in key order, and the changes that led to them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::key::KeyRange;
use super::{Change, Key, ReadError, Version, Window, WriteError};

/// One resource. All methods are called under the lock of the store.
pub(super) struct Table {
    current: BTreeMap<Key, Arc<Version>>,
    /// Changes in revision order with the times they were made at. Those up to `floor` stay only for connected
    /// watchers.
    history: VecDeque<(Timestamp, Arc<Change>)>,
    /// The oldest revision whose state can be rebuilt.
    floor: u64,
    /// The revision of the newest change that left `history`.
    forgotten: u64,
    /// Sent after every change. Watchers read the changes from `history`, so the signal carries no value.
    signal: watch::Sender<()>,
    /// How often watches were ended, and the revision up to which the ended ones may still read.
    ended: (u64, u64),
}

/// What a watcher finds when it looks for changes.
pub(super) enum Progress {
    /// Changes, in revision order; there may be more.
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
            history: VecDeque::new(),
            floor,
            forgotten: 0,
            signal: watch::Sender::new(()),
            ended: (0, 0),
        }
    }

    pub(super) fn apply(&mut self, change: Arc<Change>, now: Timestamp, window: &Window) {
        match change.current() {
            Some(version) => drop(self.current.insert(version.key().clone(), Arc::clone(version))),
            None => drop(self.current.remove(change.key())),
        }
        self.history.push_back((now, change));
        self.expire(now, window);
    }

    /// Raises the floor to `revision` and forgets the changes below it that no connected watcher may need.
    pub(super) fn compact(&mut self, revision: u64, window: &Window) {
        self.floor = self.floor.max(revision);
        self.forget(window);
    }

    pub(super) fn end_watches(&mut self, revision: u64) {
        self.ended = (self.ended.0 + 1, revision);
        self.signal.send_replace(());
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Version>> {
        self.current.get(key)
    }

    /// Returns the object if it is at the revision that a writer expects.
    pub(super) fn at_revision(&self, key: &Key, expected: u64) -> Result<Arc<Version>, WriteError> {
        match self.current.get(key) {
            Some(version) if version.revision() == expected => Ok(Arc::clone(version)),
            other => Err(WriteError::Conflict(other.map(Arc::clone))),
        }
    }

    pub(super) fn list(&self, range: &KeyRange) -> Vec<Arc<Version>> {
        self.current.range::<str, _>(range.bounds()).map(|(_, version)| Arc::clone(version)).collect()
    }

    /// Returns the objects as they were at a revision: the current ones with every later change undone.
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

    /// Checks that every change after a revision is known.
    pub(super) fn reach(&self, requested: u64) -> Result<(), ReadError> {
        let floor = self.floor;
        if requested < floor { Err(ReadError::Expired { requested, floor }) } else { Ok(()) }
    }

    pub(super) fn signal(&self) -> watch::Sender<()> {
        self.signal.clone()
    }

    pub(super) fn subscribe(&self) -> (watch::Receiver<()>, u64) {
        (self.signal.subscribe(), self.ended.0)
    }

    /// Returns up to `limit` changes after `after` for a watcher that subscribed in the given term.
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

    /// Moves the floor over changes that are too many or too old.
    fn expire(&mut self, now: Timestamp, window: &Window) {
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
        self.forget(window);
    }

    fn forget(&mut self, window: &Window) {
        while self.history.len() > window.watch_buffer {
            match self.history.front() {
                Some((_, change)) if change.revision() <= self.floor => self.forgotten = change.revision(),
                _ => break,
            }
            self.history.pop_front();
        }
    }
}
