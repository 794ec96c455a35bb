//! Applies lists to the table: the listed objects, and at the end of a list the deleted ones.

use super::{Arrival, Part, Table, is_in};
use crate::cache::object::{Origin, ResourceVersion, Uid, View};
use crate::cache::store::{Job, Number, Slot};
use crate::key::NamespacedName;

/// An object that a list shows at an older version than the stored one.
#[derive(Debug)]
pub(crate) struct Older {
    /// The number (epoch) of the list that shows the object.
    epoch: u64,
    stored: View,
    pub(crate) listed: View,
}

// === impl Table ===

impl Table {
    /// Begins a list of the store's objects; returns the number (epoch) of the list.
    pub(crate) fn begin_list(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Marks the stored version of a listed object as seen by the list. An unreadable object with another uid
    /// is a new one: the stored one is gone then, and is not marked.
    pub(crate) fn keep(&mut self, epoch: u64, request: &NamespacedName, uid: Option<&Uid>) {
        if let Some((number, slot)) = self.objects.lookup(request)
            && uid.is_none_or(|uid| slot.view.meta().uid == *uid)
        {
            self.mark_seen(epoch, number);
        }
    }

    /// Marks the listed object in slot `number` as seen by the list. An older version of it earlier in the
    /// same list is dropped.
    pub(crate) fn mark_seen(&mut self, epoch: u64, number: Number) {
        let Some(slot) = self.objects.get_mut(number) else { return };
        if std::mem::replace(&mut slot.seen, epoch) == epoch {
            for part in &mut self.parts {
                part.older.retain(|older| !older.stored.is(&slot.view));
            }
        }
    }

    /// Stores one object of a list, or of an initial event of a watch, unless it is outdated.
    pub(crate) fn listed(&mut self, part: usize, epoch: u64, arrival: Arrival) {
        let meta = arrival.view.meta();
        match self.hidden.get_mut(&meta.uid) {
            Some(hidden) if hidden.epoch >= epoch => {
                hidden.seen = epoch;
                return;
            }
            Some(_) => {
                self.hidden.remove(&meta.uid);
            }
            None if self.deletions.outdate_listed(epoch, meta) => return,
            None => {}
        }
        let synced = self.parts.get(part).is_some_and(|part| part.synced);
        let origin = if synced { Origin::Live } else { Origin::Initial };
        let request = meta.request.clone();
        let refused = self.upsert(arrival, origin);
        self.keep(epoch, &request, None);
        if let Some((stored, listed)) = refused
            && let Some(Part { older, .. }) = self.parts.get_mut(part)
        {
            // From a list that was interrupted.
            if older.last().is_some_and(|older| older.epoch != epoch) {
                older.clear();
            }
            older.push(Older { epoch, stored, listed });
        }
    }

    /// Ends a list: removes the stored objects that it could include and did not. Returns the objects that it
    /// shows at an older version although the stored version is not newer than the list, for
    /// [`Self::set_back`].
    pub(crate) fn end_list(&mut self, part: usize, epoch: u64, version: &ResourceVersion) -> Vec<Older> {
        let Some(Part { namespace, older, .. }) = self.parts.get_mut(part) else { return Vec::new() };
        let (namespace, mut older) = (namespace.clone(), std::mem::take(older));
        older.retain(|older| {
            older.epoch == epoch && !older.stored.meta().resource_version.is_newer_than(version)
        });
        for number in self.vanished(namespace.as_deref(), epoch, version) {
            if let Some(view) = self.remove(number, Origin::Live) {
                self.deletions.note(&view.meta().uid, version, self.epoch);
            }
        }
        // If a list that began after the DELETE shows the object, the object is stored by now. If an earlier
        // list could include the object and did not, the object was deleted before that list, and no event
        // will follow.
        let Self { hidden, deletions, epoch: now, .. } = self;
        hidden.retain(|uid, hidden| {
            if !is_in(namespace.as_deref(), &hidden.request) {
                return true;
            }
            let vanished = hidden.seen != epoch && !hidden.version.is_newer_than(version);
            if vanished {
                // Recorded without a version: the DELETE was an own one, so if the object re-enters a
                // selection, that happened earlier.
                deletions.note_at_unknown_version(uid, *now);
            }
            hidden.epoch >= epoch && !vanished
        });
        self.advance(part, version);
        if let Some(part) = self.parts.get_mut(part) {
            part.synced = true;
        }
        if !self.synced && self.parts.iter().all(|part| part.synced) {
            self.synced = true;
            self.jobs.push_back(Job::Synced);
        }
        older
    }

    /// Stores the older version of an object that a list has shown, unless the stored version has changed
    /// meanwhile.
    pub(crate) fn set_back(&mut self, older: &Older, arrival: Arrival) {
        if let Some((number, _)) =
            self.objects.lookup(older.stored.request()).filter(|(_, slot)| slot.view.is(&older.stored))
        {
            self.replace(number, arrival, Origin::Live);
        }
    }

    /// Returns the slots of the objects of a namespace, or of all, that a list of it could include and did
    /// not.
    fn vanished(&self, namespace: Option<&str>, epoch: u64, version: &ResourceVersion) -> Vec<Number> {
        let vanished =
            |slot: &Slot| slot.seen < epoch && !slot.view.meta().resource_version.is_newer_than(version);
        let Some(namespace) = namespace else {
            let slots = self.objects.from(0).filter(|(_, slot)| vanished(slot));
            return slots.map(|(number, _)| number).collect();
        };
        let numbers = self.indexes.in_namespace(namespace).into_iter().flat_map(|bucket| bucket.from(0));
        numbers.filter(|number| self.objects.get(*number).is_some_and(vanished)).collect()
    }
}
