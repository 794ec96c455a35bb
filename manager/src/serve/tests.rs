use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::get;
use bytes::Bytes;
use http::{Method, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

fn greet() -> Router {
    Router::new().fallback(async |method: Method, uri: Uri| format!("{method} {}", uri.path()))
}

/// A server in the runtime of the test.
struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    ended: JoinSet<io::Result<()>>,
}

impl Running {
    fn start(limits: Limits, router: Router) -> Self {
        let bound = Bound::bind("127.0.0.1:0", limits).unwrap();
        let (address, stop) = (bound.local_addr(), CancellationToken::new());
        let ended = JoinSet::from_iter([bound.run(router, stop.clone())]);
        Self { address, stop, ended }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn stopped(self) {
        self.stop.cancel();
        self.ended.join_all().await.pop().unwrap().unwrap();
    }
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // The connection may end with a reset instead of a close.
    stream.read_to_end(&mut text).await.unwrap_or_default();
    String::from_utf8(text).unwrap()
}

async fn exchange(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    read_all(stream).await
}

#[tokio::test]
async fn the_port_is_bound_before_the_server_runs() {
    let bound = Bound::bind("127.0.0.1:0", Limits::default()).unwrap();
    assert_ne!(bound.local_addr().port(), 0);
    let error = Bound::bind(bound.local_addr(), Limits::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let server = Running::start(Limits::default(), greet());
    let get =
        exchange(&mut server.connect().await, "GET /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await;
    assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\nGET /a"), "{get}");
    let head =
        exchange(&mut server.connect().await, "HEAD /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await;
    assert!(head.contains("content-length: 7\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    server.stopped().await;
}

#[tokio::test]
async fn a_panicking_handler_answers_500() {
    async fn panics() {
        panic!("no")
    }
    let server = Running::start(Limits::default(), Router::new().fallback(panics));
    let answer =
        exchange(&mut server.connect().await, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.ends_with("internal server error: the handler panicked\n"), "{answer}");
    server.stopped().await;
}

#[tokio::test]
async fn a_header_beyond_the_limit_is_refused() {
    let server = Running::start(Limits { header_bytes: 8192, ..Limits::default() }, greet());
    let huge = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(9000));
    let answer = exchange(&mut server.connect().await, &huge).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    server.stopped().await;
}

/// Answers with the body of the request.
fn echo() -> Router {
    Router::new().fallback(async |body: Bytes| body)
}

#[tokio::test]
async fn a_body_is_read_whole_or_refused_with_a_reason() {
    let limits = Limits { body_bytes: 4, body_timeout: Duration::from_millis(20), ..Limits::default() };
    let server = Running::start(limits, echo());
    let whole = "content-length: 4\r\nconnection: close\r\n\r\nbody";
    // The refused requests do not set `connection: close`: the server closes, as the rest of the body is
    // unread.
    let cases = [
        (whole, "200 OK", "\r\n\r\nbody"),
        ("connection: close\r\n\r\n", "200 OK", "\r\n\r\n"),
        ("content-length: 5\r\n\r\n", "413 Payload Too Large", "\r\n\r\nthe body is longer than 4 bytes\n"),
        ("content-length: 9999999999999999\r\n\r\n", "413 Payload Too Large", "than 4 bytes\n"),
        ("transfer-encoding: chunked\r\n\r\n", "411 Length Required", "\r\n\r\nsend a Content-Length\n"),
        ("content-length: 4\r\n\r\nbo", "408 Request Timeout", "the body did not arrive within 20ms\n"),
        ("content-length: 4\r\ncontent-length: 3\r\n\r\nbody", "400 Bad Request", "\r\n\r\n"),
        ("content-length: +4\r\n\r\nbody", "400 Bad Request", "\r\n\r\n"),
    ];
    for (rest, status, end) in cases {
        let answer =
            exchange(&mut server.connect().await, &format!("POST / HTTP/1.1\r\nhost: x\r\n{rest}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{rest}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n") && answer.ends_with(end), "{rest}: {answer}");
    }
    server.stopped().await;
}

#[tokio::test]
async fn a_body_that_ends_early_is_a_bad_request() {
    let server = Running::start(Limits::default(), echo());
    let mut half = server.connect().await;
    half.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbo").await.unwrap();
    half.shutdown().await.unwrap();
    let answer = read_all(&mut half).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("the body ended early\n"), "{answer}");
    server.stopped().await;
}

/// Longer than any test.
const NEVER: Duration = Duration::from_hours(1);

/// Limits that end no connection by themselves.
fn patient(connections: usize) -> Limits {
    Limits {
        connections,
        header_timeout: NEVER,
        body_timeout: NEVER,
        answer_timeout: NEVER,
        connection_age: NEVER,
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_header_that_never_ends_times_out() {
    let limits = Limits { header_timeout: Duration::from_millis(20), ..patient(2) };
    let server = Running::start(limits, greet());
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HTT").await.unwrap();
    // A second connection is free, so only the timeout ends this one.
    let answer = read_all(&mut slow).await;
    assert!(!answer.contains(" 200 "), "{answer}");
    server.stopped().await;
}

/// More bytes than the socket buffers between server and peer can hold.
const LONG: usize = 64 << 20;

/// Answers `/long` with [`LONG`] bytes, and all else briefly.
fn long_or_brief() -> Router {
    let long = get(async || vec![b'x'; LONG]);
    Router::new().route("/long", long).fallback(async || "brief")
}

#[tokio::test]
async fn peers_that_do_not_send_or_read_do_not_keep_others_out() {
    const HOLD: [&str; 5] = [
        "",
        "GET / HTTP/1.1\r\nhost",
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf",
        "GET /long HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    ];
    let server = Running::start(patient(HOLD.len()), long_or_brief());
    let mut holding = Vec::new();
    for request in HOLD {
        let mut peer = server.connect().await;
        peer.write_all(request.as_bytes()).await.unwrap();
        holding.push(peer);
    }
    // All connections are in use, so each further peer evicts one.
    for _ in 0..HOLD.len() {
        let mut peer = server.connect().await;
        peer.write_all(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut line = [0; 15];
        peer.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"HTTP/1.1 200 OK");
        holding.push(peer);
    }
    for (request, mut peer) in HOLD.iter().zip(holding) {
        // Evicted, although none of its timeouts has passed.
        let text = read_all(&mut peer).await;
        assert!(text.len() < LONG, "{request}: answered whole");
    }
    server.stopped().await;
}

#[tokio::test]
async fn a_peer_is_not_evicted_while_its_handler_runs() {
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = {
        let (began, go_on) = (began.clone(), go_on.clone());
        get(async move || {
            began.notify_one();
            go_on.notified().await;
            "whole"
        })
    };
    let router = Router::new().route("/slow", slow).fallback(async || "whole");
    let server = Running::start(patient(2), router);
    let mut busy = server.connect().await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    began.notified().await;
    let mut silent = server.connect().await;
    for _ in 0..3 {
        let mut peer = server.connect().await;
        let answer = exchange(&mut peer, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        assert!(answer.ends_with("whole"), "{answer}");
    }
    assert_eq!(read_all(&mut silent).await, "", "evicted although it is younger, as it waited for its peer");
    go_on.notify_one();
    let answer = read_all(&mut busy).await;
    assert!(answer.ends_with("whole"), "{answer}");
    server.stopped().await;
}

#[tokio::test]
async fn an_answer_that_is_not_read_in_time_is_dropped() {
    let limits = Limits { answer_timeout: Duration::from_millis(20), grace: NEVER, ..patient(1) };
    let server = Running::start(limits, long_or_brief());
    let mut peer = server.connect().await;
    peer.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    peer.read_exact(&mut [0; 15]).await.unwrap();
    // The stop would wait for the connection as long as it has bytes to send.
    server.stopped().await;
}

#[tokio::test]
async fn a_connection_is_closed_at_its_maximum_age() {
    let limits = Limits { connection_age: Duration::from_millis(20), ..Limits::default() };
    let server = Running::start(limits, greet());
    let mut idle = server.connect().await;
    assert_eq!(read_all(&mut idle).await, "");
    server.stopped().await;
}

#[tokio::test]
async fn a_stop_finishes_running_answers_and_closes_idle_connections() {
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let late = {
        let (began, go_on) = (began.clone(), go_on.clone());
        async move || {
            began.notify_one();
            go_on.notified().await;
            "late but whole"
        }
    };
    let server = Running::start(Limits::default(), Router::new().fallback(late));
    let mut idle = server.connect().await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    began.notified().await;
    server.stop.cancel();
    assert_eq!(read_all(&mut idle).await, "", "an idle connection is closed");
    go_on.notify_one();
    let answer = read_all(&mut busy).await;
    assert!(answer.ends_with("late but whole"), "{answer}");
    let address = server.address;
    server.stopped().await;
    assert!(TcpStream::connect(address).await.is_err(), "the port is free again");
}

#[tokio::test]
async fn a_handler_that_never_answers_does_not_block_the_stop() {
    let began = Arc::new(Notify::new());
    let stuck = {
        let began = began.clone();
        async move || {
            began.notify_one();
            std::future::pending::<()>().await;
        }
    };
    let router = Router::new().fallback(stuck);
    let server = Running::start(Limits { grace: Duration::from_millis(10), ..Limits::default() }, router);
    let mut stuck = server.connect().await;
    stuck.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    began.notified().await;
    server.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn accepts_without_descriptors_are_retried_once_a_second() {
    const EMFILE: i32 = 24;
    let (tries, stop) = (AtomicUsize::new(0), CancellationToken::new());
    let server = Server { limits: Limits::default(), tls: None, router: greet(), stop: stop.clone() };
    let accept = || {
        tries.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err(io::Error::from_raw_os_error(EMFILE)))
    };
    let began = Instant::now();
    let stopping = async {
        sleep(Duration::from_millis(9_500)).await;
        stop.cancel();
    };
    tokio::join!(server.accept_with(accept), stopping);
    assert_eq!(tries.load(Ordering::Relaxed), 10, "once at first and once a second");
    assert_eq!(began.elapsed(), Duration::from_millis(9_500), "the stop did not wait for the pause");
}
