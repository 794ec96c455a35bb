//! Keeps the books of one store: what its handler is told must replay, and what is read must not be older than what was
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::world::{Filter, State, World};
use crate::cache::{Delta, DeltaHandler, KindStore, View};
use crate::key::NamespacedName;

/// Replays what it is told and notes what contradicts.
pub(super) struct Ledger {
    world: Arc<Mutex<World>>,
    filter: Filter,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    replica: State,
    /// Uids told as deleted, with the last version told.
    gone: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

/// What the answers to own writes have said, that reads must know from then on.
#[derive(Default)]
pub(super) struct Known {
    /// By name; no read is older.
    versions: BTreeMap<NamespacedName, u64>,
    /// The newest of each name, deletions included.
    newest: BTreeMap<NamespacedName, u64>,
    pub(super) deleted: BTreeSet<String>,
}

impl Known {
    /// Takes an answer. What is answered in another order than the server wrote it leaves nothing known of the name:
    /// the later answer may be the older state.
    pub(super) fn answered(&mut self, request: &NamespacedName, version: u64, is_object: bool) {
        let newest = self.newest.entry(request.clone()).or_default();
        if version < *newest {
            self.versions.remove(request);
            return;
        }
        *newest = version;
        if is_object {
            self.versions.insert(request.clone(), version);
        } else {
            // The answer to a deletion names a uid and no version: an earlier object of the name may show yet.
            self.versions.remove(request);
        }
    }
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn new(world: Arc<Mutex<World>>, filter: Filter) -> Arc<Self> {
        Arc::new(Self { world, filter, kept: Mutex::default() })
    }

    /// Notes what reads of a store get wrong.
    pub(super) fn read(&self, store: &KindStore, names: impl Iterator<Item = NamespacedName>, known: &Known) {
        let world = self.world.lock();
        for request in names {
            // Not synced, or outside.
            let Ok(read) = store.get(&request) else { continue };
            let meta = read.as_ref().map(View::meta);
            let since = known.versions.get(&request).copied().unwrap_or_default();
            let deleted = meta.is_some_and(|meta| known.deleted.contains(&*meta.uid.to_string()));
            if deleted || !world.was_so(&self.filter, &request, meta, since) {
                let read = meta.map(|meta| format!("{}@{}", meta.uid, meta.resource_version));
                let wrong = format!("the read of {request} gives {read:?}, which is older than {since}");
                self.kept.lock().wrong.push(wrong);
            }
        }
    }

    /// What was noted so far.
    pub(super) fn wrong(&self) -> Vec<String> {
        self.kept.lock().wrong.clone()
    }

    /// What the changes told replay to.
    pub(super) fn replica(&self) -> State {
        self.kept.lock().replica.clone()
    }

    /// What there is to be seen.
    pub(super) fn expected(&self) -> State {
        self.world.lock().state(&self.filter)
    }
}

fn state(view: &View) -> (String, u64) {
    let meta = view.meta();
    (meta.uid.to_string(), meta.resource_version.to_string().parse().unwrap())
}

/// What a store gives to who asks for all of it.
pub(super) fn stored(views: &[View]) -> State {
    views.iter().map(|view| (view.request().clone(), state(view))).collect()
}

/// A ledger as a handler, read by the test while the cache holds it.
pub(super) struct Shared(pub(super) Arc<Ledger>);

impl DeltaHandler for Shared {
    fn handle(&self, delta: &Delta<'_>) {
        let Ledger { world, filter, kept } = &*self.0;
        let (world, mut kept) = (world.lock(), kept.lock());
        let Some(latest) = delta.latest() else { return kept.wrong.push("nothing told".to_owned()) };
        let request = latest.request().clone();
        let (old, new) = (delta.old.map(state), delta.new.map(state));
        let wrong = |why: &str| format!("{why}: {request} {old:?} -> {new:?}");
        let mut found = Vec::new();
        if kept.replica.get(&request) != old.as_ref() {
            found.push(wrong("does not continue the state before it"));
        }
        match (&old, &new) {
            (Some((before, was)), Some((after, is))) if before != after || was >= is => {
                found.push(wrong("an update goes forward within one uid"));
            }
            (Some((uid, was)), None) => {
                let mut later = world.of(&request).filter(|event| event.object.version > *was);
                if !later.any(|event| event.object.uid == *uid && !filter.shows(event)) {
                    found.push(wrong("the deletion is invented"));
                }
                kept.gone.insert(uid.clone(), *was);
            }
            _ => {}
        }
        if let Some((uid, is)) = &new {
            let mut of_uid = world.of(&request).filter(|event| event.object.uid == *uid);
            // What has left a selection may enter it again.
            if old.is_none()
                && let Some(was) = kept.gone.get(uid)
                && !of_uid
                    .clone()
                    .any(|event| (*was + 1..*is).contains(&event.object.version) && !filter.shows(event))
            {
                found.push(wrong("comes back from the dead"));
            }
            if !of_uid.any(|event| event.object.version == *is && filter.shows(event)) {
                found.push(wrong("never happened"));
            }
        }
        match new {
            Some(new) => kept.replica.insert(request, new),
            None => kept.replica.remove(&request),
        };
        kept.wrong.append(&mut found);
    }

    fn name(&self) -> &'static str {
        "ledger"
    }
}
