//! Text that the target of a probe sends appears nowhere, whatever the result: in no object, on no page, in
//! no log.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::PostParams;
use mainstay::client::infer;
use mainstay::config::Overrides;
use mainstay::manager::{Manager, ManagerOptions};
use mainstay_api::WaitDeployment;
use mainstay_controllers::dependency::probe::{Dial, DialFuture, TokioDial};
use mainstay_controllers::{CONTROLLERS, Sockets, config_schema};
use mainstay_tests::dial::Loopback;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::manager::configuration_of;
use mainstay_tests::manifests::Identity;
use mainstay_tests::process::get;
use mainstay_tests::{ManagerProcess, TestCluster, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::probe_policy::certified;

/// Sent wherever a protocol has room for text: in lower case, and valid as a label of a DNS name.
const MARKER: &str = "tell-nobody-9b1f";
/// The name that certificates must have.
const NAME: &str = "db.example.com";
/// The reason of a successful probe.
const ANSWERED: &str = "Answered";

/// Frames of HTTP/2 and their flags. <https://www.rfc-editor.org/rfc/rfc9113#section-6>
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Number of bytes that a client sends before its first frame.
const PREFACE: usize = 24;

/// A server on loopback that sends the marker; an object and a Service have its name.
struct Talker {
    name: &'static str,
    talk: Talk,
    /// The reason of its probe, in full detail.
    reason: &'static str,
    port: u16,
    /// Number of complete answers sent.
    answers: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
enum Talk {
    /// An HTTP answer with this status line.
    Http(&'static str),
    /// An answer of the gRPC health service, with this `grpc-status` in the trailers.
    Grpc(&'static str),
    /// A GOAWAY frame instead of a gRPC answer.
    Away,
    /// A certificate with the marker in it.
    Tls(TlsAcceptor),
}

/// Dials loopback, where the talkers listen, for every address: a Service of a real cluster cannot point
/// there.
struct ToLoopback;

// === impl Talker ===

impl Talker {
    async fn start(name: &'static str, talk: Talk, reason: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let answers = Arc::new(AtomicUsize::new(0));
        let (to_all, count) = (talk.clone(), Arc::clone(&answers));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accepted");
                let (talk, count) = (to_all.clone(), Arc::clone(&count));
                connections.spawn(async move { drop(talk.over(stream, &count).await) });
            }
        });
        Self { name, talk, reason, port, answers, _serving: serving }
    }

    /// Returns an object that waits for this talker at this host.
    fn waiting(&self, host: &str) -> WaitDeployment {
        let mut check = json!({"host": host, "port": self.port});
        let kind = match self.talk {
            Talk::Http(_) => "httpGet",
            Talk::Grpc(_) | Talk::Away => "grpc",
            Talk::Tls(_) => {
                check["serverName"] = NAME.into();
                check["caConfigMap"] = json!({"name": "authorities"});
                "tls"
            }
        };
        let dependency = json!({"name": "talker", kind: check, "periodSeconds": 1});
        let spec = json!({"replicas": 0, "waitFor": {"dependencies": [dependency]}});
        wait_deployment(self.name, &json!({"spec": spec}))
    }

    fn service(&self) -> Service {
        let service = json!({"metadata": {"name": self.name}, "spec": {"ports": [{"port": self.port}]}});
        serde_json::from_value(service).expect("a Service")
    }
}

// === impl Talk ===

impl Talk {
    async fn over(self, mut stream: TcpStream, count: &AtomicUsize) -> io::Result<()> {
        match self {
            Self::Http(begin) => http(&mut stream, begin).await?,
            Self::Grpc(code) => grpc(&mut stream, code).await?,
            Self::Away => go_away(&mut stream).await?,
            Self::Tls(acceptor) => {
                // A client that refuses the certificate has received it too.
                drop(acceptor.accept(stream).await);
                count.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        // Reads the rest of the request: a reset could overtake the answer.
        stream.shutdown().await?;
        stream.read_to_end(&mut Vec::new()).await.map(drop)
    }
}

// === impl ToLoopback ===

impl Dial for ToLoopback {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        TokioDial.dial((Ipv4Addr::LOCALHOST, address.port()).into())
    }
}

// === protocols ===

async fn http(stream: &mut TcpStream, begin: &str) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let length = MARKER.len();
    let head = format!("{begin} {MARKER}\r\nx-{MARKER}: {MARKER}\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}\r\n{MARKER}").as_bytes()).await
}

