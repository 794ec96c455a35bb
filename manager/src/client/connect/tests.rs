use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::client::error::is_fenced;
use crate::client::tests::server::{Answer, Ending, TestServer};
use crate::key::BootInstant;
use crate::metrics::Format;
use crate::util::os::tests::raise_file_limit;

const LONG: Duration = Duration::from_hours(1);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";

fn put(path: &str, body: &str) -> Request<Body> {
    Request::put(path).body(Body::from(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// A body that gives its first chunk at once and the rest when told.
fn halting_body(
    go: Arc<Notify>,
) -> (Request<()>, impl http_body::Body<Data = Bytes, Error = BoxError> + Send) {
    use futures_util::{StreamExt as _, stream};
    let first = stream::iter([Ok(http_body::Frame::data(Bytes::from_static(b"first")))]);
    let second = stream::once(async move {
        go.notified().await;
        Ok(http_body::Frame::data(Bytes::from_static(b"second")))
    });
    let body = http_body_util::StreamBody::new(first.chain(second).boxed());
    (Request::put("/late").body(()).unwrap(), body)
}

#[tokio::test]
async fn a_closed_fence_lets_nothing_out() {
    let mut server = TestServer::start([]).await;
    let client = server.client(Role::Writes(Fence::closed()));
    let error = client.send(put("/api/v1/nodes/n", "{}")).await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn an_expired_fence_lets_nothing_out_on_an_open_connection() {
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let fence = Fence::closed();
    fence.extend(BootInstant::now() + LONG);
    let client = server.client(Role::Writes(fence.clone()));
    client.send(put("/first", "{}")).await.unwrap();
    server.arrival().await;

    fence.extend(BootInstant::from_boot(Duration::from_nanos(1)));
    let error = client.send(put("/second", "{}")).await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn the_clock_alone_stops_a_socket_in_the_middle_of_a_body() {
    use hyper_util::client::legacy::Client as Pool;
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let fence = Fence::closed();
    fence.extend(BootInstant::now() + LONG);
    // Without the outer guards: this is about the socket.
    let connector = tcp::connector(fence.clone(), LONG, RequestMetrics::register(&Registry::new()));
    let pool = Pool::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
    let go = Arc::new(Notify::new());
    let (head, body) = halting_body(Arc::clone(&go));
    let mut request = head.map(|()| http_body_util::combinators::UnsyncBoxBody::new(body));
    *request.uri_mut() = format!("http://{}/late", server.address).parse().unwrap();
    let mut sending = JoinSet::from_iter([pool.request(request)]);

    fence.extend(BootInstant::from_boot(Duration::from_nanos(1)));
    go.notify_one();
    let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert!(server.nothing_arrived(), "the request never was whole");
}

#[tokio::test]
async fn a_request_held_while_the_fence_closes_never_arrives() {
    let mut server = TestServer::start([]).await;
    let fence = Fence::open();
    let client = server.client(Role::Writes(fence.clone()));
    let mut held = Box::pin(client.send(put("/held", "{}")));
    // Polled once and no task has run since: the request now waits in the buffer of kube's client.
    assert!(futures_util::poll!(held.as_mut()).is_pending());
    fence.close();
    let error = held.await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");

    fence.extend(BootInstant::now() + LONG);
    server.answer_next(Answer::ok("{}"));
    client.send(put("/next-term", "{}")).await.unwrap();
    assert_eq!(server.arrival().await.uri, "/next-term");
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn what_waits_in_the_kernel_when_the_fence_closes_is_thrown_away() {
    // More than the buffers of both ends can hold, to a server that does not read yet.
    const LENGTH: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let fence = Fence::open();
    let connections = Connections::new(kube::Config::new(server), &Registry::new()).unwrap();
    let client = connections.client(Role::Writes(fence.clone())).unwrap();
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        let request = Request::put("/long").body(Body::from(vec![b'x'; LENGTH])).unwrap();
        client.send(request).await
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    assert_eq!(stream.peek(&mut [0]).await.unwrap(), 1, "the request is on its way");

    fence.close();
    let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received).await.unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(received.len() < LENGTH, "the request never was whole");
}

#[tokio::test]
async fn a_request_waiting_for_its_answer_ends_with_the_term() {
    let never = Arc::new(Notify::new());
    let mut server = TestServer::start([Answer::Hold(never, 200, String::new())]).await;
    let fence = Fence::open();
    let client = server.client(Role::Writes(fence.clone()));
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { client.send(put("/waits", "{}")).await });
    server.arrival().await;
    fence.close();
    let error = waiting.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
}

#[tokio::test]
async fn an_idle_connection_of_an_ended_term_is_reset_and_the_next_term_opens_its_own() {
    let mut server = TestServer::start([Answer::ok("{}"), Answer::ok("{}"), Answer::ok("{}")]).await;
    let fence = Fence::open();
    let client = server.client(Role::Writes(fence.clone()));
    client.send(put("/one", "{}")).await.unwrap().into_body().collect_bytes().await.unwrap();
    client.send(put("/two", "{}")).await.unwrap().into_body().collect_bytes().await.unwrap();
    assert_eq!((server.arrival().await.connection, server.arrival().await.connection), (1, 1));

    fence.close();
    fence.extend(BootInstant::now() + LONG);
    // At once: the old connection's own task need not have run yet.
    client.send(put("/three", "{}")).await.unwrap();
    let third = server.arrival().await;
    assert_eq!((third.uri.path(), third.connection), ("/three", 2));
    assert_eq!(server.ending().await, Ending::Reset);
}

#[tokio::test]
async fn an_idle_connection_is_reset_without_any_further_request() {
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let fence = Fence::open();
    let client = server.client(Role::Writes(fence.clone()));
    client.send(put("/one", "{}")).await.unwrap().into_body().collect_bytes().await.unwrap();
    fence.close();
    assert_eq!(server.ending().await, Ending::Reset);
    drop(client);
}

#[tokio::test]
async fn under_tls_the_fence_resets_just_the_same() {
    let (address, certificate, server) = tls_server();
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![certificate]);
    let fence = Fence::open();
    let connections = Connections::new(config, &Registry::new()).unwrap();
    let client = connections.client(Role::Writes(fence.clone())).unwrap();
    let response = client.send(put("/secret", "{}")).await.unwrap();
    assert_eq!(response.into_body().collect_bytes().await.unwrap(), "{}");

    fence.close();
    let end = tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap();
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset, "no orderly end of TLS or TCP");
}

#[tokio::test]
async fn an_unknown_certificate_is_refused_with_its_reason() {
    let (address, ..) = tls_server();
    let (_, other, _) = tls_server();
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![other]);
    let client = Connections::new(config, &Registry::new()).unwrap().client(Role::Watches).unwrap();
    let error = client.send(get("/version")).await.unwrap_err();
    assert!(format!("{error:?}").contains("InvalidCertificate"), "{error:?}");
}

#[tokio::test]
async fn other_roles_do_not_feel_the_fence() {
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
async fn nothing_is_sent_twice() {
    for role in [Role::Watches, Role::Writes(Fence::open()), Role::Lease { request_timeout: LONG }] {
        let busy = || Answer::With(429, "retry-after", "0", String::new());
        let mut server = TestServer::start([busy(), busy()]).await;
        let response = server.client(role).send(put("/once", "{}")).await.unwrap();
        assert_eq!(response.status(), 429);
        server.arrival().await;
        assert!(server.nothing_arrived());
    }
}

#[tokio::test]
async fn a_lease_request_has_a_deadline_that_its_watch_only_has_at_the_start() {
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

    // The connection of the late answer is gone: the next renewal cannot be given it.
    server.answer_next(Answer::ok("fresh"));
    open.notify_one();
    let fresh = client.send(put(LEASE, "{}")).await.unwrap().into_body().collect_bytes().await.unwrap();
    assert_eq!(fresh, "fresh");
    assert_eq!(server.arrival().await.connection, 2);
}

#[tokio::test]
async fn thousands_of_requests_that_get_no_answer_hold_up_no_renewal() {
    // A connection each, with both of its ends in this process, and half of what the system allows is left to
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
    timeout(Duration::from_mins(1), renewal).await.expect("nobody waits for anybody");
    assert!(working.try_join_next().is_none(), "nobody else had an answer");
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
async fn requests_are_counted_by_code_and_say_who_they_are() {
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
        "what the fence stopped was no request"
    );
}

#[tokio::test]
async fn a_request_is_timed_and_weighed_to_the_end_of_its_answer_and_a_watch_is_not() {
    let answers = [Answer::ok("12345"), Answer::ok("{}"), Answer::ok("cut off"), Answer::ok("{}")];
    let mut server = TestServer::start(answers).await;
    let client = server.client(Role::Watches);
    let read = async |request| {
        let body = client.send(request).await.unwrap().into_body();
        body.collect().await.unwrap().to_bytes()
    };
    assert_eq!(read(put("/api/v1/pods", "abc")).await, "12345");
    assert_eq!(read(get("/api/v1/pods?watch=true")).await, "{}");
    // Not read to its end, and so only timed.
    drop(client.send(get("/api/v1/pods")).await.unwrap());
    assert_eq!(read(get("/api/v1/nodes")).await, "{}");

    let text = server.registry.encode(Format::Text).unwrap();
    let host = server.address;
    let value = |series: &str, verb: &str| {
        let series = format!("rest_client_{series}{{verb=\"{verb}\",host=\"{host}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).parse::<f64>().unwrap()
    };
    let told = |family: &str| {
        ["PUT", "GET"]
            .map(|verb| (value(&format!("{family}_count"), verb), value(&format!("{family}_sum"), verb)))
    };
    assert_eq!(told("request_size_bytes"), [(1.0, 3.0), (2.0, 0.0)]);
    assert_eq!(told("response_size_bytes"), [(1.0, 5.0), (1.0, 2.0)]);
    assert_eq!(told("request_duration_seconds").map(|(count, _)| count.to_string()), ["1", "2"]);
    assert!(
        text.contains(&format!(
            "rest_client_requests_total{{code=\"200\",method=\"GET\",host=\"{host}\"}} 3"
        ))
    );
    server.arrival().await;
}

#[tokio::test]
async fn an_unanswered_request_is_counted_as_an_error() {
    let server = TestServer::start([]).await;
    let connections = server.connections();
    let registry = server.registry.clone();
    drop(server);
    connections.client(Role::Watches).unwrap().send(get("/gone")).await.unwrap_err();
    let text = registry.encode(Format::Text).unwrap();
    assert!(text.contains("code=\"<error>\",method=\"GET\""), "{text}");
}

#[test]
fn a_proxy_of_an_unknown_kind_is_refused_without_its_password() {
    let mut config = kube::Config::new("https://10.0.0.1:6443".parse().unwrap());
    config.proxy_url = Some("ftp://me:secret@proxy:3128".parse().unwrap());
    let error = Connections::new(config, &Registry::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the proxy for https://10.0.0.1:6443/ cannot be used; expected http://, https:// or socks5:// with \
         HOST:PORT in proxy-url or HTTPS_PROXY"
    );
}

/// A client of a server that is reached through a proxy, which is this listener.
fn client_through(listener: &TcpListener, scheme: &str, role: Role, timeout: Duration) -> kube::Client {
    let mut config = kube::Config::new("http://server.example:6443".parse().unwrap());
    config.proxy_url = Some(format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.connect_timeout = Some(timeout);
    Connections::new(config, &Registry::new()).unwrap().client(role).unwrap()
}

#[tokio::test]
async fn the_end_of_a_term_resets_a_connection_through_a_proxy_and_one_that_is_being_opened() {
    for (scheme, greeting) in
        [("http", "CONNECT server.example:6443 HTTP/1.1\r\n"), ("socks5", "\u{5}\u{1}\0")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fence = Fence::open();
        let client = client_through(&listener, scheme, Role::Writes(fence.clone()), LONG);
        let mut sending = JoinSet::new();
        sending.spawn(async move { client.send(put("/held", "{}")).await });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut begin = vec![0; greeting.len()];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(begin, greeting.as_bytes());

        fence.close();
        let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
        assert!(is_fenced(&error), "{error:?}");
        let end = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    }
    // With the tunnel made, the request is sent through it, and its connection goes with the term.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fence = Fence::open();
    let client = client_through(&listener, "http", Role::Writes(fence.clone()), LONG);
    let mut sending = JoinSet::new();
    sending.spawn(async move { client.send(put("/held", "{}")).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    read_to(&mut stream, b"\r\n\r\n").await;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let request = read_to(&mut stream, b"{}").await;
    assert!(request.starts_with(b"PUT /held HTTP/1.1\r\n"));
    fence.close();
    let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_silent_proxy_is_given_up_when_the_time_for_connecting_is_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for scheme in ["http", "https", "socks5"] {
        let client = client_through(&listener, scheme, Role::Watches, Duration::from_millis(100));
        let error = client.send(get("/version")).await.unwrap_err();
        assert!(format!("{error:?}").contains("DeadlineExceeded"), "{scheme}: {error:?}");
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_user() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client_through(&listener, "http", Role::Watches, LONG);
    let (refused, ()) = tokio::join!(client.send(get("/version")), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_to(&mut stream, b"\r\n\r\n").await;
        stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
    });
    let error = refused.unwrap_err();
    let text = crate::key::Chain(&error).to_string();
    let expected = format!(
        "no connection through proxy http://{}/: tunnel error: proxy authorization required",
        listener.local_addr().unwrap()
    );
    assert!(text.contains(&expected), "{text}");
}

async fn read_to(stream: &mut tokio::net::TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(stream.read_u8().await.unwrap());
    }
    read
}

/// Connections whose credentials are fetched as often as they are refused, however long that takes.
fn eager(config: kube::Config) -> Connections {
    let credentials =
        Credentials::new(config.clone(), FetchLimits { interval: Duration::ZERO, max_wait: LONG });
    Connections { credentials, ..Connections::new(config, &Registry::new()).unwrap() }
}

/// A plug-in that counts its runs in a file, and whose token is that count.
fn counting_plugin(folder: &std::path::Path) -> kube::config::ExecConfig {
    let count = folder.join("count").display().to_string();
    let script = format!(
        r#"echo >> {count}
        token=$(($(wc -l < {count})))
        echo '{{"apiVersion": "client.authentication.k8s.io/v1", "status": {{"token": "'$token'"}}}}'"#
    );
    kube::config::ExecConfig {
        api_version: Some("client.authentication.k8s.io/v1".to_owned()),
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script]),
        ..kube::config::ExecConfig::default()
    }
}

#[tokio::test]
async fn a_plugin_runs_once_for_all_roles_and_again_after_a_401() {
    let answers = [200, 200, 401, 200].map(|code| Answer::Say(code, "{}".to_owned()));
    let mut server = TestServer::start(answers).await;
    let folder = tempfile::tempdir().unwrap();
    let mut config = kube::Config::new(format!("http://{}", server.address).parse().unwrap());
    config.auth_info.exec = Some(counting_plugin(folder.path()));
    let connections = eager(config);
    let watches = connections.client(Role::Watches).unwrap();
    let writes = connections.client(Role::Writes(Fence::open())).unwrap();
    let mut connection = 0;
    for (client, token) in [(&watches, "1"), (&writes, "1"), (&watches, "1"), (&watches, "2")] {
        client.send(get("/version")).await.unwrap().into_body().collect_bytes().await.unwrap();
        let arrived = server.arrival().await;
        assert_eq!(arrived.headers[header::AUTHORIZATION], format!("Bearer {token}"));
        connection = arrived.connection;
    }
    assert_eq!(connection, 1, "another token is no reason to connect anew");
    assert!(server.nothing_arrived(), "what was refused is not repeated");
}

#[tokio::test]
async fn after_a_401_files_are_read_anew_and_a_new_certificate_gets_connections_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write_certificate = || {
        let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        std::fs::write(path("crt"), made.cert.pem()).unwrap();
        std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    };
    for new_certificate in [false, true] {
        let answers = [200, 401, 200].map(|code| Answer::Say(code, "{}".to_owned()));
        let mut server = TestServer::start(answers).await;
        write_certificate();
        std::fs::write(path("token"), "one\n").unwrap();
        let mut config = kube::Config::new(format!("http://{}", server.address).parse().unwrap());
        config.auth_info.token_file = Some(path("token"));
        config.auth_info.client_certificate = Some(path("crt"));
        config.auth_info.client_key = Some(path("key"));
        let client = eager(config).client(Role::Watches).unwrap();
        let mut ask = async || {
            client.send(get("/version")).await.unwrap().into_body().collect_bytes().await.unwrap();
            let arrived = server.arrival().await;
            (arrived.headers[header::AUTHORIZATION].to_str().unwrap().to_owned(), arrived.connection)
        };
        assert_eq!(ask().await, ("Bearer one".to_owned(), 1));
        std::fs::write(path("token"), "two\n").unwrap();
        if new_certificate {
            write_certificate();
        }
        assert_eq!(ask().await, ("Bearer one".to_owned(), 1), "nobody has refused it yet");
        assert_eq!(ask().await, ("Bearer two".to_owned(), if new_certificate { 2 } else { 1 }));
    }
}

#[tokio::test]
async fn a_certificate_whose_key_is_not_written_yet_leaves_the_last_pair_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = || rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let answers = [401, 200].map(|code| Answer::Say(code, "{}".to_owned()));
    let mut server = TestServer::start(answers).await;
    let old = made();
    std::fs::write(path("crt"), old.cert.pem()).unwrap();
    std::fs::write(path("key"), old.signing_key.serialize_pem()).unwrap();
    let mut config = kube::Config::new(format!("http://{}", server.address).parse().unwrap());
    config.auth_info.client_certificate = Some(path("crt"));
    config.auth_info.client_key = Some(path("key"));
    let client = eager(config).client(Role::Watches).unwrap();
    for _ in 0..2 {
        client.send(get("/version")).await.unwrap().into_body().collect_bytes().await.unwrap();
        assert_eq!(server.arrival().await.connection, 1);
        std::fs::write(path("crt"), made().cert.pem()).unwrap();
    }
}

#[tokio::test]
async fn unusable_credential_files_fail_before_the_first_request() {
    let mut config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    config.auth_info.token_file = Some("/nowhere/token".to_owned());
    let error = Connections::new(config, &Registry::new()).unwrap().client(Role::Watches).err().unwrap();
    let text = crate::key::Chain(&error).to_string();
    assert!(text.contains("/nowhere/token cannot be read: No such file"), "{text}");
}

/// A server for one connection and one request under TLS, in a thread of its own. The thread gives what its
/// last read said, after the answer.
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

/// `boxed_unsync` for a body whose error already is boxed.
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
async fn each_warning_of_the_server_is_logged_once_for_every_role_but_the_lease() {
    use crate::client::tests::server::logged;
    let warned = || Answer::With(200, "warning", r#"299 - "v1beta1 is \"old\"", 299 - "b""#, String::new());
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
