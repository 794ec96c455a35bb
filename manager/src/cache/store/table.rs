//! Merges lists, watch events and own writes into one object map and one ordered queue of changes.
//!
//! Plain data under the lock of its [`crate::cache::store::ObjectStore`]: no step waits,
//! decodes, logs or calls user code. A change is enqueued in the step that makes it, so the order of changes
//! is the order of states.
//!
//! # Invariants
//! 1. The stored resourceVersion of one uid decreases only if a list with a higher resourceVersion shows the
//!    older version: the server was restored from a backup.
//! 2. Replaying the queued changes over an empty map gives the stored objects.
//! 3. A list removes or sets back only objects that it could include: keys stored above its own
//!    resourceVersion stay.
//! 4. After an own DELETE the object of that uid is not shown any more, unless a list that began later
//!    contains it.
//! 5. Late or repeated events of a deleted object do not restore it, within the bound of `deletions`.
//! 6. A walk returns each object once, in a state that it had during the walk; it includes every object that
//!    was stored all the time.

mod deletions;
mod list;
mod own;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use self::deletions::Deletions;
use self::list::Older;
pub(crate) use self::own::Removal;
use crate::cache::object::{Form, Origin, Packed, Packing, ResourceVersion, Uid, View};
use crate::cache::store::{Indexes, Job, Number, PackQueue, Slot, Slots, Values};
use crate::key::{Key, NamespacedName};

/// The objects of one store, with their indexes and the undelivered changes.
#[derive(Default)]
pub(crate) struct Table {
    objects: Slots,
    pub(crate) indexes: Indexes,
    /// The state of each reflector of the store: one for all namespaces, or one per namespace.
    parts: Vec<Part>,
    /// Objects deleted by own writes, by uid, as long as the watch has not confirmed the deletion. An object
    /// that was not stored at its own DELETE is recorded in `deletions` only.
    hidden: HashMap<Uid, Hidden>,
    deletions: Deletions,
    /// Number of lists and own DELETEs so far, to determine which began first.
    epoch: u64,
    /// Bytes of all stored objects as they are kept.
    pub(crate) bytes: usize,
    /// Number of objects of which only the metadata is kept, because they are too large.
    pub(crate) too_large: usize,
    /// Statistics of the packed (compressed) bodies of the store, without their dictionaries.
    pub(crate) packing: Packing,
    /// Whether the first list of every reflector of the store is complete.
    pub(crate) synced: bool,
    /// Undelivered changes and other entries for the dispatcher, in order.
    pub(crate) jobs: VecDeque<Job>,
    /// The queue of new bodies to be packed (compressed).
    pub(crate) pack_queue: PackQueue,
}

/// A version of an object to be stored, with the values of the index functions for it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) view: View,
    pub(crate) values: Values,
}

/// An object that an own DELETE hides until the watch or a list confirms the deletion.
#[derive(Debug)]
struct Hidden {
    request: NamespacedName,
    /// The epoch of the own DELETE, counted together with lists; a list that began later decides whether the
    /// object is shown again.
    epoch: u64,
    /// The version of the object that was stored when the own DELETE came.
    version: ResourceVersion,
    /// The number (epoch) of the last list that contained the hidden object.
    seen: u64,
}

/// The state of the list and watch of one reflector.
#[derive(Debug)]
struct Part {
    /// The namespace that the reflector lists and watches; `None` = all namespaces.
    namespace: Option<Arc<str>>,
    /// The resourceVersion that the reflector's list and watch have reached. An own write at or below it is
    /// outdated.
    progress: Option<ResourceVersion>,
    synced: bool,
    /// Objects that the current list shows at an older version than the stored one. Decided at the end of the
    /// list, when its own resourceVersion is known.
    older: Vec<Older>,
}

// === impl Table ===

impl Table {
    pub(crate) fn new(parts: impl IntoIterator<Item = Option<Arc<str>>>) -> Self {
        let part = |namespace| Part { namespace, progress: None, synced: false, older: Vec::new() };
        Self { parts: parts.into_iter().map(part).collect(), ..Self::default() }
    }

    /// Handles an ADDED or MODIFIED event of a watch: stores the object, unless it is outdated.
    pub(crate) fn changed(&mut self, part: usize, arrival: Arrival) {
        let meta = arrival.view.meta();
        self.advance(part, &meta.resource_version);
        if !self.deletions.outdate(meta) && !self.hidden.contains_key(&meta.uid) {
            self.upsert(arrival, Origin::Live);
        }
    }

    /// Handles a DELETED event of a watch: removes the object, unless a newer version is stored.
    pub(crate) fn deleted(
        &mut self,
        part: usize,
        request: &NamespacedName,
        uid: &Uid,
        version: &ResourceVersion,
    ) {
        self.advance(part, version);
        if self.hidden.remove(uid).is_some() {
            // The object may have left a selection here, and returned to it before the own DELETE.
            self.deletions.note_at_unknown_version(uid, self.epoch);
            return;
        }
        self.deletions.note(uid, version, self.epoch);
        let stale = |slot: &Slot| slot.view.meta().resource_version.is_newer_than(version);
        if let Some((number, _)) = self.objects.lookup(request).filter(|(_, slot)| !stale(slot)) {
            self.remove(number, Origin::Live);
        }
    }