/// Implements as much of HTTP/2 as one call needs.
async fn grpc(stream: &mut TcpStream, code: &str) -> io::Result<()> {
    stream.read_exact(&mut [0; PREFACE]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let call = loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [_, high, low, kind, flags, .., call] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            DATA if flags & END_STREAM != 0 => break call,
            _ => {}
        }
    };
    let marked = format!("x-{MARKER}");
    let head = [field(":status", "200"), field("content-type", "application/grpc"), field(&marked, MARKER)];
    // The status SERVING, and an unknown field.
    let message = [&[0x08, 1, 0x12, short(MARKER.as_bytes())][..], MARKER.as_bytes()].concat();
    let message = [&[0, 0, 0, 0, short(&message)][..], &message[..]].concat();
    let end = [field("grpc-status", code), field("grpc-message", MARKER)];
    let answer = [
        frame(HEADERS, END_HEADERS, call, &head.concat()),
        frame(DATA, 0, call, &message),
        frame(HEADERS, END_HEADERS | END_STREAM, call, &end.concat()),
    ];
    stream.write_all(&answer.concat()).await
}

async fn go_away(stream: &mut TcpStream) -> io::Result<()> {
    stream.read_exact(&mut [0; PREFACE]).await?;
    // The last stream is 0; the error code is INTERNAL_ERROR.
    let why = [&[0, 0, 0, 0, 0, 0, 0, 2][..], MARKER.as_bytes()].concat();
    stream.write_all(&[frame(SETTINGS, 0, 0, &[]), frame(GOAWAY, 0, 0, &why)].concat()).await
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, short(payload), kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// Encodes a header without compression. <https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2>
fn field(name: &str, value: &str) -> Vec<u8> {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    [&[0, short(name)][..], name, &[short(value)][..], value].concat()
}

fn short(text: &[u8]) -> u8 {
    u8::try_from(text.len()).expect("a short text")
}

// === checks ===

/// Starts a talker of every sort, with an object that waits for it at the host that `host` selects.
async fn begin(
    cluster: &TestCluster,
    identity: &Identity,
    host: impl Fn(&Talker) -> &'static str,
) -> Vec<Talker> {
    let shows = |name: &str| certified(vec![name.to_owned(), format!("{MARKER}.example.com")]);
    let ((authority, good), (another, bad)) = (shows(NAME), shows("other.example.com"));
    let map = json!({"metadata": {"name": "authorities"}, "data": {"ca.crt": authority + &another}});
    let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
    cluster.api().create(&PostParams::default(), &map).await.expect("created");
    cluster.install_component(identity, "tls-authorities").await;
    let mut talkers = Vec::new();
    for (name, talk, reason) in [
        ("http-good", Talk::Http("HTTP/1.1 200"), ANSWERED),
        ("http-bad", Talk::Http("HTTP/1.1 500"), "UnexpectedStatus"),
        ("http-odd", Talk::Http("SSH-2.0"), "ProtocolError"),
        ("grpc-good", Talk::Grpc("0"), ANSWERED),
        ("grpc-bad", Talk::Grpc("14"), "UnexpectedStatus"),
        ("grpc-odd", Talk::Grpc(MARKER), "ProtocolError"),
        ("grpc-away", Talk::Away, "ProtocolError"),
        ("tls-good", Talk::Tls(good), ANSWERED),
        ("tls-bad", Talk::Tls(bad), "CertificateWrongName"),
    ] {
        let talker = Talker::start(name, talk, reason).await;
        cluster.api().create(&PostParams::default(), &talker.service()).await.expect("created");
        let object = talker.waiting(host(&talker));
        cluster.api().create(&PostParams::default(), &object).await.expect("created");
        talkers.push(talker);
    }
    talkers
}

/// Waits until each talker has sent the marker, and its object's status has the reason.
async fn all_reported(cluster: &TestCluster, talkers: &[Talker], reason: impl Fn(&Talker) -> &'static str) {
    let objects = cluster.api::<WaitDeployment>();
    for talker in talkers {
        let reason = reason(talker);
        wait::until(&objects, talker.name, reason, wait::dependency_has_reason("talker", reason)).await;
        wait::until_so(talker.name, async || talker.answers.load(Ordering::Relaxed) > 0).await;
    }
}

fn assert_silent(place: &str, text: &str) {
    let found = text.lines().find(|line| line.to_lowercase().contains(MARKER));
    assert_eq!(found, None, "{place}");
}

/// Asserts that the pages a manager serves lack the marker. Its log and objects are checked after its end,
/// when they are complete.
async fn pages_are_silent(
    cluster: &TestCluster,
    talkers: &[Talker],
    metrics: SocketAddr,
    inspect: SocketAddr,
) {
    let queue = |controller: &str| format!("controllers/{controller}/queue");
    let of_all = ["controllers", "caches", "watches", "config", "leader"].map(str::to_owned);
    let of_object = |talker: &Talker| format!("waitdeployments/{}/{}", cluster.namespace(), talker.name);
    let pages = of_all.into_iter().chain(CONTROLLERS.map(queue)).chain(talkers.iter().map(of_object));
    for page in pages {
        let (status, text) = get(inspect, &format!("/debug/{page}")).await;
        assert_eq!(status, 200, "{page}: {text}");
        assert_silent(&page, &text);
    }
    let (status, text) = get(metrics, "/metrics").await;
    assert_eq!(status, 200, "{text}");
    assert_silent("metrics", &text);
}

async fn objects_are_silent(cluster: &TestCluster) {
    let listed = cluster.kubectl(&["get", "waitdeployments,deployments,events", "--output", "json"]).await;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let items = listed["items"].as_array().expect("a list");
    for kind in ["WaitDeployment", "Deployment", "Event"] {
        assert!(items.iter().any(|item| item["kind"] == kind), "{kind}: {listed:#}");
    }
    assert_silent("objects", &format!("{listed:#}"));
}

fn changes() -> Value {
    json!({"inspect": {"bindAddress": "127.0.0.1:0"}, "logging": {"level": "debug"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn text_from_a_prerequisite_appears_in_no_object_page_or_log() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let talkers = begin(&cluster, &identity, |_| "127.0.0.1").await;
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let mut process = ManagerProcess::start(binary, &cluster, &identity, "silent", &changes());
    // For a raw address the status does not show how a probe failed.
    let coarse = |talker: &Talker| if talker.reason == ANSWERED { ANSWERED } else { "NotReady" };
    all_reported(&cluster, &talkers, coarse).await;
    let (metrics, inspect) = (process.address("metrics").await, process.address("inspect").await);
    pages_are_silent(&cluster, &talkers, metrics, inspect).await;
    process.terminate();
    assert!(process.ended().await.success(), "{:#?}", process.log());
    objects_are_silent(&cluster).await;
    let log = process.log();
    assert!(log.iter().any(|line| line["level"] == "debug"), "{log:#?}");
    for line in log {
        assert_silent("the log", &line.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn detailed_results_of_a_service_contain_no_text_from_it() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let talkers = begin(&cluster, &identity, |talker| talker.name).await;
    let text = configuration_of(&cluster, &changes()).to_string();
    let configuration = config_schema().parse(&text, "test", &Overrides::default());
    let connection = infer(Some(&identity.kubeconfig), None).await.expect("a connection");
    let options = ManagerOptions { signals: false, ..ManagerOptions::replica("mainstay") };
    let manager = Manager::new(options, configuration.expect("valid"), connection).expect("a manager");
    let loopback = Loopback::new();
    let sockets = Sockets { dial: Arc::new(ToLoopback), resolve: Arc::new(loopback.dial()) };
    mainstay_controllers::register(&manager, sockets).expect("registered");
    let (mut running, to_run) = (JoinSet::new(), manager.clone());
    running.spawn(async move { to_run.run().await });
    all_reported(&cluster, &talkers, |talker| talker.reason).await;
    let metrics = manager.metrics_addr().expect("an address");
    let inspect = manager.inspect_addr().expect("an address");
    pages_are_silent(&cluster, &talkers, metrics, inspect).await;
    manager.stop();
    running.join_next().await.expect("a running manager").expect("no panic").expect("stopped in order");
    objects_are_silent(&cluster).await;
}
