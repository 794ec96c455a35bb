//! The caches of one manager, one per cluster: what they have in common is what is told of them.
//!
//! Each has stores, a client and tasks of its own. Scrapers, probes and people want the rows of all of them at once:
//! a metric family stands once in a scrape, so one collector reads them all.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::{Cache, CacheSettings, Inner, KindStatus};
use crate::key::KindId;

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

    /// Waits until every store declared so far has been listed once, or has failed to be for whatever reason, or has had
    /// no answer for as long as `patience` since it first asked: unlike [`Cache::settled`] also while the API server cannot
    /// be reached. Never ends before [`Cache::run`] has begun.
    ///
    /// # Cancel safety
    /// Nothing is lost, nor does it take longer if it is called again.
    pub(crate) async fn tried(&self, patience: Duration) {
        for core in self.0.cores() {
            core.tried(patience).await;
        }
    }

    /// Returns what has had no answer for at least `patience` since it first asked, and when that was.
    pub(crate) fn silent(&self, patience: Duration) -> Vec<(KindId, Instant)> {
        let cores = self.0.cores();
        let silent = cores.iter().filter_map(|core| Some((core.kind.clone(), core.counts.asking_since()?)));
        silent.filter(|(_, since)| since.elapsed() >= patience).collect()
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
