//! Checks one store: its deltas must replay to the server's state, and no read may be older than an own
//! write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::objects::{Filter, State};
use super::server::Server;
use crate::cache::{Delta, DeltaHandler, UntypedStore, View};
use crate::key::NamespacedName;

/// Replays the deltas of one store and records violations.
pub(super) struct Checker {
    server: Arc<Mutex<Server>>,
    filter: Filter,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    /// The objects to which the deltas so far replay.
    replica: State,
    /// Uids of deleted objects, with the last version delivered.
    deleted: BTreeMap<String, u64>,
    violations: Vec<String>,
}

/// The own writes with a response, which reads must show from then on.
#[derive(Default)]
pub(super) struct OwnWrites {
    /// The version of each name that reads must show, or a later one.
    versions: BTreeMap<NamespacedName, u64>,
    /// The newest version of each name, deletions included.
    newest: BTreeMap<NamespacedName, u64>,
    /// Uids that reads must not show.
    pub(super) deleted: BTreeSet<String>,
}

impl OwnWrites {
    /// Records a response. If responses arrive in another order than the server wrote, the later response may
    /// have the older state, so this name is not checked until its next write.
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
            // The response to a DELETE has a uid and no version: reads may still show an earlier object.
            self.versions.remove(request);
        }
    }
}

// === impl Checker ===

impl Checker {
    pub(super) fn new(server: Arc<Mutex<Server>>, filter: Filter) -> Arc<Self> {
        Arc::new(Self { server, filter, record: Mutex::default() })
    }

    /// Reads these names and records reads that are older than an own write.
    pub(super) fn read(
        &self,
        store: &UntypedStore,
        names: impl Iterator<Item = NamespacedName>,
        own: &OwnWrites,
    ) {
        let server = self.server.lock();
        for request in names {
            // Not synced, or out of scope.
            let Ok(read) = store.get(&request) else { continue };
            let meta = read.as_ref().map(View::meta);
            let since = own.versions.get(&request).copied().unwrap_or_default();
            let deleted = meta.is_some_and(|meta| own.deleted.contains(&*meta.uid.to_string()));
            if deleted || !server.was_so(&self.filter, &request, meta, since) {
                let read = meta.map(|meta| format!("{}@{}", meta.uid, meta.resource_version));
                let violation =
                    format!("the read of {request} returns {read:?}, which is older than {since}");
                self.record.lock().violations.push(violation);
            }
        }
    }

    /// Returns the violations so far.
    pub(super) fn violations(&self) -> Vec<String> {
        self.record.lock().violations.clone()
    }

    /// Returns the state to which the deltas replay.
    pub(super) fn replica(&self) -> State {
        self.record.lock().replica.clone()
    }

    /// Returns the server's objects within the filter.
    pub(super) fn expected(&self) -> State {
        self.server.lock().state(&self.filter)
    }
}

fn state(view: &View) -> (String, u64) {
    let meta = view.meta();
    (meta.uid.to_string(), meta.resource_version.to_string().parse().unwrap())
}

/// Returns the state that a list of all objects shows.
pub(super) fn state_of(views: &[View]) -> State {
    views.iter().map(|view| (view.request().clone(), state(view))).collect()
}

/// A checker as a handler, shared with the test.
pub(super) struct CheckingHandler(pub(super) Arc<Checker>);

impl DeltaHandler for CheckingHandler {
    fn handle(&self, delta: &Delta<'_>) {
        let Checker { server, filter, record } = &*self.0;
        let (server, mut record) = (server.lock(), record.lock());
        let Some(latest) = delta.latest() else {
            return record.violations.push("a delta without an object".to_owned());
        };
        let request = latest.request().clone();
        let (old, new) = (delta.old.map(state), delta.new.map(state));
        let violation = |why: &str| format!("{why}: {request} {old:?} -> {new:?}");
        let mut found = Vec::new();
        if record.replica.get(&request) != old.as_ref() {
            found.push(violation("the old object is not the one delivered before"));
        }
        match (&old, &new) {
            (Some((before, was)), Some((after, is))) if before != after || was >= is => {
                found.push(violation("an update changes the uid or goes back in version"));
            }
            (Some((uid, was)), None) => {
                let mut later = server.of(&request).filter(|event| event.object.version > *was);
                if !later.any(|event| event.object.uid == *uid && !filter.shows(event)) {
                    found.push(violation("the server did not delete the object"));
                }
                record.deleted.insert(uid.clone(), *was);
            }
            _ => {}
        }
        if let Some((uid, is)) = &new {
            let mut of_uid = server.of(&request).filter(|event| event.object.uid == *uid);
            // An object that has left a selection may enter it again.
            if old.is_none()
                && let Some(was) = record.deleted.get(uid)
                && !of_uid
                    .clone()
                    .any(|event| (*was + 1..*is).contains(&event.object.version) && !filter.shows(event))
            {
                found.push(violation("a deleted object is delivered again"));
            }
            if !of_uid.any(|event| event.object.version == *is && filter.shows(event)) {
                found.push(violation("the server never had this version"));
            }
        }
        match new {
            Some(new) => record.replica.insert(request, new),
            None => record.replica.remove(&request),
        };
        record.violations.append(&mut found);
    }

    fn name(&self) -> &'static str {
        "checker"
    }
}
