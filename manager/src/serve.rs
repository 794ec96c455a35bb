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
mod places;
mod taken;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use places::{Place, Places};
use taken::Taken;

pub(crate) use blocking::blocking;

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
    /// Time for a whole header to arrive, counted from the connection's or the last answer's end.
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
            // A kubelet, some scrapers and a few people: a hundred is plenty and costs at most 100 x 64 KiB.
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
            Ok(Self { listener, address, limits })
        };
        bind().map_err(|source| BindError { address: address.to_owned(), source })
    }

    /// Returns the address really bound: with port 0 asked, the port that was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts and answers until `stop`, then lets open connections finish within `grace` and returns.
    ///
    /// # Errors
    /// Fails at once if this runtime cannot take over the listener, and never later.
    ///
    /// # Cancel safety
    /// Dropped, it tells its connections to end and does not wait for them.
    pub async fn run(self, handler: Handler, stop: CancellationToken) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        // Connections end when the loop does, also when this future is dropped.
        let ending = stop.child_token();
        let _end = ending.clone().drop_guard();
        let connections = TaskTracker::new();
        let serve = Serve { limits: self.limits, handler, connections: connections.clone(), ending };
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
        let (limits, handler, ending) = (self.limits, Arc::clone(&self.handler), self.ending.clone());
        async move {
            let place = Arc::new(place);
            let serving = serve(stream, limits, handler, Arc::clone(&place), &ending);
            // Biased: a connection that is done is done.
            tokio::select! {
                biased;
                () = serving => {}
                () = place.lost() => tracing::debug!("closed a connection that waited for its peer: others came"),
            }
        }
    }
}

/// Answers the requests of one connection until its peer has no more, or it is told to end.
async fn serve(
    stream: TcpStream,
    limits: Limits,
    handler: Handler,
    place: Arc<Place>,
    ending: &CancellationToken,
) {
    let service =
        service_fn(move |request| answer(limits, Arc::clone(&handler), Arc::clone(&place), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(limits.header_bytes.max(8 * 1024))
        // `nc` and shell scripts close their sending side first and still want the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(Taken::within(limits.answer_timeout, stream)), service);
    let mut connection = pin!(connection);
    // Biased: a connection that is done is done, whatever else is due.
    let told = tokio::select! {
        biased;
        ended = connection.as_mut() => return log_end(ended),
        () = ending.cancelled() => "stopping",
        () = sleep(limits.connection_age) => "too old",
    };
    connection.as_mut().graceful_shutdown();
    match timeout(limits.grace, connection).await {
        Ok(ended) => log_end(ended),
        Err(_late) => {
            tracing::debug!(told, "dropped a connection whose reader did not take the answer");
        }
    }
}

/// A peer that goes away, or sends what is not HTTP, is its own affair: a port scanner must not fill the log.
fn log_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::trace!(%error, "connection ended early");
    }
}

async fn answer(
    limits: Limits,
    handler: Handler,
    place: Arc<Place>,
    request: Request<hyper::body::Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let request = match body::read(request, &limits).await {
        Ok(request) => request,
        Err(refusal) => return Ok(refusal.map(Full::new)),
    };
    let _answering = place.answering();
    let answered = AssertUnwindSafe(async move { handler(request).await }).catch_unwind().await;
    let response = answered.unwrap_or_else(|_panic| {
        let mut response =
            Response::new(Bytes::from_static(b"internal server error: the handler panicked\n"));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    });
    Ok(response.map(Full::new))
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
