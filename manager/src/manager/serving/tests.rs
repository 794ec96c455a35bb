//! Bad requests to the ports of a running manager without an API server.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use kube::Config;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower::ServiceExt as _;

use crate::config::{ConfigSchema, Overrides};
use crate::health::Group;
use crate::manager::{Manager, ManagerError, ManagerOptions};

/// Longer than any answer takes on any machine, and shorter than any time that a slow peer is given.
const SOON: Duration = Duration::from_secs(5);

/// A running manager, and for each of its ports a path with the answer 200.
struct Running {
    manager: Manager,
    ports: Vec<(SocketAddr, &'static str)>,
    ended: JoinSet<Result<(), ManagerError>>,
}

impl Running {
    fn start() -> Self {
        Self::with("bindAddress: \"127.0.0.1:0\"", "bindAddress: \"127.0.0.1:0\"")
    }

    /// Starts a manager with these settings of `metrics` and `inspect`.
    fn with(metrics: &str, inspect: &str) -> Self {
        let text = format!(
            "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
         leaderElection: {{enabled: false}}\n\
             health: {{bindAddress: \"127.0.0.1:0\"}}\nmetrics: {{{metrics}}}\ninspect: {{{inspect}}}\n"
        );
        let configuration =
            ConfigSchema::new().parse(&text, "test", &Overrides::default()).unwrap().configuration;
        let options = ManagerOptions { signals: false, preflight: false, ..ManagerOptions::replica("test") };
        let nowhere = Config::new("http://127.0.0.1:1".parse().unwrap());
        let manager = Manager::new(options, configuration, nowhere).unwrap();
        let ports = [
            (manager.probes_addr(), "/livez"),
            (manager.metrics_addr(), "/metrics"),
            (manager.inspect_addr(), "/debug/leader"),
        ];
        let ports = ports.into_iter().filter_map(|(port, path)| Some((port?, path))).collect();
        let running = manager.clone();
        Self { manager, ports, ended: JoinSet::from_iter([async move { running.run().await }]) }
    }

    async fn stopped(self) {
        self.manager.stop();
        self.ended.join_all().await.into_iter().for_each(|ended| ended.unwrap());
    }
}

/// Sends these bytes, ends its side, and returns the answer up to the end of the other side.
async fn say(port: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect(port).await.unwrap();
        // The server may reset a client that it refuses early while the client still sends, or before it has
        // read the refusal.
        let sent = stream.write_all(bytes).await;
        let ended = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        drop((sent, ended, read));
        answer
    };
    timeout(SOON, exchange)
        .await
        .unwrap_or_else(|_| panic!("{port} holds on to {:?}", bytes.escape_ascii().to_string()))
}

async fn is_well(port: SocketAddr, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let answer = say(port, request.as_bytes()).await;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{path}: {}", answer.escape_ascii());
}

/// Sends a request from this host, as a proxy in the Pod would do for all its clients.
async fn ask(port: SocketAddr, path: &str, header: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\n{header}\r\nconnection: close\r\n\r\n");
    status(&say(port, request.as_bytes()).await)
}

/// The status of an answer, 0 if there is none; fails if it is no answer of ours.
fn status(answer: &[u8]) -> u16 {
    if answer.is_empty() {
        return 0;
    }
    let text = String::from_utf8_lossy(answer);
    assert!(text.starts_with("HTTP/1."), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text[9..12].parse().unwrap_or_else(|_| panic!("{text}"))
}

#[tokio::test]
async fn what_is_no_request_is_refused_or_closed_on_each_port() {
    let server = Running::start();
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(5_000));
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(100_000));
    let wrong: [&[u8]; 22] = [
        b"",
        b"\0",
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/0.9\r\n\r\n",
        b"GET /livez HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: local\0host\r\n\r\n",
        b"GET /livez HTTP/1.1\nhost",
        b"G\xffT /livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://[::1/livez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /li vez HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT localhost:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST /livez HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\
          content-length: 3\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        // The hello of a TLS client.
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
        many.as_bytes(),
        long.as_bytes(),
    ];
    for &(port, path) in &server.ports {
        for bytes in wrong {
            let status = status(&say(port, bytes).await);
            assert!(status == 0 || (400..500).contains(&status), "{}: {status}", bytes.escape_ascii());
        }
        is_well(port, path).await;
    }
    server.stopped().await;
}

#[tokio::test]
async fn random_edits_of_a_request_are_answered_or_closed_on_each_port() {
    const EDITS: usize = 400;
    let seed = std::env::var("MAINSTAY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("MAINSTAY_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = Running::start();
    for &(port, path) in &server.ports {
        let request = format!(
            "POST {path}?verbose HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\
             accept: application/openmetrics-text\r\nauthorization: Bearer x\r\n\r\n{{}}"
        );
        for _ in 0..EDITS {
            let mut bytes = request.clone().into_bytes();
            for _ in 0..random.usize(1..=4) {
                let at = random.usize(..bytes.len().max(1));
                match random.u8(..4) {
                    0 => bytes[at] ^= random.u8(1..),
                    1 if bytes.len() > 1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, *random.choice(b"\r\n\0 :;,/%?&=0\xff").unwrap_or(&0)),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            // Any status is fine: the test needs an answer, and a handler that does not panic.
            status(&say(port, &bytes).await);
        }
        is_well(port, path).await;
    }
    server.stopped().await;
}

#[tokio::test]
async fn metrics_that_are_reviewed_are_told_to_nobody_who_shows_no_token() {
    let server = Running::with("bindAddress: \"127.0.0.1:0\", auth: true", "bindAddress: \"\"");
    let metrics = server.manager.metrics_addr().unwrap();
    for header in ["host: localhost", "host: localhost\r\nauthorization: Basic eDp5"] {
        assert_eq!(ask(metrics, "/metrics", header).await, 401, "{header}");
    }
    server.stopped().await;
}

#[tokio::test]
async fn with_a_token_file_the_inspection_answers_nobody_who_does_not_show_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    for address in ["0.0.0.0", "127.0.0.1"] {
        let inspect = format!("bindAddress: \"{address}:0\", tokenFile: {}", file.path().display());
        let server = Running::with("bindAddress: \"\"", &inspect);
        let port = SocketAddr::from(([127, 0, 0, 1], server.manager.inspect_addr().unwrap().port()));
        for (header, expected) in [
            ("host: localhost", 401),
            ("host: localhost\r\nauthorization: Bearer other", 401),
            ("host: localhost\r\nauthorization: Bearer s3cret", 200),
            ("host: mainstay.example\r\nauthorization: Bearer s3cret", 200),
        ] {
            assert_eq!(ask(port, "/debug/leader", header).await, expected, "{address}: {header}");
        }
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_scrape_reads_every_line_of_accept_and_a_refusal_names_the_methods() {
    use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
    let router = super::scrapes(crate::metrics::ScrapeCache::new(crate::metrics::Registry::new()));
    let two = http::Request::get("/metrics")
        .header(ACCEPT, "text/html")
        .header(ACCEPT, "application/openmetrics-text;version=1.0.0");
    let answer = router.clone().oneshot(two.body(Body::empty()).unwrap()).await.unwrap();
    let kind = answer.headers()[CONTENT_TYPE].to_str().unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let status = async |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let allow = answer.headers().get(ALLOW).map(|allow| allow.to_str().unwrap().to_owned());
        (answer.status().as_u16(), allow)
    };
    assert_eq!(status("POST", "/metrics").await, (405, Some("GET, HEAD".to_owned())));
    assert_eq!(status("HEAD", "/metrics/").await, (200, None));
    assert_eq!(status("GET", "/metrics/a").await, (404, None));
}

#[tokio::test]
async fn a_check_of_readiness_that_hangs_takes_no_turn_from_liveness() {
    let server = Running::start();
    let (probes, livez) = server.ports[0];
    // Each call waits until the test drops its end.
    let (go, held) = std::sync::mpsc::channel::<()>();
    let held = parking_lot::Mutex::new(held);
    server
        .manager
        .checks()
        .add(Group::Ready, "hangs", move || held.lock().recv().map_err(|_| "over".to_owned()));
    let mut asking = Vec::new();
    for _ in 0..2 * super::PROBES_AT_ONCE {
        let mut stream = TcpStream::connect(probes).await.unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        asking.push(stream);
    }
    // Connections are accepted in order, so each of these requests comes after all of those above.
    for _ in 0..3 {
        is_well(probes, livez).await;
    }
    drop(go);
    drop(asking);
    server.stopped().await;
}

#[tokio::test]
async fn a_crowd_that_sends_nothing_or_never_ends_does_not_keep_a_probe_waiting() {
    let server = Running::start();
    for &(port, path) in &server.ports {
        // More than have room, and fewer than fill the kernel's backlog with them.
        let mut crowd = Vec::new();
        for number in 0..150 {
            let mut stream = TcpStream::connect(port).await.unwrap();
            let begun: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET / HTTP/1.1\r\nhost: local",
                _ => b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n{",
            };
            stream.write_all(begun).await.unwrap();
            crowd.push(stream);
        }
        let began = Instant::now();
        is_well(port, path).await;
        eprintln!("{path} was answered after {:?}", began.elapsed());
        drop(crowd);
    }
    server.stopped().await;
}
