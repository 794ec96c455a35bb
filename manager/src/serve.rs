//! A small HTTP/1.1 server whose every resource is bounded.
//!
//! A leaf, used for probes, metrics and inspection. The port is bound when the program is put together, so that a
//! port in use is told before anything starts, and connections are accepted once there is something to answer. It
//! holds no runtime until then: a server can be bound on one and run on another.
//!
//! # Invariants
//! 1. At most `connections` are served. Who comes when all places are taken gets that of the connection that has waited
//!    longest for its peer, so neither silence nor a peer that does not read keeps others out.
//! 2. A connection ends: its header and body come in time, its answers are taken in time, it lives no longer than
//!    `connection_age`, and once told to end it has `grace` to send what it began.
//! 3. When [`Bound::run`] returns, no task of it is left.

mod blocking;
mod body;
mod conversation;
mod places;
mod taken;
mod tls;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use conversation::Conversation;
use places::{Place, Places};

pub(crate) use blocking::{blocking, blocking_until_taken};
pub use tls::{CertificateError, Certificates, Reads};

/// Pause after an accept that failed for want of something, usually descriptors: trying at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Answers one request, whose body is whole: empty if it had none. A panic in it answers 500.
pub type Handler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// What a server may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections served at the same time, at least 1.
    pub connections: usize,
    /// Bytes of one request's line and headers, at least 8192. More answers 431.
    pub header_bytes: usize,
    /// Time for a whole header to arrive, counted from the connection's begin or the last answer's end; with TLS also for
    /// its handshake.
    pub header_timeout: Duration,
    /// Bytes of one request's body. More answers 413, a length that is not told (`Transfer-Encoding`) 411.
    pub body_bytes: usize,
    /// Time for a whole body to arrive, counted from the end of its header. Later answers 408.
    pub body_timeout: Duration,
    /// Time for a whole answer to be taken, counted from when the peer first lets it wait.
    pub answer_timeout: Duration,
    /// Age at which a connection is told to end, so that clients spread anew over replicas behind one address.
    pub connection_age: Duration,
    /// Time a connection has to send its answer once it was told to end.
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

/// A port that could not be bound. Trying again helps only once its other owner is gone.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; free the port or choose another bindAddress")]
pub struct BindError {
    address: String,
    #[source]
    source: io::Error,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A kubelet, some scrapers and a few people: a hundred is plenty. Each costs at most its header and its body,
            // 128 KiB, and the answer that it has not taken yet, which is the handler's to bound.
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
    /// Binds `address`, such as `0.0.0.0:8081`; port 0 takes a free one.
    ///
    /// # Errors
    /// Fails if the address cannot be read or the port is not free.
    pub fn bind(address: &str, limits: Limits) -> Result<Self, BindError> {
        let bind = || {
            let listener = StdListener::bind(address)?;
            // Tokio takes over only listeners that do not block.
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address, limits, certificates: None })
        };
        bind().map_err(|source| BindError { address: address.to_owned(), source })
    }

    /// Answers over TLS, and no longer without.
    #[must_use]
    pub fn with_certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Returns the address really bound: with port 0 asked, the port that was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts and answers until `stop`, then lets open connections finish within `grace` and returns.
    ///
    /// # Errors
    /// Fails at once if this runtime cannot take over the listener or TLS cannot be spoken, and never later.
    ///
    /// # Cancel safety
    /// Dropped, it tells its connections to end and does not wait for them.
    pub async fn run(self, handler: Handler, stop: CancellationToken) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let tls = self.certificates.as_ref().map(Certificates::acceptor).transpose();
        let tls = tls.map_err(io::Error::other)?;
        // Connections end when the loop does, also when this future is dropped.
        let ending = stop.child_token();
        let _end = ending.clone().drop_guard();
        let connections = TaskTracker::new();
        if let Some(certificates) = self.certificates {
            connections.spawn(ending.clone().run_until_cancelled_owned(certificates.follow()));
        }
        let serve = Serve { limits: self.limits, tls, handler, connections: connections.clone(), ending };
        serve.accept_with(|| listener.accept(), &stop).await;
        drop(listener);
        connections.close();
        connections.wait().await;
        Ok(())
    }
}

/// What the accept loop and its connections share.
struct Serve {
    limits: Limits,
    tls: Option<TlsAcceptor>,
    handler: Handler,
    connections: TaskTracker,
    /// Cancelled when connections are to end.
    ending: CancellationToken,
}

// === impl Serve ===

impl Serve {
    /// Accepts until `stop`. Takes the accept call as a function so that its failures can be tested.
    async fn accept_with<A>(&self, accept: impl Fn() -> A, stop: &CancellationToken)
    where
        A: Future<Output = io::Result<(TcpStream, SocketAddr)>>,
    {
        let places = Places::new(self.limits.connections);
        let mut starved = false;
        loop {
            // Biased: after a stop no further connection is accepted, however many wait.
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                accepted = async { accept().await } => accepted,
            };
            match accepted {
                Ok((stream, _peer)) => {
                    starved = false;
                    // Who comes meanwhile waits in the kernel's backlog and costs no descriptor.
                    let Some(place) = stop.run_until_cancelled(places.take()).await else { return };
                    self.connections.spawn(self.connection(stream, place));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut starved, true) {
                        tracing::warn!(%error, "cannot accept connections; trying again every second");
                    }
                    stop.run_until_cancelled(sleep(ACCEPT_PAUSE)).await;
                }
            }
        }
    }

    /// Serves one connection to its end, or until it loses its place.
    fn connection(&self, stream: TcpStream, place: Place) -> impl Future<Output = ()> + Send + use<> {
        let (tls, ending) = (self.tls.clone(), self.ending.clone());
        let place = Arc::new(place);
        let conversation = Conversation {
            limits: self.limits,
            handler: Arc::clone(&self.handler),
            place: Arc::clone(&place),
        };
        async move {
            let serving = async {
                let Some(tls) = tls else { return conversation.hold(stream, &ending).await };
                let handshake = timeout(conversation.limits.header_timeout, tls.accept(stream));
                match ending.run_until_cancelled(handshake).await {
                    Some(Ok(Ok(stream))) => conversation.hold(stream, &ending).await,
                    Some(Ok(Err(error))) => tracing::trace!(%error, "no TLS was agreed on"),
                    Some(Err(_late)) => tracing::trace!("no TLS was agreed on in time"),
                    None => {}
                }
            };
            // Biased: a connection that is done is done.
            tokio::select! {
                biased;
                () = serving => {}
                () = place.lost() => tracing::debug!("closed a connection that waited for its peer: others came"),
            }
        }
    }
}

/// Whether an accept failed because of the one connection it would have given; the next may be fine at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
