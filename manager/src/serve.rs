//! A small HTTP/1.1 server around an axum [`Router`], with a bound for every resource.
//!
//! Serves probes, metrics and the debug pages. The port is bound while the manager is built, so that a port
//! in use is reported before anything starts; connections are accepted from [`Bound::run`] on. A [`Bound`]
//! belongs to no runtime: it can be bound on one and run on another.
//!
//! # Invariants
//! 1. At most `connections` are served. A further one evicts the connection that has waited longest for its
//!    peer, so peers that do not send or do not read cannot keep others out.
//! 2. Every connection ends: a limit applies to the arrival of header and body, to the reading of an answer,
//!    to its age, and to the time for its last answer (`grace`).
//! 3. When [`Bound::run`] returns, none of its tasks is left.

mod blocking;
mod client;
mod connection;
#[cfg(any(test, fuzzing))]
#[path = "serve/tests/fuzz.rs"]
pub(crate) mod fuzz;
mod peers;
mod tls;
mod write_timeout;

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

pub(crate) use blocking::{BlockingSlots, keep_permit};
pub(crate) use client::{connect_tls, exchange};
pub(crate) use connection::PeerAddress;
pub use tls::{CertificateError, Certificates, Reads};

/// Pause after a connection could not be accepted for lack of a resource, usually file descriptors; an
/// immediate retry would be a hot loop.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The limits of an HTTP server on connections, requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections served at the same time, at least 1.
    pub connections: usize,
    /// Maximum length in bytes of a request's line and headers, at least 8192. A longer request is answered
    /// 431.
    pub header_bytes: usize,
    /// Time limit for a whole request header to arrive, counted from the start of the connection or the end
    /// of the last answer. With TLS also the time for the handshake.
    pub header_timeout: Duration,
    /// Maximum length in bytes of a request's body. A longer body is answered 413, one without a
    /// `Content-Length` 411.
    pub body_bytes: usize,
    /// Time limit for a whole request body to arrive, counted from the end of the header. A slower one is
    /// answered 408.
    pub body_timeout: Duration,
    /// Time limit for a peer to read a whole answer, counted from when the server first has to wait for it.
    pub answer_timeout: Duration,
    /// Age at which a connection must end, so that clients spread again over the replicas behind one address.
    pub connection_age: Duration,
    /// Time limit for a connection that must end, at a stop or because of its age, to send its last answer.
    pub grace: Duration,
}

/// The listening port of a server that does not accept connections yet.
#[derive(Debug)]
pub struct Bound {
    listener: StdListener,
    address: SocketAddr,
    limits: Limits,
    /// The certificate and key for TLS; `None` for plain HTTP.
    certificates: Option<Certificates>,
}

/// A running HTTP server; its clones serve one connection each.
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
            // Enough for a kubelet, some scrapers and a few users. Each costs at most 128 KiB for header and
            // body, plus its unread answer, which the handler must bound.
            connections: 100,
            header_bytes: 64 * 1024,
            // A prober sends its header at once. A scraper's connection need not last until the next scrape.
            header_timeout: Duration::from_secs(10),
            // An action and the name of its object take a few hundred bytes.
            body_bytes: 64 * 1024,
            body_timeout: Duration::from_secs(5),
            // The default timeout of a Prometheus scrape.
            answer_timeout: Duration::from_secs(10),
            connection_age: Duration::from_mins(10),
            grace: Duration::from_secs(5),
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Binds a server to an address such as `0.0.0.0:8081`; port 0 binds a free port.
    ///
    /// # Errors
    /// Fails if the address is invalid or the port in use; a retry helps only once the other process has
    /// closed it.
    pub fn bind(address: impl ToSocketAddrs, limits: Limits) -> io::Result<Self> {
        let listener = StdListener::bind(address)?;
        // `TcpListener::from_std` requires it.
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener, limits, certificates: None })
    }

    /// Makes the server serve TLS, with these certificates, instead of plain HTTP.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Returns the address that the server is bound to; for port 0 with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections and answers requests until `stop`, then lets open connections finish within
    /// `grace` and returns. The router is called once the whole body of a request has arrived.
    ///
    /// # Errors
    /// Fails if the runtime cannot register the listener or TLS cannot be set up: at once or not at all.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections.
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
    /// Accepts and serves connections until the server is stopped, and returns the tasks of the open ones.
    /// `accept` is an argument so that tests can make it fail.
    async fn accept_with<A>(&self, accept: impl Fn() -> A) -> JoinSet<()>
    where
        A: Future<Output = io::Result<(TcpStream, SocketAddr)>>,
    {
        let (mut connections, mut peers) = (JoinSet::new(), Peers::default());
        let mut starved = false;
        loop {
            // Biased: after a stop no further connection is accepted.
            let accepted = tokio::select! {
                biased;
                () = self.stop.cancelled() => return connections,
                Some(_ended) = connections.join_next() => continue,
                accepted = async { accept().await } => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    starved = false;
                    // Further peers wait in the kernel's backlog, where they cost no descriptor.
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
                        tracing::warn!(%error, "cannot accept connections; retrying every second");
                    }
                    self.stop.run_until_cancelled(sleep(ACCEPT_PAUSE)).await;
                }
            }
        }
    }

    /// Waits until fewer connections than the server's limit are open; evicts one if none ends by itself.
    async fn make_room(&self, connections: &mut JoinSet<()>, peers: &Peers) {
        while connections.len() >= self.limits.connections.max(1) {
            // Biased: if a connection has ended, none is evicted.
            tokio::select! {
                biased;
                _ended = connections.join_next() => {}
                () = async { sleep_until(peers.evict(Instant::now())).await } => {}
            }
        }
    }
}

/// Returns whether an accept failed only for its own connection, so that the next accept may succeed at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests;
