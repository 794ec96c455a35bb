//! One call of the standard gRPC health service.
//!
//! The crate `h2` does HTTP/2; gRPC adds two messages, which `message` encodes and decodes.
//! <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>

pub(super) mod message;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request};
use mainstay_api::plan::GrpcCheck;
use mainstay_api::wait_for::GrpcTlsMode;

use super::{Failure, USER_AGENT, drive_until, tls};
use crate::dependency::probe::Connection;
use crate::reasons::probe;

const METHOD: &str = "/grpc.health.v1.Health/Check";
/// The name of the protocol in the messages of failed gRPC checks.
const PROTOCOL: &str = "gRPC";
/// Maximum size of the headers, and of the trailers, of a gRPC answer in bytes.
const MAX_HEADERS: u32 = 16 * 1024;
/// Maximum size of the body of a gRPC health answer in bytes: its message has two, and any fields that a
/// later version may add.
const MAX_MESSAGE: usize = 4 * 1024;

/// The gRPC status code `NOT_FOUND`: the health service does not know the service of the check.
const NOT_FOUND: &str = "5";
const UNIMPLEMENTED: &str = "12";

/// Runs a `grpc` check: succeeds if the health service answers `SERVING` for the service of the check.
pub(super) async fn health(check: &GrpcCheck, connection: Connection) -> Result<(), Failure> {
    let (scheme, connection) = match check.tls {
        GrpcTlsMode::Plaintext => ("http", connection),
        GrpcTlsMode::Tls => ("https", tls::unverified(&check.address.host, b"h2", connection).await?),
    };
    let mut builder = Builder::new();
    let handshake =
        builder.enable_push(false).max_header_list_size(MAX_HEADERS).handshake::<_, Bytes>(connection);
    let (sender, connection) = handshake.await.map_err(|error| failed(&error))?;
    drive_until(call(check, scheme, sender), connection).await
}

async fn call(check: &GrpcCheck, scheme: &str, sender: SendRequest<Bytes>) -> Result<(), Failure> {
    let request = Request::post(format!("{scheme}://{}{METHOD}", check.address))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", USER_AGENT)
        .body(())
        .map_err(|_| Failure::before(probe::FAILED, "the request cannot be sent"))?;
    let mut sender = sender.ready().await.map_err(|error| failed(&error))?;
    let (answer, mut body) = sender.send_request(request, false).map_err(|error| failed(&error))?;
    body.send_data(message::request(&check.service), true).map_err(|error| failed(&error))?;
    let (head, body) = answer.await.map_err(|error| failed(&error))?.into_parts();
    if head.status != 200 {
        let message = format!("it answered with HTTP status {}", head.status.as_u16());
        return Err(Failure::answered(probe::UNEXPECTED_STATUS, message));
    }
    // Otherwise a server that gives every request the same answer could seem to be serving.
    let content_type = head.headers.get("content-type").map(http::HeaderValue::as_bytes);
    if !content_type.is_some_and(is_grpc) {
        return Err(Failure::not_protocol(PROTOCOL));
    }
    // An answer without a message has its status in the headers.
    if let Some(status) = status_of(&head.headers) {
        status?;
    }
    let (answer, trailers) = read(body).await?;
    status_of(&trailers).unwrap_or_else(|| Err(Failure::not_protocol(PROTOCOL)))?;
    match message::is_serving(&answer) {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::answered(
            probe::NOT_SERVING,
            "its health service answers with another status than SERVING",
        )),
        None => Err(Failure::not_protocol(PROTOCOL)),
    }
}

/// Returns whether a content type is `application/grpc`, alone or with a format or parameters.
/// `application/grpc-web` is another protocol, with its trailers in the body.
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Reads the body of a gRPC answer and its trailers. Fails if the body is too long.
async fn read(mut body: RecvStream) -> Result<(Vec<u8>, HeaderMap), Failure> {
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        // The window is never enlarged: its first size is larger than the bound.
        message.extend_from_slice(&data.map_err(|error| failed(&error))?);
        if message.len() > MAX_MESSAGE {
            return Err(Failure::not_protocol(PROTOCOL));
        }
    }
    let trailers = body.trailers().await.map_err(|error| failed(&error))?;
    Ok((message, trailers.unwrap_or_default()))
}

/// Returns the outcome of a gRPC call by the status in these headers or trailers; `None` if they contain no
/// status.
fn status_of(headers: &HeaderMap) -> Option<Result<(), Failure>> {
    let failure = match headers.get("grpc-status")?.to_str().unwrap_or_default() {
        "0" => return Some(Ok(())),
        NOT_FOUND => Failure::answered(probe::HEALTH_UNKNOWN, "its health service does not know the service"),
        UNIMPLEMENTED => Failure::answered(probe::NO_HEALTH_SERVICE, "it has no health service"),
        code => match code.parse::<u8>() {
            Ok(code @ 1..=16) => {
                Failure::answered(probe::UNEXPECTED_STATUS, format!("it answered with gRPC status {code}"))
            }
            _ => Failure::not_protocol(PROTOCOL),
        },
    };
    Some(Err(failure))
}

fn failed(error: &h2::Error) -> Failure {
    error
        .get_io()
        .map_or_else(|| Failure::not_protocol(PROTOCOL), |error| Failure::of_exchange(error, PROTOCOL))
}
