//! A small API server of a test's own on loopback: answers by script, remembers what reached it.

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

use crate::client::{Connections, Role};
use crate::metrics::Registry;
use crate::util::tests::Lines;

/// A request as it arrived, whole.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Which connection it came on, counted from 1.
    pub(crate) connection: usize,
}

/// What a script says about one request.
pub(crate) enum Answer {
    /// Status and body.
    Say(u16, String),
    /// As `Say`, with one header.
    With(u16, &'static str, &'static str, String),
    /// Nothing before the notification, then status and body.
    Hold(Arc<Notify>, u16, String),
}

/// How a connection ended, as the server saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Closed,
    Reset,
}

/// The server. Dropping it ends all its connections.
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

    pub(crate) fn answer_next(&self, answer: Answer) {
        self.shared.script.lock().push_back(answer);
    }

    /// Waits for the next request.
    pub(crate) async fn arrival(&mut self) -> Arrived {
        self.arrivals.recv().await.unwrap()
    }

    /// Returns whether no request has arrived that was not asked for yet.
    pub(crate) fn nothing_arrived(&mut self) -> bool {
        self.arrivals.try_recv().is_err()
    }

    /// Waits until a connection ends.
    pub(crate) async fn ending(&mut self) -> Ending {
        self.endings.recv().await.unwrap()
    }
}

impl Answer {
    pub(crate) fn ok(body: &str) -> Self {
        Self::Say(200, body.to_owned())
    }

    pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Self {
        let body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": reason, "message": message, "code": code,
        });
        Self::Say(code, body.to_string())
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
            // hyper tells no error of an idle connection, so the end is read off the socket itself.
            drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).await);
            let reset = reset.load(Ordering::SeqCst);
            // Nobody may be listening any more when a test ends.
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
        Some(Answer::Say(code, body)) => (code, body),
        Some(Answer::With(code, name, value, body)) => {
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

/// Runs `work` on this thread and returns what it logged meanwhile at warn level and above, one line each.
pub(crate) async fn logged(work: impl Future<Output = ()>) -> Vec<String> {
    use tracing::instrument::WithSubscriber as _;
    let (lines, subscriber) = lines_from(tracing::Level::WARN);
    // While there is but one subscriber, tracing lets the thread that first meets a line decide for all
    // whether anybody wants it, and that may be the thread of a test without one. With two it asks them.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    work.with_subscriber(subscriber).await;
    lines.read().iter().map(|line| line.trim().to_owned()).collect()
}

/// As [`logged`], at this level and above, and with what every other task of this thread logged.
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
