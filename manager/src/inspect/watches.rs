//! `/debug/watches`: every list and watch of the stores, failing watches first.

use super::caches::name_of;
use super::pages::{Watch, Watches};
use super::seconds;
use crate::cache::{KindStatus, PartStatus};

pub(super) fn page(kinds: &[KindStatus]) -> Watches {
    let mut watches: Vec<_> = kinds.iter().flat_map(Watch::of).collect();
    watches.sort_by(|one, other| one.rank().cmp(&other.rank()));
    Watches { watches }
}

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
