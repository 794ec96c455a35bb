//! Chooses the connection to evict for a new one.
//!
//! A hundred peers that send no request, or do not read their answers, must not keep a prober out: the
//! kubelet restarts a healthy process if its liveness probe waits in the backlog. So the connection that has
//! waited longest for its peer is evicted.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time for which a connection may wait for its peer before it can be evicted; a normal peer sends its
/// request faster. With a hundred connections a thousand peers per second can be served, and the kernel's
/// backlog (128) within two of these times.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The open connections of a server, of which one may be evicted to make room.
#[derive(Default)]
pub(super) struct Peers(Vec<Arc<Peer>>);

/// The client at the other end of one connection. The connection holds the second reference.
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Time since which the connection waits for the peer to send or to read; `None` while the handler runs.
    waiting: Mutex<Option<Instant>>,
    /// Cancelled to evict the peer: its connection is then closed.
    pub(super) evicted: CancellationToken,
}

// === impl Peers ===

impl Peers {
    /// Adds a connection from this address, which starts with a wait for its peer, and removes ended ones.
    pub(super) fn join(&mut self, address: IpAddr) -> Arc<Peer> {
        self.0.retain(|peer| Arc::strong_count(peer) > 1);
        let waiting = Mutex::new(Some(Instant::now()));
        let peer = Arc::new(Peer { address, waiting, evicted: CancellationToken::new() });
        self.0.push(Arc::clone(&peer));
        peer
    }

    /// Evicts the connection that has waited longest, if for at least [`MIN_WAIT`]; returns the time for the
    /// next try.
    pub(super) fn evict(&self, now: Instant) -> Instant {
        let open = self.0.iter().filter(|peer| Arc::strong_count(peer) > 1);
        let waiting = open.filter_map(|peer| Some(((*peer.waiting.lock())?, peer)));
        match waiting.min_by_key(|(since, _)| *since) {
            Some((since, _)) if since + MIN_WAIT > now => since + MIN_WAIT,
            Some((_, peer)) => {
                peer.answering();
                peer.evicted.cancel();
                now + MIN_WAIT
            }
            // All handlers run. The first answer gets time to be read.
            None => now + MIN_WAIT,
        }
    }
}

// === impl Peer ===

impl Peer {
    /// Records that the handler of a request runs; the connection is not evicted meanwhile.
    pub(super) fn answering(&self) {
        *self.waiting.lock() = None;
    }

    /// Records that the connection waits for the peer from now on.
    pub(super) fn wait(&self) {
        *self.waiting.lock() = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests;
