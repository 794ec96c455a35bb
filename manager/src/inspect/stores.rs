//! `/debug/caches` and `/debug/watches`: the stores of the cache, and their lists and watches.

use super::pages::{Caches, Packed, Store, Trouble, Watch, Watches};
use super::seconds;
use crate::cache::{KindStatus, Packing, PartStatus, Projection};

/// Returns the data of `/debug/caches`: every store, by cluster, kind and scope; the manager's own cluster
/// first.
pub(super) fn caches(mut kinds: Vec<KindStatus>) -> Caches {
    // A stable sort: stores that differ only in their projection stay in the order of declaration.
    kinds.sort_by_cached_key(|status| (status.cluster.clone(), status.kind.clone(), status.scope.clone()));
    Caches { caches: kinds.into_iter().map(Store::from).collect() }
}

/// Returns the data of `/debug/watches`: every list and watch of the stores, failing watches first.
pub(super) fn watches(kinds: &[KindStatus]) -> Watches {
    let mut watches: Vec<_> = kinds.iter().flat_map(Watch::of).collect();
    watches.sort_by(|one, other| one.rank().cmp(&other.rank()));
    Watches { watches }
}

// === impl Store ===

impl From<KindStatus> for Store {
    fn from(status: KindStatus) -> Self {
        let handlers = status.handlers.into_iter();
        Self {
            cluster: status.cluster.as_deref().map(str::to_owned),
            kind: status.kind.to_string(),
            version: status.kind.version().to_owned(),
            scope: status.scope,
            projection: name_of(status.projection).into(),
            synced: status.synced,
            down_seconds: status.down_since.map(|since| seconds(since.elapsed())),
            last_error: status.last_error,
            absent: status.absent,
            objects: status.objects,
            bytes: status.bytes,
            too_large: status.too_large,
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

// === impl Watch ===

impl Watch {
    fn rank(&self) -> impl Ord {
        (self.working, &self.cluster, &self.kind, &self.scope, &self.namespace)
    }

    fn of(status: &KindStatus) -> impl Iterator<Item = Self> {
        status.parts.iter().map(|part| {
            let PartStatus { namespace, working, since, last_error, absent, lists, watches, .. } = part;
            Self {
                cluster: status.cluster.as_deref().map(str::to_owned),
                kind: status.kind.to_string(),
                scope: status.scope.clone(),
                projection: name_of(status.projection).into(),
                namespace: namespace.as_deref().map(str::to_owned),
                working: *working,
                since_seconds: seconds(since.elapsed()),
                lists: *lists,
                watches: *watches,
                last_error: last_error.clone(),
                absent: *absent,
            }
        })
    }
}

/// Returns the value of a store's or watch's `projection` in the debug pages: `full` or `metadata`.
fn name_of(projection: Projection) -> &'static str {
    match projection {
        Projection::Full => "full",
        Projection::Metadata => "metadata",
    }
}
