//! `/debug/caches`: every store of the cache, by cluster, kind and scope; the manager's own cluster first.

use super::pages::{Caches, Packed, Store, Trouble};
use super::seconds;
use crate::cache::{KindStatus, Packing, Projection};

pub(super) fn page(mut kinds: Vec<KindStatus>) -> Caches {
    // A stable sort: stores that differ only in their projection stay in the order of declaration.
    kinds.sort_by_cached_key(|status| (status.cluster.clone(), status.kind.clone(), status.scope.clone()));
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

/// Returns the value of a page's `projection`.
pub(super) fn name_of(projection: Projection) -> &'static str {
    match projection {
        Projection::Full => "full",
        Projection::Metadata => "metadata",
    }
}
