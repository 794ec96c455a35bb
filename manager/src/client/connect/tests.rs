use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::client::tests::server::{Answer, TestServer};
use crate::metrics::Format;
use crate::util::os::tests::raise_file_limit;

mod fence;
mod proxies;
mod renewal;

const LONG: Duration = Duration::from_hours(1);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";

fn put(path: &str, body: &str) -> Request<Body> {
    Request::put(path).body(Body::from(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn an_unknown_certificate_is_refused_with_the_reason() {
    let (address, ..) = tls_server();
    let (_, other, _) = tls_server();
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![other]);
    let client = Connections::new(config, &Registry::new()).unwrap().client(Role::Watches).unwrap();
    let error = client.send(get("/version")).await.unwrap_err();
    assert!(format!("{error:?}").contains("InvalidCertificate"), "{error:?}");
}

#[tokio::test]
async fn the_fence_does_not_affect_other_roles() {
    let mut server = TestServer::start([Answer::ok("{}"), Answer::ok("{}")]).await;
    let connections = server.connections();
    let writes = connections.client(Role::Writes(Fence::closed())).unwrap();
    writes.send(put("/stopped", "{}")).await.unwrap_err();
    connections.client(Role::Watches).unwrap().send(get("/read")).await.unwrap();
    let lease = Role::Lease { request_timeout: LONG };
    connections.client(lease).unwrap().send(get("/lease")).await.unwrap();
    assert_eq!(server.arrival().await.connection, 1);
    assert_eq!(server.arrival().await.connection, 2, "each role has a pool of its own");
}

#[tokio::test]
async fn no_request_is_sent_twice() {
    for role in [Role::Watches, Role::Writes(Fence::open()), Role::Lease { request_timeout: LONG }] {
        let busy = || Answer::ReplyWith(429, "retry-after", "0", String::new());
        let mut server = TestServer::start([busy(), busy()]).await;
        let response = server.client(role).send(put("/once", "{}")).await.unwrap();
        assert_eq!(response.status(), 429);
        server.arrival().await;
        assert!(server.nothing_arrived());
    }
}

#[tokio::test]
async fn a_request_for_the_lease_has_a_deadline() {
    let limit = Duration::from_millis(500);
    let open = Arc::new(Notify::new());
    let mut server = TestServer::start([Answer::Hold(Arc::clone(&open), 200, String::new())]).await;
    let client = server.client(Role::Lease { request_timeout: limit });
    let error = client.send(put(LEASE, "{}")).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(
        text.contains("PUT /apis/coordination.k8s.io/v1/namespaces/n/leases/l took longer than 500ms"),
        "{text}"
    );
    assert_eq!(server.arrival().await.connection, 1);

    // The connection of the late response is closed, so the next renewal cannot get that response.
    server.answer_next(Answer::ok("fresh"));
    open.notify_one();
    let fresh = client.send(put(LEASE, "{}")).await.unwrap().into_body().collect_bytes().await.unwrap();
    assert_eq!(fresh, "fresh");
    assert_eq!(server.arrival().await.connection, 2);
}

#[tokio::test]
async fn thousands_of_unanswered_requests_do_not_delay_a_renewal() {
    // Each request needs a connection with both ends in this process. Half of the file limit is left for
    // other tests.
    let many_each = 1_000.min(usize::try_from(raise_file_limit()).unwrap() / 8);
    let never = Arc::new(Notify::new());
    let held = (0..2 * many_each).map(|_| Answer::Hold(Arc::clone(&never), 200, String::new()));
    let mut server = TestServer::start(held).await;
    let connections = server.connections();
    let renewing = connections.client(Role::Lease { request_timeout: LONG }).unwrap();
    let mut working = JoinSet::new();
    for role in [Role::Writes(Fence::open()), Role::Watches] {
        let client = connections.client(role).unwrap();
        for number in 0..many_each {
            let client = client.clone();
            working.spawn(async move { client.send(put(&format!("/items/{number}"), "{}")).await.map(drop) });
        }
    }
    let renewal = async {
        for _ in 0..2 * many_each {
            server.arrival().await;
        }
        server.answer_next(Answer::ok("{}"));
        renewing.send(put(LEASE, "{}")).await.unwrap();
        assert_eq!(server.arrival().await.uri, LEASE);
    };
    timeout(Duration::from_mins(1), renewal).await.expect("the renewal does not wait for other requests");
    assert!(working.try_join_next().is_none(), "no other request had a response");
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_watch_outlives_the_deadline() {
    use futures_util::{StreamExt as _, stream};
    use http_body_util::StreamBody;
    let late = || async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_static(b"event")))
    };
    let service = tower::service_fn(move |_: Request<Body>| async move {
        Ok::<_, BoxError>(http::Response::new(
            StreamBody::new(stream::once(late()).boxed()).boxed_unsync_body(),
        ))
    });
    let client = kube::Client::new(deadlined(Stack::new(service), Duration::from_secs(5)), "default");
    let body = client.send(get("/x?watch=true&timeoutSeconds=300")).await.unwrap().into_body();
    assert_eq!(body.collect_bytes().await.unwrap(), "event");
    let error = client.send(get("/x?limit=1")).await.unwrap_err();
    assert!(error.to_string().contains("GET /x took longer than 5s"), "{error}");
}

