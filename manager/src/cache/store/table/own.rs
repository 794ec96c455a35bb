//! What this process has written itself, judged by how far the watch has come.

use super::{Arrival, Hidden, Table};
use crate::cache::object::delta::Origin;
use crate::cache::object::meta::{Meta, ResourceVersion, Uid};
use crate::cache::store::slots::Slot;
use crate::client::Writer;
use crate::key::NamespacedName;

/// What a write of this process has removed from the server.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Removal<'a> {
    pub(in crate::cache) request: &'a NamespacedName,
    pub(in crate::cache) uid: &'a Uid,
    /// One that the object had; `None` if the answer did not tell.
    pub(in crate::cache) version: Option<&'a ResourceVersion>,
    /// The uids that were read under the name before the request was sent.
    pub(in crate::cache) shown: &'a [String],
}

// === impl Table ===

impl Table {
    /// Takes the answer to a write of this process, if it is news.
    pub(in crate::cache) fn written(&mut self, arrival: impl Into<Arrival>, writer: Writer) {
        let arrival = arrival.into();
        let view = &arrival.view;
        let version = &view.meta().resource_version;
        let Some(part) = self.part_of(view.request()) else { return };
        let news = match self.get(view.request()) {
            Some(stored) => version.is_newer_than(&stored.meta().resource_version),
            // Nothing is stored: either the watch has not come so far, or it has passed and the object is gone.
            None => part.progress.as_ref().is_none_or(|progress| version.is_newer_than(progress)),
        };
        let uid = &view.meta().uid;
        let outdated = self.gone.is_outdated(view.request(), version);
        if news && !outdated && !self.hidden.contains_key(uid) && !self.gone.had(uid, version) {
            self.upsert(arrival, Origin::OwnWrite(writer));
        }
    }

    /// Takes the answer to a write of this process that has put an object out of the selection, or that found it there:
    /// of what it was until then nothing is shown any more.
    pub(in crate::cache) fn left(&mut self, meta: &Meta, writer: Writer) {
        let Meta { request, uid, resource_version, .. } = meta;
        if self.part_of(request).is_none() {
            return;
        }
        self.gone.note(uid, resource_version, self.epoch);
        self.gone.note_name(request, resource_version, self.epoch);
        let older = |slot: &Slot| resource_version.is_newer_than(&slot.view.meta().resource_version);
        if let Some((number, _)) = self.objects.lookup(request).filter(|(_, slot)| older(slot))
            && let Some(view) = self.remove(number, Origin::OwnWrite(writer))
        {
            self.gone.note(&view.meta().uid, resource_version, self.epoch);
        }
    }

    /// Takes a removal of our own: hides the uid until its event or a newer list. Returns whether reads of the name are
    /// no older than the removal now.
    pub(in crate::cache) fn hide(&mut self, removal: &Removal<'_>, writer: Writer) -> bool {
        let Removal { request, uid, version, shown } = *removal;
        if self.part_of(request).is_none() {
            return true;
        }
        if let Some(version) = version {
            self.gone.note_name(request, version, self.epoch);
        }
        let Some((number, slot)) = self.objects.lookup(request) else {
            // The watch has passed it or will show it yet: then it is not news.
            self.gone.note_for_good(uid, self.epoch);
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
        // Another object: an earlier one, which had gone by then, or one that took the name since.
        let (other, at) = (meta.uid.clone(), &meta.resource_version);
        let is_earlier = shown.iter().any(|uid| other == **uid)
            || version.is_some_and(|version| version.is_newer_than(at));
        let is_later = self.gone.knows(uid) || version.is_some_and(|version| at.is_newer_than(version));
        self.gone.note_for_good(uid, self.epoch);
        if is_earlier {
            self.gone.note_for_good(&other, self.epoch);
            self.remove(number, Origin::OwnWrite(writer));
        }
        is_earlier || is_later
    }
}
