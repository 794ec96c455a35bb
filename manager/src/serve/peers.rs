//! Which connection makes room for a new one.
//!
//! A hundred peers that send nothing, or do not read their answers, must not keep a prober out: a liveness probe that
//! waits in the backlog costs a healthy process its life. So the connection that has waited longest for its peer is
//! evicted.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a connection may wait for its peer although others wait for room: an honest peer has sent its request by
/// then. With a hundred connections a thousand peers a second get their turn, and the kernel's backlog (128) is through
/// within two turns.
const TURN: Duration = Duration::from_millis(100);

/// The open connections.
#[derive(Default)]
pub(super) struct Peers(Vec<Arc<Peer>>);

/// The peer of one connection, which holds the other reference.
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Since when the connection waits for the peer, to send or to read; `None` while an answer is being made.
    waiting: Mutex<Option<Instant>>,
    /// Cancelled to close the connection.
    pub(super) evicted: CancellationToken,
}

// === impl Peers ===

impl Peers {
    /// Adds a connection, which begins by waiting for its peer, and forgets those that have ended.
    pub(super) fn join(&mut self, address: IpAddr) -> Arc<Peer> {
        self.0.retain(|peer| Arc::strong_count(peer) > 1);
        let waiting = Mutex::new(Some(Instant::now()));
        let peer = Arc::new(Peer { address, waiting, evicted: CancellationToken::new() });
        self.0.push(Arc::clone(&peer));
        peer
    }

    /// Evicts the connection that has waited longest, if its turn is over; returns when to try again.
    pub(super) fn evict(&self, now: Instant) -> Instant {
        let open = self.0.iter().filter(|peer| Arc::strong_count(peer) > 1);
        let waiting = open.filter_map(|peer| Some(((*peer.waiting.lock())?, peer)));
        match waiting.min_by_key(|(since, _)| *since) {
            Some((since, _)) if since + TURN > now => since + TURN,
            Some((_, peer)) => {
                peer.answering();
                peer.evicted.cancel();
                now + TURN
            }
            // Answers are being made for all. The first that is done gets the time to be read.
            None => now + TURN,
        }
    }
}

// === impl Peer ===

impl Peer {
    /// Keeps the connection while an answer is made.
    pub(super) fn answering(&self) {
        *self.waiting.lock() = None;
    }

    /// Begins to wait for the peer.
    pub(super) fn wait(&self) {
        *self.waiting.lock() = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests;
