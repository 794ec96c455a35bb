//! Applies this process's own writes to the cache.
//!
//! The client reports the response to each write. A store that can apply it shows the write at once. A write
//! that some store cannot apply is counted as uncovered: reads show it after its watch event.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Cache;
use crate::cache::informer::read_status;
use crate::cache::object::{Scan, Uid};
use crate::cache::store::{ObjectStore, Removal};
use crate::client::{ResourcePath, WriteObserver, Writer};
use crate::key::NamespacedName;

// === impl Cache ===

impl WriteObserver for Cache {
    fn written(&self, path: &ResourcePath, body: &Bytes, writer: Writer) {
        self.apply(path, |store| apply_write(store, path, body, writer));
    }

    fn cached_uids(&self, path: &ResourcePath) -> Vec<String> {
        let Some(request) = named(path) else { return Vec::new() };
        self.stores_of(path).iter().filter_map(|store| store.shown(&request)).collect()
    }

    fn deleted(&self, path: &ResourcePath, body: &Bytes, cached_uids: &[String], writer: Writer) {
        let Some(request) = named(path) else { return self.count_uncovered() };
        self.apply(path, |store| apply_delete(store, path, &request, body, cached_uids, writer));
    }

    fn uncovered(&self, path: &ResourcePath) {
        if !self.stores_of(path).is_empty() {
            self.count_uncovered();
        }
    }
}

impl Cache {
    /// Applies an own write to every store that may hold the object; counts it as uncovered if any of them
    /// cannot apply it.
    fn apply(&self, path: &ResourcePath, apply: impl Fn(&ObjectStore) -> bool) {
        // `count` instead of `any`, so that no store is skipped.
        if self.stores_of(path).iter().filter(|store| !apply(store)).count() > 0 {
            self.count_uncovered();
        }
    }

    fn count_uncovered(&self) {
        self.0.uncovered.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the stores that may hold an object of this path. If there is none, no read can miss the write.
    fn stores_of(&self, path: &ResourcePath) -> Vec<Arc<ObjectStore>> {
        let same_kind =
            |store: &Arc<ObjectStore>| store.kind.plural() == path.plural && store.kind.group() == path.group;
        self.0.cores().into_iter().filter(same_kind).collect()
    }
}

/// Applies the object in the response to an own write; returns whether the store shows the write now. A
/// response in another API version has other bytes than the store holds, so the store waits for the watch
/// event.
///
/// A write that removes the last finalizer of an object being deleted also removes the object; its response
/// is the object at the version before.
pub(super) fn apply_write(store: &ObjectStore, path: &ResourcePath, body: &[u8], writer: Writer) -> bool {
    if let Ok(scan) = Scan::open(body)
        && scan.is_deleting()
        && matches!(scan.is_gone(), Ok(true))
    {
        return store.removed(&removal(&scan, &[]), writer);
    }
    store.kind.version() == path.version && store.written(body, writer)
}

/// Applies the response to an own DELETE of one object, which is a Status or the object being deleted;
/// returns whether the store shows the deletion now. `cached_uids` are the uids cached under this name before
/// the request.
pub(super) fn apply_delete(
    store: &ObjectStore,
    path: &ResourcePath,
    request: &NamespacedName,
    body: &[u8],
    cached_uids: &[String],
    writer: Writer,
) -> bool {
    if let Ok(scan) = Scan::open(body) {
        return match scan.is_gone() {
            Ok(true) => store.removed(&removal(&scan, cached_uids), writer),
            Ok(false) => apply_write(store, path, body, writer),
            Err(_) => false,
        };
    }
    let details = read_status(0, body).details.filter(|details| !details.uid.is_empty());
    details.is_some_and(|details| {
        let uid = &Uid::new(&details.uid);
        store.removed(&Removal { request, uid, version: None, shown: cached_uids }, writer)
    })
}

fn removal<'a>(scan: &'a Scan<'_>, cached_uids: &'a [String]) -> Removal<'a> {
    let version = Some(&scan.resource_version);
    Removal { request: &scan.request, uid: &scan.uid, version, shown: cached_uids }
}

/// Returns the name of the object that a path names; `None` if the path is of a collection.
fn named(path: &ResourcePath) -> Option<NamespacedName> {
    Some(NamespacedName::new(path.namespace.as_deref(), path.name.as_ref()?))
}

#[cfg(test)]
mod tests;
