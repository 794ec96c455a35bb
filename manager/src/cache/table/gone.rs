//! The deletions told last, so that what comes late or again about one of them revives nothing.
//!
//! Versions are compared within one uid only, which every server keeps in order. Bounded: what is repeated after that
//! many deletions of other objects shows once more until its own deletion is repeated too.

use std::cmp::Ordering;
use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::cache::meta::ResourceVersion;

/// Deletions remembered: far more than one read of a connection holds, for some 30 KB.
const REMEMBERED: usize = 256;

/// Uids that are gone, each with the version of its deletion.
#[derive(Debug, Default)]
pub(super) struct Gone {
    versions: HashMap<Box<str>, ResourceVersion>,
    /// The same uids, oldest first.
    order: VecDeque<Box<str>>,
}

// === impl Gone ===

impl Gone {
    pub(super) fn note(&mut self, uid: &str, version: &ResourceVersion) {
        if let Some(known) = self.versions.get_mut(uid) {
            if version.is_newer_than(known) {
                *known = version.clone();
            }
            return;
        }
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.versions.remove(&oldest);
        }
        self.order.push_back(uid.into());
        self.versions.insert(uid.into(), version.clone());
    }

    /// Returns whether this version of the object was before its deletion. One that was selected again after it had
    /// left a selection is newer.
    pub(super) fn had(&self, uid: &str, version: &ResourceVersion) -> bool {
        let deleted = self.versions.get(uid).and_then(|deleted| deleted.compare(version));
        deleted.is_some_and(|order| order != Ordering::Less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::new(&number.to_string())
    }

    #[test]
    fn what_was_before_a_deletion_is_known_and_what_came_after_is_not() {
        let mut gone = Gone::default();
        gone.note("u1", &version(5));
        gone.note("u1", &version(4));
        assert!(gone.had("u1", &version(5)) && gone.had("u1", &version(1)));
        assert!(!gone.had("u1", &version(6)), "it entered the selection again");
        assert!(!gone.had("u2", &version(1)));
        assert!(!gone.had("u1", &ResourceVersion::new("opaque")), "nothing is known about its order");
    }

    #[test]
    fn however_many_go_only_the_last_are_remembered() {
        let mut gone = Gone::default();
        for number in 0..10_000_u64 {
            gone.note(&format!("u{number}"), &version(number));
        }
        assert_eq!((gone.order.len(), gone.versions.len()), (REMEMBERED, REMEMBERED));
        assert!(gone.had("u9999", &version(1)) && !gone.had("u1", &version(1)));
    }
}
