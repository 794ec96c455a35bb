//! A small API server of one test on loopback: it responds by script and records the requests.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::client::{Authority, Connections, Role};
use crate::key::Fence;
use crate::metrics::Registry;
use crate::util::tests::Lines;

/// A whole request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Number of the request's connection, counted from 1.
    pub(crate) connection: usize,
}

/// The scripted response to one request.
pub(crate) enum Answer {
    /// A response with this status and body, at once.
    Reply(u16, String),
    /// A response with this status, header and body, at once.
    ReplyWith(u16, &'static str, &'static str, String),
    /// A response with this status and body, after the notification.
    Hold(Arc<Notify>, u16, String),
}

/// An authority with the client of a test.
pub(crate) struct TestAuthority {
    pub(crate) client: kube::Client,
    pub(crate) term: u64,
}

/// How the peer ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Closed,
    Reset,
}

/// A scripted API server for tests. Dropping it ends all its connections.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) registry: Registry,
    shared: Arc<Shared>,
    arrivals: mpsc::UnboundedReceiver<Arrived>,
    endings: mpsc::UnboundedReceiver<Ending>,
    _tasks: JoinSet<()>,
}

struct Shared {
    script: Mutex<VecDeque<Answer>>,
    arrived: mpsc::UnboundedSender<Arrived>,
    ended: mpsc::UnboundedSender<Ending>,
}

impl TestServer {
    pub(crate) async fn start(script: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (ended, endings) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { script: Mutex::new(script.into_iter().collect()), arrived, ended });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self { address, registry: Registry::new(), shared, arrivals, endings, _tasks: tasks }
    }

    pub(crate) fn connections(&self) -> Connections {
        let config = kube::Config::new(format!("http://{}", self.address).parse().unwrap());
        Connections::new(config, &self.registry).unwrap()
    }

    pub(crate) fn client(&self, role: Role) -> kube::Client {
        self.connections().client(role).unwrap()
    }

    /// Returns an authority with a client of this server.
    pub(crate) fn authority(&self, fence: Fence) -> TestAuthority {
        TestAuthority { client: self.client(Role::Writes(fence)), term: 0 }
    }

    /// Appends a response to the script.
    pub(crate) fn answer_next(&self, answer: Answer) {
        self.shared.script.lock().push_back(answer);
    }

    /// Waits for the next request.
    pub(crate) async fn arrival(&mut self) -> Arrived {
        self.arrivals.recv().await.unwrap()
    }

    /// Returns whether [`arrival`](Self::arrival) would have to wait.
    pub(crate) fn nothing_arrived(&mut self) -> bool {
        self.arrivals.try_recv().is_err()
    }

    /// Waits until a connection ends.
    pub(crate) async fn ending(&mut self) -> Ending {
        self.endings.recv().await.unwrap()
    }
}

impl Authority for TestAuthority {
    fn client(&self) -> &kube::Client {
        &self.client
    }

    fn term(&self) -> u64 {
        self.term
    }
}

impl Answer {
    pub(crate) fn ok(body: &str) -> Self {
        Self::Reply(200, body.to_owned())
    }

    pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Self {
        let body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": reason, "message": message, "code": code,
        });
        Self::Reply(code, body.to_string())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    for number in 1.. {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let ended = shared.ended.clone();
            let service = service_fn(|request| respond(Arc::clone(&shared), request, number));
            let reset = Arc::new(AtomicBool::new(false));
            let io = TokioIo::new(Watched { stream, reset: Arc::clone(&reset) });
            // hyper returns no error of an idle connection, so the end is read off the socket itself.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).await);
            let reset = reset.load(Ordering::SeqCst);
            // The receiver is gone when the test has ended.
            ended.send(if reset { Ending::Reset } else { Ending::Closed }).ok();
        });
    }
}

/// Remembers whether the peer reset the connection.
struct Watched {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &read {
            self.reset.store(error.kind() == io::ErrorKind::ConnectionReset, Ordering::SeqCst);
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    connection: usize,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let answer = shared.script.lock().pop_front();
    let uri = head.uri.clone();
    drop(shared.arrived.send(Arrived { method: head.method, uri, headers: head.headers, body, connection }));
    let mut response = Response::builder();
    let (code, body) = match answer {
        Some(Answer::Reply(code, body)) => (code, body),
        Some(Answer::ReplyWith(code, name, value, body)) => {
            response = response.header(name, value);
            (code, body)
        }
        Some(Answer::Hold(until, code, body)) => {
            until.notified().await;
            (code, body)
        }
        None => (599, "the script is exhausted".to_owned()),
    };
    Ok(response.status(code).body(Full::from(body)).unwrap())
}

/// Runs `work` on this thread and returns its log lines at warn level and above.
pub(crate) async fn logged(work: impl Future<Output = ()>) -> Vec<String> {
    use tracing::instrument::WithSubscriber as _;
    let (lines, subscriber) = lines_from(tracing::Level::WARN);
    // With a single subscriber, tracing caches for all threads whether a line is enabled on the thread that
    // first reaches it, which may be that of a test without a subscriber. With two it checks each time.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    work.with_subscriber(subscriber).await;
    lines.read().iter().map(|line| line.trim().to_owned()).collect()
}

/// As [`logged`], at this level and above, with the log lines of all tasks of this thread.
pub(crate) async fn logged_by_all(level: tracing::Level, work: impl Future<Output = ()>) -> Vec<String> {
    let (lines, subscriber) = lines_from(level);
    // As above.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let log = tracing::subscriber::set_default(subscriber);
    work.await;
    drop(log);
    lines.read().iter().map(|line| line.trim().to_owned()).collect()
}

fn lines_from(level: tracing::Level) -> (Lines, impl tracing::Subscriber + Send + Sync) {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer({
            let lines = lines.clone();
            move || lines.clone()
        })
        .finish();
    (lines, subscriber)
}
