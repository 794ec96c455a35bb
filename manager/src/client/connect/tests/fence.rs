//! The fence stops requests, open connections and bytes in the kernel.

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::client::error::is_fenced;
use crate::client::tests::server::Ending;
use crate::key::BootInstant;

/// A body with a second chunk that comes only after the notification.
fn two_part_body(
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
async fn a_closed_fence_lets_no_request_out() {
    let mut server = TestServer::start([]).await;
    let client = server.client(Role::Writes(Fence::closed()));
    let error = client.send(put("/api/v1/nodes/n", "{}")).await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert!(server.nothing_arrived());
}

#[tokio::test]
async fn an_expired_fence_lets_no_request_out_on_an_open_connection() {
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
async fn an_expiry_alone_stops_a_socket_in_the_middle_of_a_body() {
    use hyper_util::client::legacy::Client as Pool;
    let mut server = TestServer::start([Answer::ok("{}")]).await;
    let fence = Fence::closed();
    fence.extend(BootInstant::now() + LONG);
    // Without the outer guards, which would stop the request before the socket does.
    let connector = tcp::connector(fence.clone(), LONG, RequestMetrics::register(&Registry::new()));
    let pool = Pool::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
    let go = Arc::new(Notify::new());
    let (head, body) = two_part_body(Arc::clone(&go));
    let mut request = head.map(|()| http_body_util::combinators::UnsyncBoxBody::new(body));
    *request.uri_mut() = format!("http://{}/late", server.address).parse().unwrap();
    let mut sending = JoinSet::from_iter([pool.request(request)]);

    fence.extend(BootInstant::from_boot(Duration::from_nanos(1)));
    go.notify_one();
    let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert!(server.nothing_arrived(), "the request did not arrive whole");
}

#[tokio::test]
async fn a_request_held_while_the_fence_closes_never_arrives() {
    let mut server = TestServer::start([]).await;
    let fence = Fence::open();
    let client = server.client(Role::Writes(fence.clone()));
    let mut held = Box::pin(client.send(put("/held", "{}")));
    // Polled once, and no task has run since: the request waits in the buffer of kube's client.
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
async fn bytes_in_the_kernel_are_discarded_when_the_fence_closes() {
    // More than the buffers of both ends can hold; the server does not read yet.
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
    assert_eq!(stream.peek(&mut [0]).await.unwrap(), 1, "the request is being sent");

    fence.close();
    let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received).await.unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(received.len() < LENGTH, "the request did not arrive whole");
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
    // Sent at once, perhaps before the task of the old connection has run.
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
async fn the_fence_resets_connections_under_tls_too() {
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
    assert_eq!(
        end.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset,
        "reset instead of an orderly shutdown"
    );
}
