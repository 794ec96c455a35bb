//! The rules by which lists, watch events and own writes become one state and one row of changes.
//!
//! Plain data under the lock of its [`crate::cache::store::object_store::ObjectStore`]: nothing here waits, decodes, logs or calls user code. Each
//! change is queued in the same step that makes it, so the order of changes is the order of states.
//!
//! # Invariants
//! 1. For one uid the stored resourceVersion goes down only where a list at a later one shows the older version: the server
//!    was restored from a backup.
//! 2. Replaying the queued changes over an empty map gives the stored objects.
//! 3. A list removes and sets back only what it could have seen: keys stored above its own resourceVersion stay.
//! 4. The uid of an own DELETE is shown no more, stored or still to come, but by a list that began after it.
//! 5. What comes late or again about an object that was deleted revives nothing, up to the bound of `gone`.
//! 6. A walk gives each object once, as it was stored at some time during the walk; it misses none that was stored
//!    all the while.

mod gone;
mod own;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use self::gone::Gone;
pub(in crate::cache) use self::own::Removal;
use crate::cache::object::body::Form;
use crate::cache::object::delta::Origin;
use crate::cache::object::dictionary::Packed;
use crate::cache::object::meta::{Meta, ResourceVersion, Uid};
use crate::cache::object::packing::Packing;
use crate::cache::object::view::View;
use crate::cache::store::dispatcher::Job;
use crate::cache::store::index::{Indexes, Values};
use crate::cache::store::packer::Intake;
use crate::cache::store::slots::{Number, Slot, Slots};
use crate::key::{Key, NamespacedName};

/// One step from a state to the next.
#[derive(Clone, Debug)]
pub(in crate::cache) struct Change {
    pub(in crate::cache) old: Option<View>,
    pub(in crate::cache) new: Option<View>,
    pub(in crate::cache) origin: Origin,
}

/// The objects of one store, with their indexes and the changes nobody has been told yet.
#[derive(Default)]
pub(in crate::cache) struct Table {
    objects: Slots,
    indexes: Indexes,
    /// One per reflector: all namespaces, or one each.
    parts: Vec<Part>,
    /// Deleted by us and not yet confirmed, by uid. What was not stored then is in `gone` alone.
    hidden: HashMap<Uid, Hidden>,
    gone: Gone,
    /// Counts lists and hidings, so that "began after" can be asked.
    epoch: u64,
    bytes: usize,
    /// Objects of which only metadata is kept, being too large.
    too_large: usize,
    /// Those of the objects that are packed, without their dictionaries.
    packing: Packing,
    synced: bool,
    /// What the handlers have to be told, in order.
    pub(in crate::cache) jobs: VecDeque<Job>,
    /// What is to be packed.
    pub(in crate::cache) intake: Intake,
}

/// A version on its way in, with what the index functions answered for it.
#[derive(Debug)]
pub(in crate::cache) struct Arrival {
    pub(in crate::cache) view: View,
    pub(in crate::cache) values: Values,
}

#[derive(Debug)]
struct Hidden {
    request: NamespacedName,
    /// A list that began later knows better.
    epoch: u64,
    /// The version that was stored.
    version: ResourceVersion,
    /// The last list that had it.
    seen: u64,
}

#[derive(Debug)]
struct Part {
    /// `None` means every namespace.
    namespace: Option<Arc<str>>,
    /// How far list and watch have come. An own write at or below it is no news.
    progress: Option<ResourceVersion>,
    synced: bool,
    /// Objects that the list under way shows at an older version than the stored one. The version of the list itself is
    /// known only at its end.
    older: Vec<Older>,
}

/// An object that a list shows at an older version than the stored one.
#[derive(Debug)]
pub(in crate::cache) struct Older {
    /// The list's.
    epoch: u64,
    stored: View,
    pub(in crate::cache) listed: View,
}

// === impl Table ===

impl Table {
    pub(in crate::cache) fn new(parts: impl IntoIterator<Item = Option<Arc<str>>>) -> Self {
        let part = |namespace| Part { namespace, progress: None, synced: false, older: Vec::new() };
        Self { parts: parts.into_iter().map(part).collect(), ..Self::default() }
    }

