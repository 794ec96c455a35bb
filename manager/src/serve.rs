//! A small HTTP/1.1 server whose every resource is bounded, around an axum [`Router`].
//!
//! Serves probes, metrics and the debug pages. The port is bound when the program is put together, so that a port in
//! use is reported before anything starts; connections are accepted once there is something to answer. A server holds
//! no runtime until then: it can be bound on one and run on another.
//!
//! # Invariants
//! 1. At most `connections` are served. When all are taken, a new connection takes the place of the one that has waited
//!    longest for its peer, so neither a silent peer nor one that does not read keeps others out.
//! 2. A connection ends: its header and body arrive in time, its answers are read in time, it lives no longer than
//!    `connection_age`, and once it has to end it has `grace` to send the answer it began.
//! 3. When [`Bound::run`] returns, no task of it is left.

mod ask;
mod connection;
#[cfg(any(test, fuzzing))]
#[path = "serve/tests/fuzz.rs"]
pub(crate) mod fuzz;
mod peers;
mod taken;
mod tls;
mod turns;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use connection::Connection;
use peers::Peers;

pub(crate) use ask::{exchange, shake_hands};
pub(crate) use connection::PeerAddress;
pub use tls::{CertificateError, Certificates, Reads};
pub(crate) use turns::{Turns, held};

/// Pause after an accept that failed because something ran out, usually descriptors: trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The bounds of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections served at the same time, at least 1.
    pub connections: usize,
    /// Bytes of one request's line and headers, at least 8192. More answers 431.
    pub header_bytes: usize,
    /// Time for a whole header to arrive, counted from the connection's begin or the last answer's end; with TLS also for
    /// its handshake.
    pub header_timeout: Duration,
    /// Bytes of one request's body. More answers 413, a body of unknown length (`Transfer-Encoding`) 411.
    pub body_bytes: usize,
    /// Time for a whole body to arrive, counted from the end of its header. Later answers 408.
    pub body_timeout: Duration,
    /// Time for a peer to read a whole answer, counted from when it first makes the server wait.
    pub answer_timeout: Duration,
    /// Age at which a connection has to end, so that clients spread anew over replicas behind one address.
    pub connection_age: Duration,
    /// Time a connection has to send its answer once it has to end.
    pub grace: Duration,
}

/// A listening port on which nothing is accepted yet.
#[derive(Debug)]
pub struct Bound {
    listener: StdListener,
    address: SocketAddr,
    limits: Limits,
    /// `None` for plain HTTP.
    certificates: Option<Certificates>,
}

/// A running server.
#[derive(Clone)]
struct Server {
    limits: Limits,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A kubelet, some scrapers and a few people: a hundred is plenty. Each costs at most its header and its body,
            // 128 KiB, and its unread answer, which the handler has to bound.
            connections: 100,
            header_bytes: 64 * 1024,
            // A prober sends its header at once. A scraper's connection is not kept from one scrape to the next.
            header_timeout: Duration::from_secs(10),
            // An action and the name of its object are a few hundred bytes.
            body_bytes: 64 * 1024,
            body_timeout: Duration::from_secs(5),
            // Prometheus gives up on a scrape after as long.
            answer_timeout: Duration::from_secs(10),
            connection_age: Duration::from_mins(10),
            grace: Duration::from_secs(5),
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Binds an address, such as `0.0.0.0:8081`; port 0 takes a free one.
    ///
    /// # Errors
    /// Fails if the address cannot be read or the port is not free; a retry helps only once its other owner is gone.
    pub fn bind(address: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        let listener = StdListener::bind(address)?;
        // Tokio takes over only listeners that do not block.
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener, limits, certificates: None })
    }

    /// Answers over TLS, and no longer without.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Returns the address really bound: for port 0, the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts and answers until `stop`, then lets open connections finish within `grace` and returns. The bodies of
    /// requests have arrived when the router is called.
    ///
    /// # Errors
    /// Fails at once if this runtime cannot take over the listener or TLS cannot be set up, and never later.
    ///
    /// # Cancel safety
    /// Dropped, it closes its connections.
    pub async fn run(self, router: Router, stop: CancellationToken) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let tls = self.certificates.as_ref().map(Certificates::acceptor).transpose();
        let tls = tls.map_err(io::Error::other)?;
        let _following = JoinSet::from_iter(self.certificates.map(Certificates::follow));
        let server = Server { limits: self.limits, tls, router, stop };
        let mut connections = server.accept_with(|| listener.accept()).await;
        drop(listener);
        while connections.join_next().await.is_some() {}
        Ok(())
    }
}

// === impl Server ===

impl Server {
    /// Accepts until the stop and returns the open connections. Takes the accept call as a function so that its failures
    /// can be tested.
    async fn accept_with<A>(&self, accept: impl Fn() -> A) -> JoinSet<()>
    where
        A: Future<Output = io::Result<(TcpStream, SocketAddr)>>,
    {
        let (mut connections, mut peers) = (JoinSet::new(), Peers::default());
        let mut starved = false;
        loop {
            // Biased: after a stop no further connection is accepted, however many wait.
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return connections,
                Some(_ended) = connections.join_next() => continue,
                accepted = async { accept().await } => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    starved = false;
                    // Later peers wait in the kernel's backlog meanwhile and cost no descriptor.
                    let room = self.make_room(&mut connections, &peers);
                    if self.stop.run_until_cancelled(room).await.is_none() {
                        return connections;
                    }
                    let peer = peers.join(address.ip());
                    let connection = Connection { server: self.clone(), peer: Arc::clone(&peer) };
                    connections.spawn(async move {
                        peer.evicted.run_until_cancelled(connection.serve(stream)).await;
                    });
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut starved, true) {
                        tracing::warn!(%error, "cannot accept connections; trying again every second");
                    }
                    self.stop.run_until_cancelled(sleep(ACCEPT_PAUSE)).await;
                }
            }
        }
    }

    /// Waits until another connection may be served, and evicts one if none ends by itself.
    async fn make_room(&self, connections: &mut JoinSet<()>, peers: &Peers) {
        while connections.len() >= self.limits.connections.max(1) {
            // Biased: where a connection has ended, none is evicted.
            tokio::select! {
                biased;
                _ended = connections.join_next() => {}
                () = async { sleep_until(peers.evict(Instant::now())).await } => {}
            }
        }
    }
}

/// Whether an accept failed because of the one connection it would have returned; the next may succeed at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests;