#[tokio::test]
async fn requests_are_counted_by_code_and_carry_a_user_agent() {
    let mut server = TestServer::start([Answer::ok("{}"), Answer::failure(404, "NotFound", "no")]).await;
    let connections = server.connections();
    let client = connections.client(Role::Watches).unwrap();
    client.send(get("/api/v1/pods")).await.unwrap();
    let agent = format!("mainstay/{} watches", env!("CARGO_PKG_VERSION"));
    assert_eq!(server.arrival().await.headers[header::USER_AGENT], agent);
    client.send(put("/api/v1/pods", "{}")).await.unwrap();
    let closed = connections.client(Role::Writes(Fence::closed())).unwrap();
    closed.send(get("/api/v1/pods")).await.unwrap_err();

    let text = server.registry.encode(Format::Text).unwrap();
    let host = server.address;
    let mut counts: Vec<_> = text.lines().filter(|line| line.starts_with("rest_client_requests")).collect();
    counts.sort_unstable();
    assert_eq!(
        counts,
        [
            format!("rest_client_requests_total{{code=\"200\",method=\"GET\",host=\"{host}\"}} 1"),
            format!("rest_client_requests_total{{code=\"404\",method=\"PUT\",host=\"{host}\"}} 1"),
        ],
        "a request stopped by the fence is not counted"
    );
}

#[tokio::test]
async fn duration_and_size_are_recorded_to_the_end_of_a_response_except_for_watches() {
    let answers = [Answer::ok("12345"), Answer::ok("{}"), Answer::ok("cut off"), Answer::ok("{}")];
    let mut server = TestServer::start(answers).await;
    let client = server.client(Role::Watches);
    let read = async |request| {
        let body = client.send(request).await.unwrap().into_body();
        body.collect().await.unwrap().to_bytes()
    };
    assert_eq!(read(put("/api/v1/pods", "abc")).await, "12345");
    assert_eq!(read(get("/api/v1/pods?watch=true")).await, "{}");
    // Not read to its end, so only its duration is recorded.
    drop(client.send(get("/api/v1/pods")).await.unwrap());
    assert_eq!(read(get("/api/v1/nodes")).await, "{}");

    let text = server.registry.encode(Format::Text).unwrap();
    let host = server.address;
    let value = |series: &str, verb: &str| {
        let series = format!("rest_client_{series}{{verb=\"{verb}\",host=\"{host}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).parse::<f64>().unwrap()
    };
    let counts_and_sums = |family: &str| {
        ["PUT", "GET"]
            .map(|verb| (value(&format!("{family}_count"), verb), value(&format!("{family}_sum"), verb)))
    };
    assert_eq!(counts_and_sums("request_size_bytes"), [(1.0, 3.0), (2.0, 0.0)]);
    assert_eq!(counts_and_sums("response_size_bytes"), [(1.0, 5.0), (1.0, 2.0)]);
    assert_eq!(counts_and_sums("request_duration_seconds").map(|(count, _)| count.to_string()), ["1", "2"]);
    assert!(
        text.contains(&format!(
            "rest_client_requests_total{{code=\"200\",method=\"GET\",host=\"{host}\"}} 3"
        ))
    );
    server.arrival().await;
}

#[tokio::test]
async fn a_request_without_a_response_is_counted_as_an_error() {
    let server = TestServer::start([]).await;
    let connections = server.connections();
    let registry = server.registry.clone();
    drop(server);
    connections.client(Role::Watches).unwrap().send(get("/gone")).await.unwrap_err();
    let text = registry.encode(Format::Text).unwrap();
    assert!(text.contains("code=\"<error>\",method=\"GET\""), "{text}");
}

/// A server for one connection and one request under TLS, on its own thread. The thread returns the result of
/// its last read, after the response.
fn tls_server() -> (SocketAddr, Vec<u8>, thread::JoinHandle<std::io::Result<()>>) {
    use std::io::{Read as _, Write as _};
    install_crypto_provider();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        let session = rustls::ServerConnection::new(Arc::new(config)).map_err(std::io::Error::other)?;
        let mut tls = rustls::StreamOwned::new(session, stream);
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            let mut byte = [0];
            tls.read_exact(&mut byte)?;
            request.extend(byte);
        }
        tls.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")?;
        tls.read_exact(&mut [0])
    });
    (address, certificate.to_vec(), serving)
}

/// Boxes a response body that has a boxed error type already.
trait BoxedUnsync {
    fn boxed_unsync_body(self) -> ResponseBody;
}

impl<B> BoxedUnsync for B
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static,
{
    fn boxed_unsync_body(self) -> ResponseBody {
        ResponseBody::new(self)
    }
}

#[tokio::test]
async fn each_warning_is_logged_once_for_all_roles_except_the_lease() {
    use crate::client::tests::server::logged;
    let warned =
        || Answer::ReplyWith(200, "warning", r#"299 - "v1beta1 is \"old\"", 299 - "b""#, String::new());
    let mut server = TestServer::start([warned(), warned(), warned(), warned()]).await;
    let connections = server.connections();
    let lease = Role::Lease { request_timeout: LONG };
    let lines = logged(async {
        for role in [lease, Role::Watches, Role::Writes(Fence::open())] {
            let client = connections.client(role).unwrap();
            client.send(get("/api/v1/pods?limit=1")).await.unwrap();
        }
        connections.client(Role::Watches).unwrap().send(put("/again", "{}")).await.unwrap();
    })
    .await;
    for _ in 0..4 {
        server.arrival().await;
    }
    assert_eq!(
        lines,
        [
            r#"WARN warning from the API server method=GET path="/api/v1/pods" warning="v1beta1 is \"old\"""#,
            r#"WARN warning from the API server method=GET path="/api/v1/pods" warning="b""#,
        ]
    );
}
