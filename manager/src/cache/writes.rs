//! How this process's own writes enter the cache.
//!
//! The client tells of every answered write; what a store can vouch for it shows from then on. The rest is counted:
//! reads show it once its watch event has come.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cache;
use super::frame::Status;
use super::meta::Scan;
use super::store::KindStore;
use crate::key::Request;

/// The collection a write went to, as its path names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The plural.
    pub plural: &'a str,
}

// === impl Cache ===

impl Cache {
    /// Takes the object that a create, update, patch, apply or status write was answered with. Dry runs must not
    /// be told: nothing was written.
    pub fn observe_written(&self, to: Collection<'_>, body: &[u8]) {
        let covered = self.stores_of(to).iter().fold(true, |all, store| store.written(body) && all);
        if !covered {
            self.observe_uncovered();
        }
    }

    /// Takes the answer to a DELETE of one object: a Status, or the object as it is being deleted.
    pub fn observe_deleted(&self, from: Collection<'_>, request: &Request, body: &[u8]) {
        for store in self.stores_of(from) {
            if !answer_to_delete(&store, request, body) {
                self.observe_uncovered();
            }
        }
    }

    /// Counts a write whose answer says nothing about the object: a deletecollection, another subresource.
    pub fn observe_uncovered(&self) {
        self.0.uncovered.fetch_add(1, Ordering::Relaxed);
    }

    fn stores_of(&self, collection: Collection<'_>) -> Vec<Arc<KindStore>> {
        let Collection { group, version, plural } = collection;
        let stores = self.0.stores.read();
        let same = stores.iter().filter(|store| {
            let kind = store.kind();
            kind.plural() == plural && kind.group() == group && kind.version() == version
        });
        same.cloned().collect()
    }
}

fn answer_to_delete(store: &KindStore, request: &Request, body: &[u8]) -> bool {
    if let Ok(scan) = Scan::open(body) {
        return match scan.is_gone() {
            Ok(true) => store.removed(request, scan.uid),
            Ok(false) => store.written(body),
            Err(_) => false,
        };
    }
    let uid = Status::read(0, body).details.and_then(|details| details.uid);
    uid.is_some_and(|uid| store.removed(request, &uid))
}
