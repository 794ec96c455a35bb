//! What this process has written itself, judged by how far the watch has come.

use super::{Arrival, Hidden, Origin, Table};
use crate::cache::meta::{ResourceVersion, Uid};
use crate::client::Writer;
use crate::key::Request;

/// What a write of this process has removed from the server.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Removal<'a> {
    pub(in crate::cache) request: &'a Request,
    pub(in crate::cache) uid: &'a Uid,
    /// One that the object had; `None` if the answer did not tell.
    pub(in crate::cache) version: Option<&'a ResourceVersion>,
    /// The uids that were read under the name before the request was sent.
    pub(in crate::cache) shown: &'a [String],
}

// === impl Table ===

impl Table {
    /// Takes the answer to a write of this process, if it is news. Returns whether the object is in scope.
    pub(in crate::cache) fn written(&mut self, arrival: impl Into<Arrival>, writer: Writer) -> bool {
        let arrival = arrival.into();
        let view = &arrival.view;
        let version = &view.meta().resource_version;
        let Some(part) = self.part_of(view.request()) else { return false };
        let news = match self.get(view.request()) {
            Some(stored) => version.is_newer_than(&stored.meta().resource_version),
            // Nothing is stored: either the watch has not come so far, or it has passed and the object is gone.
            None => part.progress.as_ref().is_none_or(|progress| version.is_newer_than(progress)),
        };
        let uid = &view.meta().uid;
        if news && !self.hidden.contains_key(uid) && !self.gone.had(uid, version) {
            self.upsert(arrival, Origin::OwnWrite(writer));
        }
        true
    }

    /// Takes a removal of our own: hides the uid until its event or a newer list.
    pub(in crate::cache) fn hide(&mut self, removal: &Removal<'_>, writer: Writer) -> bool {
        let Removal { request, uid, version, shown } = *removal;
        if self.part_of(request).is_none() {
            return false;
        }
        let found = self.objects.find(request).and_then(|number| Some((number, self.objects.get(number)?)));
        let Some((number, slot)) = found else {
            // The watch has passed it or will show it yet: then it is not news.
            self.gone.note_for_good(uid, self.epoch);
            return true;
        };
        let (meta, seen) = (slot.view.meta(), slot.seen);
        if meta.uid != *uid {
            let earlier = meta.uid.clone();
            self.gone.note_for_good(uid, self.epoch);
            // What was there before, and is not what was removed, had gone by then. What came since may be its successor.
            let before = version.is_some_and(|version| version.is_newer_than(&meta.resource_version));
            if before || shown.iter().any(|uid| earlier == **uid) {
                self.gone.note_for_good(&earlier, self.epoch);
                self.remove(number, Origin::OwnWrite(writer));
            }
            return true;
        }
        let (uid, version) = (meta.uid.clone(), meta.resource_version.clone());
        self.epoch += 1;
        let hidden = Hidden { request: request.clone(), epoch: self.epoch, version, seen };
        self.hidden.insert(uid, hidden);
        self.remove(number, Origin::OwnWrite(writer));
        true
    }
}
