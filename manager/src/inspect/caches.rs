//! `/debug/caches`: every store of the cache, by cluster, kind and scope; the manager's own cluster first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::seconds;
use crate::cache::{KindStatus, Packing, Projection};

#[derive(Serialize)]
pub(super) struct Caches {
    caches: Vec<Store>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Store {
    /// `null` for the manager's own.
    cluster: Option<String>,
    /// As kubectl takes it.
    kind: String,
    version: String,
    scope: String,
    /// `full`, or `metadata` for metadata only.
    projection: &'static str,
    synced: bool,
    /// `null` while every list and watch of it works.
    down_seconds: Option<f64>,
    last_error: Option<String>,
    /// The kind is not served or not readable: somebody has to act.
    absent: bool,
    objects: usize,
    bytes: usize,
    /// `null` where nothing is packed.
    packed: Option<Packed>,
    restarts: u64,
    relists: u64,
    events: u64,
    last_event_seconds: Option<f64>,
    decode_errors: u64,
    /// Objects served as they were before, or not at all, and why: some of them, if they are many.
    left_out: BTreeMap<String, String>,
    /// Handlers that had trouble, by name.
    handlers: BTreeMap<String, Trouble>,
    /// Versions left out of an index whose function failed, by index.
    unindexed: BTreeMap<String, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Packed {
    objects: usize,
    /// Of their bodies as they are kept, and as they are read.
    bytes: usize,
    plain_bytes: usize,
    /// How many bytes one stands for.
    ratio: f64,
    dictionaries: usize,
    dictionary_bytes: usize,
}

#[derive(Serialize)]
struct Trouble {
    panics: u64,
    slow: u64,
}

pub(super) fn page(mut kinds: Vec<KindStatus>) -> Caches {
    // Stable, so that stores that differ in their projection alone stay in the order of declaration.
    let place = |status: &KindStatus| (status.cluster.clone(), status.kind.clone(), status.scope.clone());
    kinds.sort_by_cached_key(place);
    Caches { caches: kinds.into_iter().map(Store::from).collect() }
}

impl From<KindStatus> for Store {
    fn from(status: KindStatus) -> Self {
        let handlers = status.handlers.into_iter();
        Self {
            cluster: status.cluster.as_deref().map(str::to_owned),
            kind: status.kind.to_string(),
            version: status.kind.version().to_owned(),
            scope: status.scope,
            projection: match status.projection {
                Projection::Full => "full",
                Projection::Metadata => "metadata",
            },
            synced: status.synced,
            down_seconds: status.down_since.map(|since| seconds(since.elapsed())),
            last_error: status.last_error,
            absent: status.absent,
            objects: status.objects,
            bytes: status.bytes,
            packed: Packed::of(status.packing),
            restarts: status.restarts,
            relists: status.relists,
            events: status.events,
            last_event_seconds: status.last_event_age.map(seconds),
            decode_errors: status.decode_errors,
            left_out: status.left_out,
            handlers: handlers
                .map(|(name, trouble)| (name, Trouble { panics: trouble.panics, slow: trouble.slow }))
                .collect(),
            unindexed: status.unindexed,
        }
    }
}

impl Packed {
    fn of(packing: Packing) -> Option<Self> {
        Some(Self {
            objects: packing.objects,
            bytes: packing.bytes,
            plain_bytes: packing.plain_bytes,
            ratio: (packing.ratio()? * 10.0).round() / 10.0,
            dictionaries: packing.dictionaries,
            dictionary_bytes: packing.dictionary_bytes,
        })
    }
}
