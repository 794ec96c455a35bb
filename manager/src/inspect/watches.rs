//! `/debug/watches`: every list and watch that the stores are made of; those that do not work first.

use serde::Serialize;

use super::seconds;
use crate::cache::{KindStatus, PartStatus, Projection};

#[derive(Serialize)]
pub(super) struct Watches {
    watches: Vec<Watch>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Watch {
    /// `null` for the manager's own.
    cluster: Option<String>,
    /// As kubectl takes it.
    kind: String,
    /// Of the store it is for.
    scope: String,
    /// `full`, or `metadata` for metadata only.
    projection: &'static str,
    /// `null` for all namespaces, and for kinds without.
    namespace: Option<String>,
    working: bool,
    /// For how long it has worked, or has not.
    since_seconds: f64,
    /// Lists completed.
    lists: u64,
    /// Watches opened.
    watches: u64,
    /// `null` while it works, and before the first answer.
    last_error: Option<String>,
    /// The kind is not served or not readable: somebody has to act.
    absent: bool,
}

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
                projection: match status.projection {
                    Projection::Full => "full",
                    Projection::Metadata => "metadata",
                },
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
