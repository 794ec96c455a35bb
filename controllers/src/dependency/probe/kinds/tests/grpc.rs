//! gRPC servers with a health service, and without.

use ::http::{HeaderMap, Response};
use bytes::Bytes;
use mainstay_api::plan::GrpcCheck;
use mainstay_api::wait_for::GrpcTlsMode;

use super::*;

/// A gRPC message with the status SERVING, after its prefix of five bytes.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];

pub(super) fn health(listener: &Listener, service: &str) -> ProbeCheck {
    ProbeCheck::Grpc(GrpcCheck {
        address: listener.address(),
        service: service.to_owned(),
        tls: GrpcTlsMode::Plaintext,
    })
}

/// Makes a listener that answers each gRPC call with this HTTP status, message and `grpc-status` in the
/// trailers; without a message in the headers.
async fn answering(status: u16, message: Option<&'static [u8]>, code: &'static str) -> Listener {
    answering_as("application/grpc", status, message, code).await
}

async fn answering_as(
    content_type: &'static str,
    status: u16,
    message: Option<&'static [u8]>,
    code: &'static str,
) -> Listener {
    Listener::serve(move |stream| answer(stream, content_type, status, message, code)).await
}

async fn answer(
    stream: TcpStream,
    content_type: &'static str,
    status: u16,
    message: Option<&'static [u8]>,
    code: &'static str,
) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
        let headers = request.headers();
        assert_eq!(
            (&headers["content-type"], &headers["te"]),
            (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
        );
        assert!(!headers.contains_key("authorization"));
        let head = Response::builder().status(status).header("content-type", content_type);
        let Some(message) = message else {
            let head = head.header("grpc-status", code).body(()).unwrap();
            respond.send_response(head, true).unwrap();
            continue;
        };
        let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(message), false).unwrap();
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]);
        body.send_trailers(trailers).unwrap();
    }
}

#[tokio::test]
async fn the_health_service_decides() {
    let huge: &'static [u8] = vec![0; 64 * 1024].leak();
    let cases: [(u16, Option<&'static [u8]>, &'static str, &str); 11] = [
        (200, Some(SERVING), "0", "Answered"),
        (200, Some(&[0, 0, 0, 0, 2, 0x08, 2]), "0", "NotServing"),
        (200, Some(&[0, 0, 0, 0, 0]), "0", "NotServing"),
        (200, Some(&[0, 0, 0, 0, 2, 0x08]), "0", "ProtocolError"),
        (200, Some(SERVING), "14", "UnexpectedStatus"),
        (200, None, "5", "HealthUnknown"),
        (200, None, "12", "NoHealthService"),
        (200, None, "16", "UnexpectedStatus"),
        (200, None, "secret", "ProtocolError"),
        (503, None, "0", "UnexpectedStatus"),
        (200, Some(huge), "0", "ProtocolError"),
    ];
    for (status, message, code, expected) in cases {
        let listener = answering(status, message, code).await;
        let result = FakeCluster::new().check(health(&listener, "shop.v1.Orders"), PATIENT).await;
        assert_eq!(result.reason(), expected, "{status} {message:?} {code}");
        assert!(!result.message().contains("secret"), "{}", result.message());
    }
}

#[tokio::test]
async fn the_request_names_the_service_of_the_check() {
    for (service, expected) in
        [("", &[0, 0, 0, 0, 0][..]), ("a.B", &[0, 0, 0, 0, 5, 0x0a, 3, b'a', b'.', b'B'])]
    {
        let listener = Listener::serve(move |stream| async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let mut body = request.into_body();
                let code = async {
                    let request = body.data().await.unwrap().unwrap();
                    if request == expected { "0" } else { "3" }
                };
                let code = tokio::select! {
                    code = code => code,
                    _ = std::future::poll_fn(|cx| connection.poll_closed(cx)) => return,
                };
                let head =
                    Response::builder().header("content-type", "application/grpc+proto").body(()).unwrap();
                let mut body = respond.send_response(head, false).unwrap();
                body.send_data(Bytes::from_static(SERVING), false).unwrap();
                let trailers =
                    HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]);
                body.send_trailers(trailers).unwrap();
            }
        })
        .await;
        assert_eq!(reason(health(&listener, service)).await, "Answered", "{service:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_grpc_is_a_protocol_error() {
    for message in [None, Some(SERVING)] {
        for (content_type, expected) in [
            ("text/html", "ProtocolError"),
            ("application/grpc-web", "ProtocolError"),
            ("application/grpc-web+proto", "ProtocolError"),
            ("application/grpc;charset=utf-8", "Answered"),
        ] {
            let server = answering_as(content_type, 200, message, "0").await;
            let answer = reason(health(&server, "")).await;
            // Without a message the status is missing.
            let expected = if message.is_none() { "ProtocolError" } else { expected };
            assert_eq!(answer, expected, "{content_type} {message:?}");
        }
    }
}

/// A client answers pings for as long as they come.
#[tokio::test]
async fn endless_pings_are_read_up_to_the_bound() {
    let endless = Listener::serve(|stream| async move {
        let (mut reader, mut writer) = stream.into_split();
        let pings = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(64);
        let flood = async {
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            drop(writer.write_all(&settings).await);
            while writer.write_all(&pings).await.is_ok() {}
        };
        tokio::join!(flood, async { while reader.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {} });
    })
    .await;
    assert_eq!(reason(health(&endless, "")).await, "ProtocolError");
}

#[tokio::test]
async fn a_server_without_grpc_and_a_silent_server_have_different_reasons() {
    let web = Listener::answering(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(reason(health(&web, "")).await, "ProtocolError");
    let resetting = Listener::resetting().await;
    assert_eq!(reason(health(&resetting, "")).await, "ConnectionClosed");
    let hanging = Listener::hanging().await;
    assert_eq!(FakeCluster::new().check(health(&hanging, ""), SHORT).await.reason(), "Timeout");
}
