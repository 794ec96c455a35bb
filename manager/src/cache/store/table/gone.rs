//! The deletions told last, so that what comes late or again about one of them revives nothing.
//!
//! Deletions are compared within one uid only, which every server keeps in order. An own write tells more where the
//! store does not hold what was written: under that name nothing older is true any more, whatever its uid.
//!
//! Bounded: what is repeated after that many deletions of other objects shows once more, until its own deletion is
//! repeated too.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;

use crate::cache::object::meta::{ResourceVersion, Uid};
use crate::key::NamespacedName;

/// Keys remembered: far more than one read of a connection holds, for some 30 KB.
const REMEMBERED: usize = 256;

/// What is gone.
#[derive(Debug, Default)]
pub(super) struct Gone {
    uids: Recent<Uid>,
    /// Names whose newest version known is not in the store.
    names: Recent<NamespacedName>,
}

/// How far the last so many keys have come.
#[derive(Debug)]
struct Recent<K> {
    reached: HashMap<K, Reached>,
    /// The same keys, oldest first.
    order: VecDeque<K>,
}

#[derive(Debug)]
struct Reached {
    /// `None`: beyond whatever version. No uid comes twice.
    version: Option<ResourceVersion>,
    /// The last list that had begun by then.
    epoch: u64,
}

// === impl Gone ===

impl Gone {
    /// Notes that an object was deleted, or left a selection, at a version.
    pub(super) fn note(&mut self, uid: &Uid, version: &ResourceVersion, epoch: u64) {
        self.uids.note(uid, Some(version), epoch);
    }

    /// Notes that an object was deleted at a version that is not known.
    pub(super) fn note_for_good(&mut self, uid: &Uid, epoch: u64) {
        self.uids.note(uid, None, epoch);
    }

    /// Notes that a name had come to a version that the store does not hold.
    pub(super) fn note_name(&mut self, request: &NamespacedName, version: &ResourceVersion, epoch: u64) {
        self.names.note(request, Some(version), epoch);
    }

    /// Returns whether the name has come further than this version.
    pub(super) fn is_outdated(&self, request: &NamespacedName, version: &ResourceVersion) -> bool {
        self.names.order_of(request, version) == Some(Ordering::Greater)
    }

    /// The same for an object that a list shows. If the list began later it knows better, and the name is forgotten:
    /// a server that was set back counts its versions anew.
    pub(super) fn is_outdated_in_list(
        &mut self,
        epoch: u64,
        request: &NamespacedName,
        version: &ResourceVersion,
    ) -> bool {
        self.names.forget_before_list(epoch, request);
        self.is_outdated(request, version)
    }

    /// Returns whether anything was noted of it.
    pub(super) fn knows(&self, uid: &Uid) -> bool {
        self.uids.reached.contains_key(uid)
    }

    /// Returns whether this version of the object was before its deletion. One that was selected again after it had
    /// left a selection is newer.
    pub(super) fn had(&self, uid: &Uid, version: &ResourceVersion) -> bool {
        self.uids.order_of(uid, version).is_some_and(|order| order != Ordering::Less)
    }

    /// The same for an object that a list shows. If the list began after the deletion was noted it knows better, and
    /// the deletion is forgotten.
    pub(super) fn had_before_list(&mut self, epoch: u64, uid: &Uid, version: &ResourceVersion) -> bool {
        self.uids.forget_before_list(epoch, uid);
        self.had(uid, version)
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

    /// Compares what the key has come to with a version; `None` where nothing is known of one, or of their order.
    fn order_of(&self, key: &K, version: &ResourceVersion) -> Option<Ordering> {
        match &self.reached.get(key)?.version {
            Some(reached) => reached.compare(version),
            None => Some(Ordering::Greater),
        }
    }

    /// Forgets what was noted before this list began.
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
