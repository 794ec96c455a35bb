//! Serves the API on loopback: TLS, HTTP/1.1 and HTTP/2, bounded connections, graceful shutdown.
//!
//! # Invariants
//! 1. Every task of the listener is in `tasks`, and every such task ends soon after `abort` is cancelled.
//! 2. A silent client holds one of the connection slots for a bounded time only.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use super::auth::Peer;
use super::identity::Identity;
use super::service::ApiService;
use super::stream::OverSocket;
use crate::api::User;
use crate::port::{self, Port};

/// Most connections that the kernel completes before the server accepts them.
const BACKLOG: u32 = 1024;

/// Most open connections; further clients wait in the backlog of the socket.
const MAX_CONNECTIONS: usize = 1024;

/// Longest time from the accept to the end of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the head of an HTTP/1.1 request. It includes the idle time of a kept connection, so it
/// exceeds the idle timeout of common clients.
const HEADER_TIMEOUT: Duration = Duration::from_secs(100);

/// Interval of HTTP/2 pings, which detect clients that vanished without closing the connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// HTTP/2 flow control window, large enough that it does not delay a watch.
const WINDOW_BYTES: u32 = 1 << 20;

/// Most concurrent requests of one HTTP/2 connection, watches included.
const MAX_STREAMS: u32 = 1000;

/// Pause after a failed accept; the usual cause is a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running server on a port of loopback. Dropping it aborts all connections.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Cancelled to end each connection after its open requests.
    stop: CancellationToken,
    /// Cancelled to end all connections immediately.
    abort: CancellationToken,
    tasks: TaskTracker,
}

/// The values that all connections share.
#[derive(Clone)]
struct Shared {
    service: ApiService,
    acceptor: TlsAcceptor,
    /// The client certificate of the administrator.
    admin: Arc<rustls::pki_types::CertificateDer<'static>>,
    stop: CancellationToken,
    executor: Executor,
}

/// Spawns the tasks of connections so that the listener tracks and aborts them.
#[derive(Clone)]
struct Executor {
    tasks: TaskTracker,
    abort: CancellationToken,
}

// === impl Listener ===

impl Listener {
    /// Starts to serve on a reserved port.
    pub(crate) fn start(service: ApiService, identity: &Identity, port: &Port) -> io::Result<Self> {
        let listener = port::shared(port.number())?.listen(BACKLOG)?;
        let (stop, abort, tasks) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        let executor = Executor { tasks: tasks.clone(), abort: abort.clone() };
        let shared = Shared {
            service,
            acceptor: TlsAcceptor::from(Arc::<ServerConfig>::clone(&identity.server)),
            admin: Arc::new(identity.admin_der.clone()),
            stop: stop.clone(),
            executor: executor.clone(),
        };
        executor.spawn(accept(listener, shared));
        Ok(Self { stop, abort, tasks })
    }

    /// Ends all connections and returns when no task is left. Open requests have `grace` to complete.
    pub(crate) async fn stop(self, grace: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(grace, self.tasks.wait()).await.is_err() {
            self.abort.cancel();
            self.tasks.wait().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
        self.abort.cancel();
    }
}

// === impl Executor ===

impl Executor {
    fn spawn(&self, task: impl Future + Send + 'static) {
        let abort = self.abort.clone();
        // The tracker waits for the task, so the handle is not needed.
        drop(self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => {}
                _ = task => {}
            }
        }));
    }
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

async fn accept(listener: TcpListener, shared: Shared) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let next = async || {
        let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
        Some((listener.accept().await, slot))
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            accepted = next() => accepted,
        };
        match accepted {
            None => return,
            Some((Err(_), _)) => sleep(ACCEPT_PAUSE).await,
            Some((Ok((stream, _)), slot)) => {
                let shared = shared.clone();
                shared.executor.clone().spawn(serve(stream, shared, slot));
            }
        }
    }
}

/// Serves one connection until it ends. Connection errors are ignored: the client sees them too.
async fn serve(stream: TcpStream, shared: Shared, _slot: OwnedSemaphorePermit) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let handshake = timeout(HANDSHAKE_TIMEOUT, shared.acceptor.accept(stream));
    let stream = tokio::select! {
        biased;
        () = shared.stop.cancelled() => return,
        stream = handshake => match stream {
            Ok(Ok(stream)) => stream,
            _ => return,
        },
    };
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    // The authority has issued only one client certificate, that of the administrator.
    let peer = certificate.filter(|it| **it == *shared.admin).map(|_| Peer(User::admin()));
    let http2 = session.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        request.extensions_mut().insert(OverSocket);
        shared.service.clone().call(request)
    });
    let builder = builder(shared.executor.clone(), http2);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = shared.stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Returns the builder of a connection. The protocol comes from the handshake: detecting it from the first
/// bytes would wait for them without a timeout.
fn builder(executor: Executor, http2: bool) -> auto::Builder<Executor> {
    let mut builder = auto::Builder::new(executor);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

#[cfg(test)]
mod tests;
