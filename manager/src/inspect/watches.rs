//! `/debug/watches`: every list and watch that the stores are made of; those that do not work first.

use super::caches::word;
use super::pages::{Watch, Watches};
use super::seconds;
use crate::cache::{KindStatus, PartStatus};

pub(super) fn page(kinds: &[KindStatus]) -> Watches {
    let mut watches: Vec<_> = kinds.iter().flat_map(Watch::of).collect();
    watches.sort_by_cached_key(|watch| {
        (
            watch.working,
            watch.cluster.clone(),
            watch.kind.clone(),
            watch.scope.clone(),
            watch.namespace.clone(),
        )
    });
    Watches { watches }
}

impl Watch {
    fn of(status: &KindStatus) -> impl Iterator<Item = Self> {
        status.parts.iter().map(|part| {
            let PartStatus { namespace, working, since, last_error, absent, lists, watches, .. } = part;
            Self {
                cluster: status.cluster.as_deref().map(str::to_owned),
                kind: status.kind.to_string(),
                scope: status.scope.clone(),
                projection: word(status.projection).into(),
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
