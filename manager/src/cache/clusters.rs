//! The caches of one manager, one per cluster.
//!
//! Each cache has its own stores, client and tasks; only metrics and status pages cover all of them. A scrape
//! must not repeat a metric family, so one collector reads all caches.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::{Cache, CacheSettings, Inner, KindStatus};
use crate::key::KindId;

/// All caches of one manager, in the order they were made. Cheap to clone; holds only weak references.
#[derive(Clone, Debug, Default)]
pub(super) struct Peers(Arc<RwLock<Vec<Weak<Inner>>>>);

// === impl Cache ===

impl Cache {
    /// Makes a cache without stores for another cluster of the same manager. Its metrics are exported
    /// together with those of this cache, with the label `of_cluster`. Stores, tasks and client are separate.
    ///
    /// The new cache has the settings of this one except `namespaces`, which name namespaces of this cluster:
    /// [`Scope::all`](super::Scope::all) means all namespaces of the other one.
    #[must_use]
    pub fn for_cluster(&self, cluster: &str, client: kube::Client) -> Self {
        let settings = CacheSettings { namespaces: Vec::new(), ..self.0.settings.clone() };
        Self::among(self.0.peers.clone(), Some(cluster.into()), settings, client)
    }

    /// Returns the status of every store of every cluster: cluster by cluster, each in the order of
    /// declaration.
    pub fn kinds_of_all_clusters(&self) -> Vec<KindStatus> {
        self.0.peers.all().iter().flat_map(|cache| cache.statuses()).collect()
    }

    /// Waits for every store declared so far until it has been listed once, its list has failed for any
    /// reason, or `patience` has passed without a response since its first request. Unlike [`Cache::settled`]
    /// it also ends while the API server cannot be reached. Never ends before [`Cache::run`] has begun.
    ///
    /// # Cancel safety
    /// Holds no state: `patience` counts from the first request, so a second call does not start it anew.
    pub(crate) async fn tried(&self, patience: Duration) {
        for core in self.0.cores() {
            core.tried(patience).await;
        }
    }

    /// Returns the kinds that have had no response for at least `patience`, with the time of their first
    /// request.
    pub(crate) fn unanswered(&self, patience: Duration) -> Vec<(KindId, Instant)> {
        let cores = self.0.cores();
        let waiting =
            cores.iter().filter_map(|core| Some((core.kind.clone(), core.counts.unanswered_since()?)));
        waiting.filter(|(_, since)| since.elapsed() >= patience).collect()
    }
}

// === impl Peers ===

impl Peers {
    /// Adds a cache to the caches of its manager, and forgets those that were dropped.
    pub(super) fn join(&self, cache: &Arc<Inner>) {
        let mut peers = self.0.write();
        peers.retain(|peer| peer.strong_count() > 0);
        peers.push(Arc::downgrade(cache));
    }

    pub(super) fn all(&self) -> Vec<Arc<Inner>> {
        self.0.read().iter().filter_map(Weak::upgrade).collect()
    }
}
