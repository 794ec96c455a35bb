//! Applies own writes to the table, according to the progress of the watch.

use super::{Arrival, Hidden, Table};
use crate::cache::object::{Meta, Origin, ResourceVersion, Uid};
use crate::cache::store::Slot;
use crate::client::Writer;
use crate::key::NamespacedName;

/// An object that an own write has deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal<'a> {
    pub(crate) request: &'a NamespacedName,
    pub(crate) uid: &'a Uid,
    /// A version that the deleted object had; `None` if the response contained none.
    pub(crate) version: Option<&'a ResourceVersion>,
    /// The uids that reads returned for the object's name before the request was sent.
    pub(crate) shown: &'a [String],
}

// === impl Table ===

impl Table {
    /// Stores the object of a response to an own write, if it is newer than the stored one.
    pub(crate) fn written(&mut self, arrival: Arrival, writer: Writer) {
        let meta = arrival.view.meta();
        let Meta { request, uid, resource_version: version, .. } = meta;
        let Some(part) = self.part_of(request) else { return };
        let newer = match self.get(request) {
            Some(stored) => version.is_newer_than(&stored.meta().resource_version),
            // No object is stored: either the watch has not reached this version, or it has passed it and the
            // object is deleted.
            None => part.progress.as_ref().is_none_or(|progress| version.is_newer_than(progress)),
        };
        if newer && !self.deletions.outdate(meta) && !self.hidden.contains_key(uid) {
            self.upsert(arrival, Origin::OwnWrite(writer));
        }
    }

    /// Handles an own write with an object outside the store's selection: removes the older version from the
    /// store.
    pub(crate) fn left_selection(&mut self, meta: &Meta, writer: Writer) {
        let Meta { request, uid, resource_version, .. } = meta;
        if self.part_of(request).is_none() {
            return;
        }
        self.deletions.note(uid, resource_version, self.epoch);
        self.deletions.note_name(request, resource_version, self.epoch);
        let older = |slot: &Slot| resource_version.is_newer_than(&slot.view.meta().resource_version);
        if let Some((number, _)) = self.objects.lookup(request).filter(|(_, slot)| older(slot))
            && let Some(view) = self.remove(number, Origin::OwnWrite(writer))
        {
            self.deletions.note(&view.meta().uid, resource_version, self.epoch);
        }
    }

    /// Handles an own DELETE: hides the object of this uid until its event or a newer list. Returns whether
    /// reads of the name now include the deletion.
    pub(crate) fn hide(&mut self, removal: &Removal<'_>, writer: Writer) -> bool {
        let Removal { request, uid, version, shown } = *removal;
        if self.part_of(request).is_none() {
            return true;
        }
        if let Some(version) = version {
            self.deletions.note_name(request, version, self.epoch);
        }
        let Some((number, slot)) = self.objects.lookup(request) else {
            // Not stored: the watch has passed this object, or will show a version that is outdated already.
            self.deletions.note_at_unknown_version(uid, self.epoch);
            return true;
        };
        let (meta, seen) = (slot.view.meta(), slot.seen);
        if meta.uid == *uid {
            let (uid, version) = (meta.uid.clone(), meta.resource_version.clone());
            self.epoch += 1;
            let hidden = Hidden { request: request.clone(), epoch: self.epoch, version, seen };
            self.hidden.insert(uid, hidden);
            self.remove(number, Origin::OwnWrite(writer));
            return true;
        }
        // Another object is stored: an earlier one, deleted by then, or a later one of the same name.
        let (other, at) = (meta.uid.clone(), &meta.resource_version);
        let is_earlier = shown.iter().any(|uid| other == **uid)
            || version.is_some_and(|version| version.is_newer_than(at));
        let is_later = self.deletions.knows(uid) || version.is_some_and(|version| at.is_newer_than(version));
        self.deletions.note_at_unknown_version(uid, self.epoch);
        if is_earlier {
            self.deletions.note_at_unknown_version(&other, self.epoch);
            self.remove(number, Origin::OwnWrite(writer));
        }
        is_earlier || is_later
    }
}
