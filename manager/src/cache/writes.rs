//! How this process's own writes enter the cache.
//!
//! The client tells of every answered write; what a store can vouch for it shows from then on. The rest is counted:
//! reads show it once its watch event has come.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Cache;
use crate::cache::informer::frame::read_status;
use crate::cache::object::meta::Uid;
use crate::cache::object::scan::Scan;
use crate::cache::store::object_store::ObjectStore;
use crate::cache::store::table::Removal;
use crate::client::{ResourcePath, Uncovered, WriteObserver, Writer};
use crate::key::NamespacedName;

// === impl Cache ===

impl WriteObserver for Cache {
    fn written(&self, path: &ResourcePath, body: &Bytes, writer: Writer) {
        // Counted, not searched: every store takes the answer.
        let behind = self.stores_of(path).iter().filter(|store| !answer(store, path, body, writer)).count();
        if behind > 0 {
            self.count_uncovered();
        }
    }

    fn shown(&self, path: &ResourcePath) -> Vec<String> {
        let Some(request) = named(path) else { return Vec::new() };
        self.stores_of(path).iter().filter_map(|store| store.shown(&request)).collect()
    }

    fn deleted(&self, path: &ResourcePath, body: &Bytes, shown: &[String], writer: Writer) {
        let Some(request) = named(path) else { return self.count_uncovered() };
        let stores = self.stores_of(path);
        let answered =
            |store: &&Arc<ObjectStore>| !answer_to_delete(store, path, &request, body, shown, writer);
        let behind = stores.iter().filter(answered).count();
        if behind > 0 {
            self.count_uncovered();
        }
    }

    fn uncovered(&self, path: &ResourcePath, _why: Uncovered) {
        if !self.stores_of(path).is_empty() {
            self.count_uncovered();
        }
    }
}

impl Cache {
    fn count_uncovered(&self) {
        self.0.uncovered.fetch_add(1, Ordering::Relaxed);
    }

    /// The stores a write may concern. None: nobody reads the kind, so nothing can be stale.
    fn stores_of(&self, path: &ResourcePath) -> Vec<Arc<ObjectStore>> {
        let same = |store: &Arc<ObjectStore>| {
            let kind = &store.kind;
            kind.plural() == path.plural && kind.group() == path.group
        };
        self.0.cores().into_iter().filter(same).collect()
    }
}

/// Takes an object as a write was answered with it. In another version of the kind it is the same object in another
/// form: its bytes are not for this store, which stays behind until the event.
///
/// The write that takes the last finalizer off an object being deleted removes it, and is answered with the object at
/// the version before.
pub(super) fn answer(store: &ObjectStore, path: &ResourcePath, body: &[u8], writer: Writer) -> bool {
    if let Ok(scan) = Scan::open(body)
        && scan.is_deleting()
        && matches!(scan.is_gone(), Ok(true))
    {
        return store.removed(&removal(&scan, &[]), writer);
    }
    store.kind.version() == path.version && store.written(body, writer)
}

/// Takes the answer to a DELETE of one object: a Status, or the object as it is being deleted.
pub(super) fn answer_to_delete(
    store: &ObjectStore,
    path: &ResourcePath,
    request: &NamespacedName,
    body: &[u8],
    shown: &[String],
    writer: Writer,
) -> bool {
    if let Ok(scan) = Scan::open(body) {
        return match scan.is_gone() {
            Ok(true) => store.removed(&removal(&scan, shown), writer),
            Ok(false) => answer(store, path, body, writer),
            Err(_) => false,
        };
    }
    let details = read_status(0, body).details.filter(|details| !details.uid.is_empty());
    details.is_some_and(|details| {
        store.removed(&Removal { request, uid: &Uid::new(&details.uid), version: None, shown }, writer)
    })
}

fn removal<'a>(scan: &'a Scan<'_>, shown: &'a [String]) -> Removal<'a> {
    Removal { request: &scan.request, uid: &scan.uid, version: Some(&scan.resource_version), shown }
}

/// The object that a path names.
fn named(path: &ResourcePath) -> Option<NamespacedName> {
    Some(NamespacedName::new(path.namespace.as_deref(), path.name.as_ref()?))
}

#[cfg(test)]
mod tests;