    /// Records the resourceVersion of a bookmark or event as progress of a reflector; never decreases it.
    pub(crate) fn advance(&mut self, part: usize, version: &ResourceVersion) {
        let Some(part) = self.parts.get_mut(part) else { return };
        let behind = part.progress.as_ref().is_some_and(|progress| progress.is_newer_than(version));
        if !behind {
            part.progress = Some(version.clone());
        }
    }

    /// Returns whether the stored version of the object in `view` is that of `view`.
    pub(crate) fn holds(&self, view: &View) -> bool {
        self.get(view.request()).is_some_and(|stored| stored.is(view))
    }

    /// Stores a version of an object and enqueues the change. If the stored version is newer, it stays;
    /// returns the stored and the older version then.
    fn upsert(&mut self, arrival: Arrival, origin: Origin) -> Option<(View, View)> {
        let Some((number, slot)) = self.objects.lookup(arrival.view.request()) else {
            let Arrival { view, values } = arrival;
            let number = self.objects.insert(view.clone());
            self.indexes.insert(number, view.meta(), values);
            self.bytes += view.cost();
            self.too_large += usize::from(view.is_too_large());
            self.pack_queue.offer(&view, self.bytes);
            self.queue(None, Some(view), origin);
            return None;
        };
        let (was, is) = (&slot.view.meta().resource_version, &arrival.view.meta().resource_version);
        if was.is_newer_than(is) {
            return Some((slot.view.clone(), arrival.view));
        }
        if is != was {
            self.replace(number, arrival, origin);
        }
        None
    }

    /// Replaces the version in slot `number`, by a version of the same object or of a new object of the name,
    /// and enqueues the change.
    fn replace(&mut self, number: Number, Arrival { view, values }: Arrival, origin: Origin) {
        let Some(slot) = self.objects.get_mut(number) else { return };
        // In the same slot even for another uid: a walk must find one of the two objects.
        let old = std::mem::replace(&mut slot.view, view.clone());
        self.indexes.replace(number, old.meta(), view.meta(), values);
        self.bytes += view.cost();
        self.bytes -= old.cost();
        self.too_large += usize::from(view.is_too_large());
        self.too_large -= usize::from(old.is_too_large());
        self.packing.take(old.body());
        self.pack_queue.offer(&view, self.bytes);
        if old.meta().uid == view.meta().uid {
            self.queue(Some(old), Some(view), origin);
        } else {
            slot.seen = 0;
            let removal = if origin == Origin::Initial { Origin::Live } else { origin };
            self.deletions.note(&old.meta().uid, &view.meta().resource_version, self.epoch);
            self.queue(Some(old), None, removal);
            self.queue(None, Some(view), origin);
        }
    }

    fn queue(&mut self, old: Option<View>, new: Option<View>, origin: Origin) {
        self.jobs.push_back(Job::Change { old, new, origin });
    }

    /// Removes the object in slot `number` and enqueues the change; returns its last stored version.
    fn remove(&mut self, number: Number, origin: Origin) -> Option<View> {
        let slot = self.objects.remove(number)?;
        self.indexes.remove(number, slot.view.meta());
        self.bytes -= slot.view.cost();
        self.too_large -= usize::from(slot.view.is_too_large());
        self.packing.take(slot.view.body());
        self.queue(Some(slot.view.clone()), None, origin);
        Some(slot.view)
    }

    /// Replaces the bodies of versions that are still stored by their packed (compressed) form; returns the
    /// previous forms.
    pub(crate) fn pack(&mut self, batch: Vec<(View, Packed)>) -> Vec<Form> {
        let mut replaced = Vec::with_capacity(batch.len());
        for (view, packed) in batch {
            if self.holds(&view) {
                self.bytes -= view.cost();
                self.packing.take(view.body());
                replaced.push(view.body().replace(Form::Packed(packed)));
                self.bytes += view.cost();
                self.packing.add(view.body());
            }
        }
        replaced
    }

    fn part_of(&self, request: &NamespacedName) -> Option<&Part> {
        self.parts.iter().find(|part| is_in(part.namespace.as_deref(), request))
    }
}

/// Reads of a store's table.
impl Table {
    pub(crate) fn get(&self, request: &NamespacedName) -> Option<&View> {
        Some(&self.objects.lookup(request)?.1.view)
    }

    /// Returns whether reads of an object return `version` or a newer one: it is stored, or the watch has
    /// passed it.
    pub(crate) fn has_reached(&self, request: &NamespacedName, version: &ResourceVersion) -> bool {
        let stored =
            self.get(request).is_some_and(|view| !version.is_newer_than(&view.meta().resource_version));
        let part = self.part_of(request);
        stored || part.and_then(|part| part.progress.as_ref()).is_some_and(|at| !version.is_newer_than(at))
    }

    /// Returns the slot of this very version of an object, if it is stored, as that of an own write is before
    /// its event.
    pub(crate) fn find(
        &self,
        request: &NamespacedName,
        uid: &Uid,
        version: &ResourceVersion,
    ) -> Option<Number> {
        let (number, slot) = self.objects.lookup(request)?;
        let meta = slot.view.meta();
        (meta.uid == *uid && meta.resource_version == *version).then_some(number)
    }

    pub(crate) fn count(&self) -> usize {
        self.objects.len()
    }
}

/// Returns whether a list of this namespace can include the object of this name; `None` = all namespaces.
fn is_in(namespace: Option<&str>, request: &NamespacedName) -> bool {
    namespace.is_none() || namespace == request.namespace()
}

#[cfg(test)]
mod tests;
