//! Clients that are slow, vanish, or send more than they may.

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::EmbeddedOptions;
use crate::api::Api;

const TOKEN: &str = "secret";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Longer than every wait here takes, unless the awaited event never comes.
const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    listener: Listener,
    port: Port,
    tls: TlsConnector,
}

impl Server {
    async fn start() -> Self {
        let api = Api::new(EmbeddedOptions::default().api).await;
        let service = ApiService::new(api, [(TOKEN.to_owned(), User::admin())], 1);
        let identity = Identity::generate(None).expect("certificates");
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(identity.authority().as_bytes()).expect("PEM"))
            .expect("root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
        let port = Port::reserve().expect("a free port");
        let listener = Listener::start(service, &identity, &port).expect("a server");
        Self { listener, port, tls: TlsConnector::from(Arc::new(config)) }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port.number())).await.expect("a connection");
        self.tls.connect("localhost".try_into().expect("a name"), stream).await.expect("a handshake")
    }

    /// Connects and sends the head of a request.
    async fn begin(&self, request: &str, headers: &str) -> TlsStream<TcpStream> {
        let mut stream = self.connect().await;
        let head = format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("the head is sent");
        stream
    }

    /// Waits until no connection is left: only the task that accepts them.
    async fn until_idle(&self) {
        let idle = async {
            while self.listener.tasks.len() > 1 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, idle).await.expect("the connections end");
    }

    /// Creates an object on a new connection and returns the status.
    async fn create(&self, name: &str) -> u16 {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(self.connect().await)).await.expect("a connection");
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let body = json!({"metadata": {"name": name}}).to_string();
        let request = Request::post(CONFIG_MAPS)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {TOKEN}"));
        let answer =
            sender.send_request(request.body(Full::<bytes::Bytes>::from(body)).expect("a request")).await;
        let answer = answer.expect("an answer");
        let status = answer.status().as_u16();
        answer.collect().await.expect("the whole answer");
        status
    }
}

/// Reads until the answer has this text.
async fn until(stream: &mut TlsStream<TcpStream>, text: &str) {
    let mut seen = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&seen).contains(text) {
            assert!(stream.read_buf(&mut seen).await.expect("readable") > 0, "{seen:?}");
        }
    };
    timeout(PATIENCE, read).await.expect("an answer");
}

#[tokio::test]
async fn a_body_of_ten_megabytes_is_refused_before_it_has_arrived() {
    let server = Server::start().await;
    let headers = "content-type: application/json\r\ncontent-length: 10485760\r\n";
    let mut stream = server.begin(&format!("POST {CONFIG_MAPS}"), headers).await;
    let part = vec![b' '; 1 << 20];
    for _ in 0..4 {
        // The server may have closed the connection.
        drop(stream.write_all(&part).await);
    }
    until(&mut stream, "Request entity too large: limit is 3145728").await;
    drop(stream);
    server.until_idle().await;
    assert_eq!(server.create("after").await, 201);
}

#[tokio::test]
async fn a_client_that_vanishes_in_a_body_stores_nothing() {
    let server = Server::start().await;
    let headers = "content-type: application/json\r\ncontent-length: 100\r\n";
    let mut stream = server.begin(&format!("POST {CONFIG_MAPS}"), headers).await;
    stream.write_all(br#"{"metadata":{"name":"half"}}"#).await.expect("a part of the body is sent");
    drop(stream);
    server.until_idle().await;
    assert_eq!(server.create("half").await, 201);
}

#[tokio::test]
async fn a_client_that_vanishes_in_a_watch_leaves_nothing_behind() {
    let server = Server::start().await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        let mut stream = server.begin(&format!("GET {CONFIG_MAPS}?watch=1"), "").await;
        until(&mut stream, "200 OK").await;
        watches.push(stream);
    }
    drop(watches);
    server.until_idle().await;
}

#[tokio::test]
async fn a_client_that_reads_no_events_delays_no_other() {
    let server = Server::start().await;
    let mut asleep = server.begin(&format!("GET {CONFIG_MAPS}?watch=1"), "").await;
    until(&mut asleep, "200 OK").await;
    for number in 0..300 {
        assert_eq!(server.create(&format!("map-{number}")).await, 201);
    }
    until(&mut asleep, "map-299").await;
}

#[tokio::test]
async fn heads_beyond_the_limits_are_refused() {
    let server = Server::start().await;
    let selector = "x".repeat(100_000);
    let mut stream = server.begin(&format!("GET {CONFIG_MAPS}?labelSelector={selector}"), "").await;
    until(&mut stream, "HTTP/1.1 414").await;
    let mut stream = server.connect().await;
    drop(stream.write_all(b"GET / HTTP/1.1\r\n").await);
    let header = format!("x-filler: {}\r\n", "x".repeat(2 << 20));
    drop(stream.write_all(header.as_bytes()).await);
    until(&mut stream, "HTTP/1.1 431").await;
    let mut stream = server.connect().await;
    stream.write_all(b"\0\xff\xfe nonsense\r\n\r\n").await.expect("sent");
    until(&mut stream, "HTTP/1.1 400").await;
    assert_eq!(server.create("after").await, 201);
}

#[tokio::test]
async fn a_client_without_a_complete_request_is_disconnected() {
    let server = Server::start().await;
    let mut silent = server.connect().await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /api HTTP/1.1\r\nhost: lo").await.expect("sent");
    // From here on, time passes whenever all tasks wait.
    tokio::time::pause();
    for stream in [&mut silent, &mut slow] {
        // An end without TLS's own counts as an error.
        drop(stream.read_to_end(&mut Vec::new()).await);
    }
    tokio::time::resume();
    server.until_idle().await;
}
