//! The rules by which lists, watch events and own writes become one state and one row of changes.
//!
//! Plain data under the lock of its [`super::KindStore`]: nothing here waits, decodes, logs or calls user code. Each
//! change is queued in the same step that makes it, so the order of changes is the order of states.
//!
//! # Invariants
//! 1. For one uid the stored resourceVersion never goes down.
//! 2. Replaying the queued changes over an empty map gives the stored objects.
//! 3. A list removes only what it could have seen: keys stored above its own resourceVersion stay.
//! 4. A uid hidden by an own DELETE comes back only through a list that began after the hiding.
//! 5. What comes late or again about an object that was deleted revives nothing, up to the bound of `gone`.

mod gone;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use self::gone::Gone;
use super::deliver::Job;
use super::meta::{Meta, ResourceVersion};
use super::select::Select;
use super::view::View;
use crate::client::Writer;
use crate::key::{Key, Request};

/// One step from a state to the next.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) old: Option<View>,
    pub(super) new: Option<View>,
    pub(super) origin: Origin,
}

/// Where a change came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A list, or the initial events of a watch: the first ones are no news.
    Initial,
    /// A watch event, or what a later list found different.
    Live,
    /// The answer to a write of this process.
    OwnWrite(Writer),
    /// Nothing changed: the periodic look.
    Resync,
}

/// The objects of one store, with their indexes and the changes nobody has been told yet.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// By namespace, empty for cluster-scoped objects: the namespace index is the map itself. Empty ones are removed.
    objects: HashMap<String, HashMap<Request, Slot>>,
    /// By owner uid. Empty sets are removed.
    owned: HashMap<Arc<str>, HashSet<Request>>,
    /// One per reflector: all namespaces, or one each.
    parts: Vec<Part>,
    /// Deleted by us and not yet confirmed, by uid.
    hidden: HashMap<Arc<str>, Hidden>,
    gone: Gone,
    /// Counts lists and hidings, so that "began after" can be asked.
    epoch: u64,
    count: usize,
    bytes: usize,
    synced: bool,
    /// What the handlers have to be told, in order.
    pub(super) jobs: VecDeque<Job>,
}

#[derive(Debug)]
struct Slot {
    view: View,
    /// The last list that had the key.
    seen: u64,
}

#[derive(Debug)]
struct Hidden {
    request: Request,
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
}

// === impl Table ===

impl Table {
    pub(super) fn new(parts: impl IntoIterator<Item = Option<Arc<str>>>) -> Self {
        let part = |namespace| Part { namespace, progress: None, synced: false };
        Self { parts: parts.into_iter().map(part).collect(), ..Self::default() }
    }