    /// Starts a list of one part; the answer marks what belongs to it.
    pub(in crate::cache) fn begin_list(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Marks a listed object that is stored at this very version; returns false where it must be scanned.
    pub(in crate::cache) fn touch(
        &mut self,
        epoch: u64,
        request: &NamespacedName,
        uid: &Uid,
        version: &ResourceVersion,
    ) -> bool {
        let Some((number, slot)) = self.objects.lookup(request) else { return false };
        let meta = slot.view.meta();
        let same = meta.uid == *uid && meta.resource_version == *version;
        if same {
            self.see(epoch, number);
        }
        same
    }

    /// Marks a listed object that could not be scanned: it exists, so its stored version stays. Where its uid could be
    /// read and is another, what is stored is of an object that is gone.
    pub(in crate::cache) fn keep(&mut self, epoch: u64, request: &NamespacedName, uid: Option<&Uid>) {
        if let Some((number, slot)) = self.objects.lookup(request)
            && uid.is_none_or(|uid| slot.view.meta().uid == *uid)
        {
            self.see(epoch, number);
        }
    }

    /// Marks a listed object. An older version of it in the same list is outdated.
    fn see(&mut self, epoch: u64, number: Number) {
        let Some(slot) = self.objects.get_mut(number) else { return };
        if std::mem::replace(&mut slot.seen, epoch) == epoch {
            for part in &mut self.parts {
                part.older.retain(|older| !older.stored.is(&slot.view));
            }
        }
    }

    /// Takes one object of a list, or one initial event.
    pub(in crate::cache) fn listed(&mut self, part: usize, epoch: u64, arrival: impl Into<Arrival>) {
        let arrival = arrival.into();
        let view = &arrival.view;
        match self.hidden.get_mut(&view.meta().uid) {
            Some(hidden) if hidden.epoch >= epoch => {
                hidden.seen = epoch;
                return;
            }
            Some(_) => {
                self.hidden.remove(&view.meta().uid);
            }
            None => {
                let Meta { request, uid, resource_version, .. } = view.meta();
                if self.gone.is_outdated_in_list(epoch, request, resource_version)
                    || self.gone.had_before_list(epoch, uid, resource_version)
                {
                    return;
                }
            }
        }
        let synced = self.parts.get(part).is_some_and(|part| part.synced);
        let origin = if synced { Origin::Live } else { Origin::Initial };
        let request = view.request().clone();
        let refused = self.upsert(arrival, origin);
        self.keep(epoch, &request, None);
        if let Some((stored, listed)) = refused
            && let Some(Part { older, .. }) = self.parts.get_mut(part)
        {
            // Left by a list that broke off.
            if older.last().is_some_and(|older| older.epoch != epoch) {
                older.clear();
            }
            older.push(Older { epoch, stored, listed });
        }
    }

    /// Ends a list: what it did not have, and could have had, is gone. Returns the objects that it showed at an older
    /// version although the stored one is not newer than the list, for [`Self::set_back`].
    pub(in crate::cache) fn end_list(
        &mut self,
        part: usize,
        epoch: u64,
        version: &ResourceVersion,
    ) -> Vec<Older> {
        let Some(Part { namespace, older, .. }) = self.parts.get_mut(part) else { return Vec::new() };
        let (namespace, mut older) = (namespace.clone(), std::mem::take(older));
        older.retain(|older| {
            older.epoch == epoch && !older.stored.meta().resource_version.is_newer_than(version)
        });
        for number in self.vanished(namespace.as_deref(), epoch, version) {
            if let Some(view) = self.remove(number, Origin::Live) {
                self.gone.note(&view.meta().uid, version, self.epoch);
            }
        }
        // What a list that began after the hiding shows is stored by now. What an earlier list could have had and
        // did not was gone when it was taken: no event will follow.
        let elsewhere =
            |request: &NamespacedName| namespace.is_some() && request.namespace() != namespace.as_deref();
        let Self { hidden, gone, epoch: now, .. } = self;
        hidden.retain(|uid, hidden| {
            if elsewhere(&hidden.request) {
                return true;
            }
            let vanished = hidden.seen != epoch && !hidden.version.is_newer_than(version);
            if vanished {
                // Not at this version: it was deleted by us, so its return to a selection can only have come before.
                gone.note_for_good(uid, *now);
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

    /// Stores what a list has shown at an older version, unless something else was stored meanwhile.
    pub(in crate::cache) fn set_back(&mut self, older: &Older, arrival: impl Into<Arrival>) {
        if let Some((number, _)) =
            self.objects.lookup(older.stored.request()).filter(|(_, slot)| slot.view.is(&older.stored))
        {
            self.replace(number, arrival.into(), Origin::Live);
        }
    }

    /// Takes an ADDED or MODIFIED event.
    pub(in crate::cache) fn changed(&mut self, part: usize, arrival: impl Into<Arrival>) {
        let arrival = arrival.into();
        let Meta { request, uid, resource_version, .. } = arrival.view.meta();
        self.advance(part, resource_version);
        let gone = self.gone.had(uid, resource_version) || self.gone.is_outdated(request, resource_version);
        if !gone && !self.hidden.contains_key(uid) {
            self.upsert(arrival, Origin::Live);
        }
    }

    /// Takes a DELETED event.
    pub(in crate::cache) fn deleted(
        &mut self,
        part: usize,
        request: &NamespacedName,
        uid: &Uid,
        version: &ResourceVersion,
    ) {
        self.advance(part, version);
        if self.hidden.remove(uid).is_some() {
            // This may tell that it left a selection, before it came back and we deleted it.
            self.gone.note_for_good(uid, self.epoch);
            return;
        }
        self.gone.note(uid, version, self.epoch);
        let stale = |slot: &Slot| slot.view.meta().resource_version.is_newer_than(version);
        if let Some((number, _)) = self.objects.lookup(request).filter(|(_, slot)| !stale(slot)) {
            self.remove(number, Origin::Live);
        }
    }

    /// Takes a bookmark, or the version of an event; never goes back.
    pub(in crate::cache) fn advance(&mut self, part: usize, version: &ResourceVersion) {
        let Some(part) = self.parts.get_mut(part) else { return };
        let behind = part.progress.as_ref().is_some_and(|progress| progress.is_newer_than(version));
        if !behind {
            part.progress = Some(version.clone());
        }
    }

    /// Returns whether a version is the one stored.
    pub(in crate::cache) fn holds(&self, view: &View) -> bool {
        self.get(view.request()).is_some_and(|stored| stored.is(view))
    }

    /// Stores a version and queues the change, unless what is stored is newer: then both are returned, the stored one
    /// first.
    fn upsert(&mut self, arrival: Arrival, origin: Origin) -> Option<(View, View)> {
        let Some((number, slot)) = self.objects.lookup(arrival.view.request()) else {
            let Arrival { view, values } = arrival;
            let number = self.objects.insert(view.clone());
            self.indexes.insert(number, view.meta(), values);
            self.bytes += view.cost();
            self.too_large += usize::from(view.is_too_large());
            self.intake.offer(&view, self.bytes);
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

    /// Stores another version of what is stored, or another object of its name, and queues the change.
    fn replace(&mut self, number: Number, Arrival { view, values }: Arrival, origin: Origin) {
        let Some(slot) = self.objects.get_mut(number) else { return };
        // In its place also under another uid: a walk that looks for the name must find one of the two.
        let old = std::mem::replace(&mut slot.view, view.clone());
        self.indexes.replace(number, old.meta(), view.meta(), values);
        self.bytes += view.cost();
        self.bytes -= old.cost();
        self.too_large += usize::from(view.is_too_large());
        self.too_large -= usize::from(old.is_too_large());
        self.packing.take(old.body());
        self.intake.offer(&view, self.bytes);
        if old.meta().uid == view.meta().uid {
            self.queue(Some(old), Some(view), origin);
        } else {
            slot.seen = 0;
            let removal = if origin == Origin::Initial { Origin::Live } else { origin };
            self.gone.note(&old.meta().uid, &view.meta().resource_version, self.epoch);
            self.queue(Some(old), None, removal);
            self.queue(None, Some(view), origin);
        }
    }

    fn queue(&mut self, old: Option<View>, new: Option<View>, origin: Origin) {
        self.jobs.push_back(Job::Change(Change { old, new, origin }));
    }

    /// Takes an object out and queues that; gives what was stored.
    fn remove(&mut self, number: Number, origin: Origin) -> Option<View> {
        let slot = self.objects.remove(number)?;
        self.indexes.remove(number, slot.view.meta());
        self.bytes -= slot.view.cost();
        self.too_large -= usize::from(slot.view.is_too_large());
        self.packing.take(slot.view.body());
        self.queue(Some(slot.view.clone()), None, origin);
        Some(slot.view)
    }

    /// Gives versions their packed form where they are still stored; returns the forms they had.
    pub(in crate::cache) fn pack(&mut self, turn: Vec<(View, Packed)>) -> Vec<Form> {
        let mut replaced = Vec::with_capacity(turn.len());
        for (view, packed) in turn {
            if self.get(view.request()).is_some_and(|stored| stored.is(&view)) {
                self.bytes -= view.cost();
                self.packing.take(view.body());
                replaced.push(view.body().replace(Form::Packed(packed)));
                self.bytes += view.cost();
                self.packing.add(view.body());
            }
        }
        replaced
    }

    /// Returns what a list of a part did not have, and could have had.
    fn vanished(&self, namespace: Option<&str>, epoch: u64, version: &ResourceVersion) -> Vec<Number> {
        let gone =
            |slot: &Slot| slot.seen < epoch && !slot.view.meta().resource_version.is_newer_than(version);
        let Some(namespace) = namespace else {
            return self.objects.iter().filter(|(_, slot)| gone(slot)).map(|(number, _)| number).collect();
        };
        let numbers = self.indexes.in_namespace(namespace).into_iter().flat_map(|bucket| bucket.from(0));
        numbers.filter(|number| self.objects.get(*number).is_some_and(gone)).collect()
    }

    fn part_of(&self, request: &NamespacedName) -> Option<&Part> {
        self.parts.iter().find(|part| match &part.namespace {
            Some(namespace) => request.namespace() == Some(namespace.as_ref()),
            None => true,
        })
    }
}

/// Reading.
impl Table {
    pub(in crate::cache) fn get(&self, request: &NamespacedName) -> Option<&View> {
        Some(&self.objects.lookup(request)?.1.view)
    }

    /// Returns whether reads of an object are no older than a version of it: it is stored at least so new, or the
    /// watch has passed there.
    pub(in crate::cache) fn has_come_to(&self, request: &NamespacedName, version: &ResourceVersion) -> bool {
        let stored =
            self.get(request).is_some_and(|view| !version.is_newer_than(&view.meta().resource_version));
        let part = self.part_of(request);
        stored || part.and_then(|part| part.progress.as_ref()).is_some_and(|at| !version.is_newer_than(at))
    }

    /// Returns whether this very version is stored, as an own write's is before its event.
    pub(in crate::cache) fn has(
        &self,
        request: &NamespacedName,
        uid: &Uid,
        version: &ResourceVersion,
    ) -> bool {
        self.get(request).is_some_and(|view| {
            let meta = view.meta();
            meta.uid == *uid && meta.resource_version == *version
        })
    }

    pub(in crate::cache) fn indexes_mut(&mut self) -> &mut Indexes {
        &mut self.indexes
    }

    pub(in crate::cache) fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    pub(in crate::cache) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(in crate::cache) fn count(&self) -> usize {
        self.objects.len()
    }

    pub(in crate::cache) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(in crate::cache) fn too_large(&self) -> usize {
        self.too_large
    }

    pub(in crate::cache) fn packing(&self) -> Packing {
        self.packing
    }
}

impl From<View> for Arrival {
    fn from(view: View) -> Self {
        Self { view, values: Values::default() }
    }
}

#[cfg(test)]
mod tests;
