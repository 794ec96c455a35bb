//! The caches of one manager, one per cluster: what they have in common is what is told of them.
//!
//! Each has stores, a client and tasks of its own. Scrapers, probes and people want the rows of all of them at once:
//! a metric family stands once in a scrape, so one collector reads them all.

use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use super::{Cache, CacheSettings, Inner, KindStatus};

/// The caches that are told of together, in the order they were made. Cheap to clone; keeps none of them.
#[derive(Clone, Default)]
pub(super) struct Peers(Arc<RwLock<Vec<Weak<Inner>>>>);

// === impl Cache ===

impl Cache {
    /// Makes a cache without stores for another cluster of the same manager. Its metrics are told with those of this one,
    /// under the label `of_cluster`; nothing else is shared.
    ///
    /// The settings are this one's but for the namespaces: those are of this cluster, so in the other one
    /// [`Scope::all`](super::Scope::all) is all of them.
    #[must_use]
    pub fn beside(&self, cluster: &str, client: kube::Client) -> Self {
        let settings = CacheSettings { namespaces: Vec::new(), ..self.0.settings.clone() };
        let random = self.0.random.lock().fork();
        Self::among(self.0.peers.clone(), Some(cluster.into()), settings, client, random)
    }

    /// Returns how every store of this cluster and of all others is doing, cluster by cluster, each in the order of
    /// declaration.
    pub fn kinds_everywhere(&self) -> Vec<KindStatus> {
        self.0.peers.all().iter().flat_map(|cache| cache.statuses()).collect()
    }

    /// Waits until every store declared so far has been listed once, or has failed to be for whatever reason: unlike
    /// [`Cache::settled`] also while the API server cannot be reached. Never ends before [`Cache::run`] has begun, nor
    /// while the server takes its time to answer.
    ///
    /// # Cancel safety
    /// Holds no state; dropping it loses nothing.
    pub async fn tried(&self) {
        for core in self.0.cores() {
            core.tried().await;
        }
    }

    /// Returns whether [`Cache::tried`] would end at once.
    pub fn was_tried(&self) -> bool {
        self.0.cores().iter().all(|core| core.counts.was_tried())
    }
}

// === impl Peers ===

impl Peers {
    pub(super) fn join(&self, cache: &Arc<Inner>) {
        let mut peers = self.0.write();
        peers.retain(|peer| peer.strong_count() > 0);
        peers.push(Arc::downgrade(cache));
    }

    pub(super) fn all(&self) -> Vec<Arc<Inner>> {
        self.0.read().iter().filter_map(Weak::upgrade).collect()
    }
}
