//! The deletions told last, so that what comes late or again about one of them revives nothing.
//!
//! Deletions are compared within one uid only, which every server keeps in order. An own write tells more where the store
//! does not hold what was written: under that name nothing older is true any more, whatever its uid. Bounded: what is repeated after that
//! many deletions of other objects shows once more until its own deletion is repeated too.

use std::cmp::Ordering;
use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::cache::meta::{ResourceVersion, Uid};
use crate::key::Request;

/// Deletions remembered: far more than one read of a connection holds, for some 30 KB.
const REMEMBERED: usize = 256;

/// Uids that are gone.
#[derive(Debug, Default)]
pub(super) struct Gone {
    by_uid: HashMap<Uid, Deletion>,
    /// The same uids, oldest first.
    order: VecDeque<Uid>,
    /// Names whose newest version known is not in the store.
    by_name: HashMap<Request, Reached>,
    /// The same names, oldest first.
    names: VecDeque<Request>,
}

/// How far a name has come.
#[derive(Debug)]
struct Reached {
    version: ResourceVersion,
    /// The last list that had begun by then.
    epoch: u64,
}

#[derive(Debug)]
struct Deletion {
    /// `None`: whatever its version. No uid comes twice.
    version: Option<ResourceVersion>,
    /// The last list that had begun by then.
    epoch: u64,
}

// === impl Gone ===

impl Gone {
    /// Notes that an object was deleted, or left a selection, at a version.
    pub(super) fn note(&mut self, uid: &Uid, version: &ResourceVersion, epoch: u64) {
        self.enter(uid, Some(version.clone()), epoch);
    }

    /// Notes that an object was deleted at a version that is not known.
    pub(super) fn note_for_good(&mut self, uid: &Uid, epoch: u64) {
        self.enter(uid, None, epoch);
    }

    fn enter(&mut self, uid: &Uid, version: Option<ResourceVersion>, epoch: u64) {
        if let Some(known) = self.by_uid.get_mut(uid) {
            known.epoch = epoch;
            known.version = match (known.version.take(), version) {
                (Some(known), Some(version)) if version.is_newer_than(&known) => Some(version),
                (Some(known), Some(_)) => Some(known),
                (None, _) | (_, None) => None,
            };
            return;
        }
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_uid.remove(&oldest);
        }
        self.order.push_back(uid.clone());
        self.by_uid.insert(uid.clone(), Deletion { version, epoch });
    }

    /// Notes that a name had come to a version that the store does not hold.
    pub(super) fn note_name(&mut self, request: &Request, version: &ResourceVersion, epoch: u64) {
        if let Some(known) = self.by_name.get_mut(request) {
            known.epoch = epoch;
            if version.is_newer_than(&known.version) {
                known.version = version.clone();
            }
            return;
        }
        if self.names.len() >= REMEMBERED
            && let Some(oldest) = self.names.pop_front()
        {
            self.by_name.remove(&oldest);
        }
        self.names.push_back(request.clone());
        self.by_name.insert(request.clone(), Reached { version: version.clone(), epoch });
    }

    /// Returns whether the name has come further than this version.
    pub(super) fn is_outdated(&self, request: &Request, version: &ResourceVersion) -> bool {
        let known = if self.by_name.is_empty() { None } else { self.by_name.get(request) };
        known.is_some_and(|known| known.version.is_newer_than(version))
    }

    /// The same for an object that a list shows. If the list began later it knows better, and the name is forgotten:
    /// a server that was set back counts its versions anew.
    pub(super) fn is_outdated_in_list(
        &mut self,
        epoch: u64,
        request: &Request,
        version: &ResourceVersion,
    ) -> bool {
        if self.by_name.get(request).is_some_and(|known| known.epoch < epoch) {
            self.by_name.remove(request);
            self.names.retain(|known| known != request);
        }
        self.is_outdated(request, version)
    }

    /// Returns whether anything was noted of it.
    pub(super) fn knows(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Returns whether this version of the object was before its deletion. One that was selected again after it had
    /// left a selection is newer.
    pub(super) fn had(&self, uid: &Uid, version: &ResourceVersion) -> bool {
        self.by_uid.get(uid).is_some_and(|deletion| deletion.ends(version))
    }

    /// The same for an object that a list shows. If the list began after the deletion was noted it knows better, and
    /// the deletion is forgotten.
    pub(super) fn had_before_list(&mut self, epoch: u64, uid: &Uid, version: &ResourceVersion) -> bool {
        let Some(deletion) = self.by_uid.get(uid) else { return false };
        if deletion.epoch < epoch {
            self.by_uid.remove(uid);
            self.order.retain(|known| known != uid);
            return false;
        }
        deletion.ends(version)
    }
}

impl Deletion {
    fn ends(&self, version: &ResourceVersion) -> bool {
        let Some(deleted) = &self.version else { return true };
        deleted.compare(version).is_some_and(|order| order != Ordering::Less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(text: &str) -> Uid {
        Uid::new(text)
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(&number.to_string())
    }

    #[test]
    fn what_was_before_a_deletion_is_known_and_what_came_after_is_not() {
        let mut gone = Gone::default();
        gone.note(&uid("u1"), &version(5), 1);
        gone.note(&uid("u1"), &version(4), 1);
        assert!(gone.had(&uid("u1"), &version(5)) && gone.had(&uid("u1"), &version(1)));
        assert!(!gone.had(&uid("u1"), &version(6)), "it entered the selection again");
        assert!(!gone.had(&uid("u2"), &version(1)));
        assert!(!gone.had(&uid("u1"), &ResourceVersion::new("opaque")), "nothing is known about its order");
    }

    #[test]
    fn a_deletion_at_a_version_nobody_knows_ends_them_all_but_for_a_list_that_began_later() {
        let mut gone = Gone::default();
        gone.note(&uid("u1"), &version(5), 1);
        gone.note_for_good(&uid("u1"), 2);
        gone.note(&uid("u1"), &version(7), 2);
        assert!(gone.had(&uid("u1"), &version(9)) && gone.had(&uid("u1"), &ResourceVersion::new("opaque")));
        assert!(
            gone.had_before_list(2, &uid("u1"), &version(9))
                && !gone.had_before_list(3, &uid("u1"), &version(9))
        );
        assert!(!gone.had(&uid("u1"), &version(9)) && gone.order.is_empty(), "it is there after all");
    }

    #[test]
    fn however_many_go_only_the_last_are_remembered() {
        let mut gone = Gone::default();
        for number in 0..10_000_u64 {
            gone.note(&uid(&format!("u{number}")), &version(number), 1);
        }
        assert_eq!((gone.order.len(), gone.by_uid.len()), (REMEMBERED, REMEMBERED));
        assert!(gone.had(&uid("u9999"), &version(1)) && !gone.had(&uid("u1"), &version(1)));
    }
}
