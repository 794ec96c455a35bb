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

/// The status of one store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KindStatus {
    /// The name of the cluster; `None` for the manager's own.
    pub cluster: Option<Arc<str>>,
    /// The kind.
    pub kind: KindId,
    /// The scope of the store, as a phrase.
    pub scope: String,
    /// Whether the store holds whole objects or only metadata.
    pub projection: Projection,
    /// How the readiness of a replica depends on the kind.
    pub required: Required,
    /// Whether the first list of every part is complete. Never becomes false again.
    pub synced: bool,
    /// Whether every part has been listed once, or its kind was found not to be served or readable. Never
    /// becomes false again. A store that is settled but not synced had no kind to list at its start.
    pub settled: bool,
    /// The time since which at least one part has had no working list or watch; `None` while all parts work.
    /// Before the first answer this is the start of the store.
    pub down_since: Option<Instant>,
    /// The error of the last attempt; `None` while all parts work, and before the first answer.
    pub last_error: Option<String>,
    /// Whether the kind is not served or not readable: unlike an outage, this needs an action of an operator.
    /// Set after several such answers in a row: three (two to three seconds) for a kind that was never
    /// listed, five (about fifteen seconds) for a kind that has been watched. Reset by the next working list
    /// or watch; an outage in between does not change it.
    pub absent: bool,
    /// The number of stored objects.
    pub objects: usize,
    /// Bytes of the bodies and of the fixed part of the metadata.
    pub bytes: usize,
    /// Stored objects of which only the metadata is kept: they are longer than `cache.maxObjectBytes`.
    pub too_large: usize,
    /// Statistics about packed bodies.
    pub packing: Packing,
    /// Watches opened, not counting the first of each part.
    pub restarts: u64,
    /// Lists completed, not counting the first of each part.
    pub relists: u64,
    /// Watch events handled, including bookmarks.
    pub events: u64,
    /// The time since the last watch event or bookmark; `None` before the first.
    pub last_event_age: Option<Duration>,
    /// Objects and events that were not accepted, and typed reads that failed to decode.
    pub decode_errors: u64,
    /// Times that packing made no progress for so long that new objects stayed uncompressed.
    pub pack_stalls: u64,
    /// Objects whose latest version was not accepted, with the reasons: reads return an older version or no
    /// object. At most a hundred objects, each until a version is accepted or the object is deleted.
    pub left_out: BTreeMap<String, String>,
    /// Panics and slow calls by handler, for subscribed handlers that had any.
    pub handlers: BTreeMap<String, HandlerTrouble>,
    /// Versions missing in an index because its function failed, by index, for existing indexes that had any.
    pub unindexed: BTreeMap<String, u64>,
    /// The lists and watches of the store: one, or one per namespace. Empty if there is no namespace to
    /// watch.
    pub parts: Vec<PartStatus>,
}

/// The status of one list and watch of a store.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartStatus {
    /// The namespace; `None` for all namespaces and for cluster-scoped kinds.
    pub namespace: Option<Arc<str>>,
    /// Whether the list or watch works.
    pub working: bool,
    /// The time since which `working` has its current value.
    pub since: Instant,
    /// The error of the last attempt; `None` while `working`, and before the first answer.
    pub last_error: Option<String>,
    /// See [`KindStatus::absent`].
    pub absent: bool,
    /// Lists completed.
    pub lists: u64,
    /// Watches opened.
    pub watches: u64,
}

/// Panics and slow calls of one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerTrouble {
    /// Deltas lost to a panic.
    pub panics: u64,
    /// Calls that took longer than [`crate::cache::SLOW_HANDLER`].
    pub slow: u64,
}
