//! Remembers recent deletions, so that late or repeated events of a deleted object do not restore it.
//!
//! Deletions are compared by uid, because every server orders the versions of one object. An own write
//! outside the selection also outdates its name: no older version under this name is valid any more, with any
//! uid.
//!
//! Bounded: after so many deletions of other objects a repeated event restores the object until its own
//! deletion is repeated too.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;

use crate::cache::object::{Meta, ResourceVersion, Uid};
use crate::key::NamespacedName;

/// Largest number of deleted uids, and of names, that are remembered, in about 30 KB: many more than one read
/// of a connection contains.
const REMEMBERED: usize = 256;

/// The remembered deletions of objects, so that late or repeated events do not restore them.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    uids: Recent<Uid>,
    /// Names of objects with a newest known version that is not in the store.
    names: Recent<NamespacedName>,
}

/// The last [`REMEMBERED`] keys, uids or names of objects, with the version that each has reached.
#[derive(Debug)]
struct Recent<K> {
    reached: HashMap<K, Reached>,
    /// The remembered keys, oldest first.
    order: VecDeque<K>,
}

#[derive(Debug)]
struct Reached {
    /// The version that the object or name has reached; `None`: above every version, because a uid is never
    /// reused.
    version: Option<ResourceVersion>,
    /// The number (epoch) of the last list that had begun when this deletion or name was recorded.
    epoch: u64,
}

// === impl Deletions ===

impl Deletions {
    /// Records that an object was deleted, or left a selection, at a version.
    pub(super) fn note(&mut self, uid: &Uid, version: &ResourceVersion, epoch: u64) {
        self.uids.note(uid, Some(version), epoch);
    }

    /// Records that an object was deleted at an unknown version.
    pub(super) fn note_at_unknown_version(&mut self, uid: &Uid, epoch: u64) {
        self.uids.note(uid, None, epoch);
    }

    /// Records that the name of an object has reached a version that the store does not hold.
    pub(super) fn note_name(&mut self, request: &NamespacedName, version: &ResourceVersion, epoch: u64) {
        self.names.note(request, Some(version), epoch);
    }

    /// Returns whether this version of an object is outdated: it precedes the deletion of its object, or its
    /// name has reached a newer version. A version that re-entered a selection is newer than its deletion.
    pub(super) fn outdate(&self, meta: &Meta) -> bool {
        let deleted = self.uids.order_of(&meta.uid, &meta.resource_version);
        let passed = self.names.order_of(&meta.request, &meta.resource_version);
        deleted.is_some_and(Ordering::is_ge) || passed.is_some_and(Ordering::is_gt)
    }

    /// Returns whether this version of a listed object is outdated, as [`Self::outdate`] does. Records that
    /// are older than the list are dropped first: the server decides, and may have been restored from a
    /// backup.
    pub(super) fn outdate_listed(&mut self, epoch: u64, meta: &Meta) -> bool {
        self.uids.forget_before_list(epoch, &meta.uid);
        self.names.forget_before_list(epoch, &meta.request);
        self.outdate(meta)
    }

    /// Returns whether a deletion of the object with this uid is remembered.
    pub(super) fn knows(&self, uid: &Uid) -> bool {
        self.uids.reached.contains_key(uid)
    }
}

// === impl Recent ===

impl<K: Clone + Eq + Hash> Recent<K> {
    fn note(&mut self, key: &K, version: Option<&ResourceVersion>, epoch: u64) {
        if let Some(known) = self.reached.get_mut(key) {
            known.epoch = epoch;
            known.version = match (known.version.take(), version) {
                (Some(known), Some(version)) if version.is_newer_than(&known) => Some(version.clone()),
                (Some(known), Some(_)) => Some(known),
                (None, _) | (_, None) => None,
            };
            return;
        }
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.reached.remove(&oldest);
        }
        self.order.push_back(key.clone());
        self.reached.insert(key.clone(), Reached { version: version.cloned(), epoch });
    }

    /// Compares the version that the key, a uid or a name, has reached with another one; `None` if either is
    /// unknown or they have no order.
    fn order_of(&self, key: &K, version: &ResourceVersion) -> Option<Ordering> {
        match &self.reached.get(key)?.version {
            Some(reached) => reached.compare(version),
            None => Some(Ordering::Greater),
        }
    }

    /// Drops the record of this key if it is older than the list of `epoch`.
    fn forget_before_list(&mut self, epoch: u64, key: &K) {
        if self.reached.get(key).is_some_and(|known| known.epoch < epoch) {
            self.reached.remove(key);
            self.order.retain(|known| known != key);
        }
    }
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self { reached: HashMap::new(), order: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests;