    /// Starts a list of one part; the answer marks what belongs to it.
    pub(super) fn begin_list(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Marks a listed object that is stored at this very version; returns false where it must be scanned.
    pub(super) fn touch(
        &mut self,
        epoch: u64,
        request: &Request,
        uid: &str,
        version: &ResourceVersion,
    ) -> bool {
        let Some(slot) = self.slot_mut(request) else { return false };
        let meta = slot.view.meta();
        let same = meta.uid.as_ref() == uid && meta.resource_version == *version;
        if same {
            slot.seen = epoch;
        }
        same
    }

    /// Marks a listed object that could not be scanned: it exists, so its stored version stays.
    pub(super) fn keep(&mut self, epoch: u64, request: &Request) {
        if let Some(slot) = self.slot_mut(request) {
            slot.seen = epoch;
        }
    }

    /// Takes one object of a list, or one initial event.
    pub(super) fn listed(&mut self, part: usize, epoch: u64, view: View) {
        match self.hidden.get_mut(&view.meta().uid) {
            Some(hidden) if hidden.epoch >= epoch => {
                hidden.seen = epoch;
                return;
            }
            Some(_) => {
                self.hidden.remove(&view.meta().uid);
            }
            None => {}
        }
        let synced = self.parts.get(part).is_some_and(|part| part.synced);
        let origin = if synced { Origin::Live } else { Origin::Initial };
        let request = view.request().clone();
        self.upsert(view, origin);
        self.keep(epoch, &request);
    }

    /// Ends a list: what it did not have, and could have had, is gone.
    pub(super) fn end_list(&mut self, part: usize, epoch: u64, version: &ResourceVersion) {
        let Some(namespace) = self.parts.get(part).map(|part| part.namespace.clone()) else { return };
        let vanished: Vec<Request> = self
            .slots(namespace.as_deref())
            .filter(|slot| slot.seen < epoch && !slot.view.meta().resource_version.is_newer_than(version))
            .map(|slot| slot.view.request().clone())
            .collect();
        for request in vanished {
            if let Some(view) = self.remove(&request, Origin::Live) {
                self.gone.note(&view.meta().uid, version);
            }
        }
        // What a list that began after the hiding shows is stored by now. What an earlier list could have had and
        // did not was gone when it was taken: no event will follow.
        let elsewhere =
            |request: &Request| namespace.is_some() && request.namespace() != namespace.as_deref();
        let Self { hidden, gone, .. } = self;
        hidden.retain(|uid, hidden| {
            if elsewhere(&hidden.request) {
                return true;
            }
            let vanished = hidden.seen != epoch && !hidden.version.is_newer_than(version);
            if vanished {
                gone.note(uid, version);
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
    }

    /// Takes an ADDED or MODIFIED event.
    pub(super) fn changed(&mut self, part: usize, view: View) {
        self.advance(part, &view.meta().resource_version);
        let Meta { uid, resource_version, .. } = view.meta();
        if !self.hidden.contains_key(uid) && !self.gone.had(uid, resource_version) {
            self.upsert(view, Origin::Live);
        }
    }

    /// Takes a DELETED event.
    pub(super) fn deleted(&mut self, part: usize, request: &Request, uid: &str, version: &ResourceVersion) {
        self.advance(part, version);
        self.gone.note(uid, version);
        if self.hidden.remove(uid).is_some() {
            return;
        }
        let stale = |view: &View| view.meta().resource_version.is_newer_than(version);
        if self.get(request).is_some_and(|view| !stale(view)) {
            self.remove(request, Origin::Live);
        }
    }

    /// Takes a bookmark, or the version of an event; never goes back.
    pub(super) fn advance(&mut self, part: usize, version: &ResourceVersion) {
        let Some(part) = self.parts.get_mut(part) else { return };
        let behind = part.progress.as_ref().is_some_and(|progress| progress.is_newer_than(version));
        if !behind {
            part.progress = Some(version.clone());
        }
    }

    /// Takes the answer to a write of this process, if it is news. Returns whether the object is in scope.
    pub(super) fn written(&mut self, view: View, writer: Writer) -> bool {
        let version = &view.meta().resource_version;
        let Some(part) = self.part_of(view.request()) else { return false };
        let news = match self.get(view.request()) {
            Some(stored) => version.is_newer_than(&stored.meta().resource_version),
            // Nothing is stored: either the watch has not come so far, or it has passed and the object is gone.
            None => {
                part.progress.as_ref().is_none_or(|progress| version.is_newer_than(progress))
                    && !self.hidden.contains_key(&view.meta().uid)
            }
        };
        if news {
            self.upsert(view, Origin::OwnWrite(writer));
        }
        true
    }

    /// Takes the answer to a DELETE that left nothing: hides the uid until its event or a newer list.
    pub(super) fn hide(&mut self, request: &Request, uid: &str, writer: Writer) -> bool {
        // What is not stored under this uid needs no hiding: the watch has passed it, or will show and remove it.
        let Some(slot) = self.slot_mut(request).filter(|slot| slot.view.meta().uid.as_ref() == uid) else {
            return self.part_of(request).is_some();
        };
        let (meta, seen) = (slot.view.meta(), slot.seen);
        let (uid, version) = (meta.uid.clone(), meta.resource_version.clone());
        self.epoch += 1;
        let hidden = Hidden { request: request.clone(), epoch: self.epoch, version, seen };
        self.hidden.insert(uid, hidden);
        self.remove(request, Origin::OwnWrite(writer));
        true
    }

    /// Queues one look at everything.
    pub(super) fn resync(&mut self) {
        let all = self.all();
        self.jobs.push_back(Job::Resync(all));
    }

    /// Stores a version that is not older than what is stored, and queues the change.
    fn upsert(&mut self, view: View, origin: Origin) {
        let Some(old) = self.get(view.request()).cloned() else {
            self.insert(view.clone());
            self.queue(None, Some(view), origin);
            return;
        };
        let (was, is) = (old.meta(), view.meta());
        let stale = is.resource_version == was.resource_version
            || was.resource_version.is_newer_than(&is.resource_version);
        if stale {
            return;
        }
        if was.uid == is.uid {
            self.insert(view.clone());
            self.queue(Some(old), Some(view), origin);
        } else {
            let removal = if origin == Origin::Initial { Origin::Live } else { origin };
            self.remove(old.request(), removal);
            self.gone.note(&was.uid, &is.resource_version);
            self.insert(view.clone());
            self.queue(None, Some(view), origin);
        }
    }

    fn queue(&mut self, old: Option<View>, new: Option<View>, origin: Origin) {
        self.jobs.push_back(Job::Change(Change { old, new, origin }));
    }

    fn insert(&mut self, view: View) {
        let request = view.request().clone();
        let replaced = self.slot_mut(&request).map(|slot| (slot.view.clone(), slot.seen));
        if let Some((old, _)) = &replaced {
            self.forget(old);
        }
        for owner in &view.meta().owners {
            self.owned.entry(owner.uid.clone()).or_default().insert(request.clone());
        }
        self.count += 1;
        self.bytes += view.cost();
        let seen = replaced.map_or(0, |(_, seen)| seen);
        let namespace = request.namespace().unwrap_or_default();
        self.objects.entry_ref(namespace).or_default().insert(request.clone(), Slot { view, seen });
    }

    /// Takes an object out and queues that; gives what was stored.
    fn remove(&mut self, request: &Request, origin: Origin) -> Option<View> {
        let namespace = request.namespace().unwrap_or_default();
        let objects = self.objects.get_mut(namespace)?;
        let slot = objects.remove(request)?;
        if objects.is_empty() {
            self.objects.remove(namespace);
        }
        self.forget(&slot.view);
        self.queue(Some(slot.view.clone()), None, origin);
        Some(slot.view)
    }

    /// Takes a version out of the indexes and sums.
    fn forget(&mut self, view: &View) {
        self.count -= 1;
        self.bytes -= view.cost();
        for owner in &view.meta().owners {
            if let Some(children) = self.owned.get_mut(&owner.uid) {
                children.remove(view.request());
                if children.is_empty() {
                    self.owned.remove(&owner.uid);
                }
            }
        }
    }

    fn slot_mut(&mut self, request: &Request) -> Option<&mut Slot> {
        self.objects.get_mut(request.namespace().unwrap_or_default())?.get_mut(request)
    }

    fn slots<'a>(&'a self, namespace: Option<&str>) -> Box<dyn Iterator<Item = &'a Slot> + 'a> {
        match namespace {
            Some(namespace) => Box::new(self.objects.get(namespace).into_iter().flat_map(HashMap::values)),
            None => Box::new(self.objects.values().flat_map(HashMap::values)),
        }
    }

    fn part_of(&self, request: &Request) -> Option<&Part> {
        self.parts.iter().find(|part| match &part.namespace {
            Some(namespace) => request.namespace() == Some(namespace.as_ref()),
            None => true,
        })
    }
}

/// Reading.
impl Table {
    pub(super) fn get(&self, request: &Request) -> Option<&View> {
        let slot = self.objects.get(request.namespace().unwrap_or_default())?.get(request)?;
        Some(&slot.view)
    }

    /// Picks by the narrowest index the selection names. Cheap clones only; nothing is decoded.
    pub(super) fn list(&self, select: &Select) -> Vec<View> {
        let admitted = |view: &View| select.admits(view.meta());
        if let Some(children) = select.owner.as_ref().map(|uid| self.owned.get(uid)) {
            let views = children.into_iter().flatten().filter_map(|request| self.get(request));
            return views.filter(|view| admitted(view)).cloned().collect();
        }
        let views = self.slots(select.namespace.as_deref()).map(|slot| &slot.view);
        views.filter(|view| admitted(view)).cloned().collect()
    }

    pub(super) fn all(&self) -> Vec<View> {
        self.slots(None).map(|slot| slot.view.clone()).collect()
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a namespace belongs to what the store holds; `None` asks for all of them.
    pub(super) fn covers(&self, namespace: Option<&str>) -> bool {
        self.parts.iter().any(|part| match (&part.namespace, namespace) {
            (None, _) => true,
            (Some(ours), Some(asked)) => ours.as_ref() == asked,
            (Some(_), None) => false,
        })
    }
}

#[cfg(test)]
mod tests;
