//! The status of the cache: one entry per store for probes, status pages and metrics.
//!
//! The numbers are kept in the stores and read on request, so a status page and a scrape cannot disagree.
//! Metric labels are kind and group, never names of objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::object::{Packing, Projection};
use crate::cache::store::Required;
use crate::key::KindId;

/// The status of one store of the cache, for probes, status pages and metrics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KindStatus {
    /// The name of the store's cluster; `None` for the manager's own.
    pub cluster: Option<Arc<str>>,
    /// The kind of the objects in the store.
    pub kind: KindId,
    /// The scope of the store, as a phrase.
    pub scope: String,
    /// Whether the store holds whole objects or only metadata.
    pub projection: Projection,
    /// How the readiness of a replica depends on the kind of the store.
    pub required: Required,
    /// Whether the first list of the store is complete, in every namespace that it lists. Never becomes false
    /// again.
    pub synced: bool,
    /// Whether the store has been listed once in every namespace, or its kind was found not to be served or
    /// readable. Never becomes false again. A store that is settled but not synced had no kind to list at its
    /// start.
    pub settled: bool,
    /// The time since which at least one of the store's lists and watches has not worked; `None` while all of
    /// them work. Before the first answer this is the start of the store.
    pub down_since: Option<Instant>,
    /// The error of the last attempt to list or watch; `None` while all lists and watches of the store work,
    /// and before the first answer.
    pub last_error: Option<String>,
    /// Whether the kind of the store is not served or not readable: unlike an outage, this needs an action of
    /// an operator. Set after several such answers in a row: three (two to three seconds) for a kind that was
    /// never listed, five (about fifteen seconds) for a kind that has been watched. Reset by the next working
    /// list or watch; an outage in between does not change it.
    pub absent: bool,
    /// The number of objects in the store.
    pub objects: usize,
    /// Bytes that the store's objects take: their bodies as they are kept, and the fixed part of their
    /// metadata.
    pub bytes: usize,
    /// Number of stored objects of which only the metadata is kept: they are longer than
    /// `cache.maxObjectBytes`.
    pub too_large: usize,
    /// Statistics about the packed (compressed) bodies of the store's objects.
    pub packing: Packing,
    /// Number of watches of the store that were opened, not counting the first one in each namespace.
    pub restarts: u64,
    /// Number of lists of the store that were completed, not counting the first one in each namespace.
    pub relists: u64,
    /// Number of watch events that the store has handled, including bookmarks.
    pub events: u64,
    /// The time since the last watch event or bookmark of the store; `None` before the first.
    pub last_event_age: Option<Duration>,
    /// Number of objects and events that the store did not accept, and of typed reads that failed to decode.
    pub decode_errors: u64,
    /// Number of times that packing (compressing) made no progress for so long that new objects stayed
    /// uncompressed.
    pub pack_stalls: u64,
    /// Objects with a latest version that was not accepted, with the reasons: reads return an older version
    /// or no object. At most a hundred objects, each until a version is accepted or the object is deleted.
    pub left_out: BTreeMap<String, String>,
    /// Number of panics and slow calls by name of the handler, for subscribed handlers that had any.
    pub handlers: BTreeMap<String, HandlerTrouble>,
    /// Number of object versions missing in an index because its function failed, by name of the index, for
    /// existing indexes that had any.
    pub unindexed: BTreeMap<String, u64>,
    /// The status of the lists and watches of the store: one, or one per namespace. Empty if there is no
    /// namespace to watch.
    pub parts: Vec<PartStatus>,
}

/// The status of the list and watch of a store in one namespace, or in all.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartStatus {
    /// The namespace that is listed and watched; `None` for all namespaces and for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// Whether the list or watch of this namespace, or of all, works.
    pub working: bool,
    /// The time since which `working` has its current value.
    pub since: Instant,
    /// The error of the last attempt to list or watch; `None` while `working`, and before the first answer.
    pub last_error: Option<String>,
    /// Whether the server answers that the kind is not served or not readable, as in [`KindStatus::absent`].
    pub absent: bool,
    /// Number of lists completed, the first one included.
    pub lists: u64,
    /// Number of watches opened, the first one included.
    pub watches: u64,
}

/// Number of panics and slow calls of one handler of a store's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerTrouble {
    /// Number of deltas that the handler did not handle because it panicked.
    pub panics: u64,
    /// Number of calls of the handler that took longer than [`crate::cache::SLOW_HANDLER`].
    pub slow: u64,
}
