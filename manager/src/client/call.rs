//! Sends one request and reads its whole answer.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::core::Status;

use super::error::{WriteError, is_fenced};

/// Sends `request`; `what` names the attempt in errors, such as `apply of Pod shop/web`.
///
/// # Cancel safety
/// Dropping it may leave the request sent: whether it takes effect is then unknown.
pub(super) async fn call(
    client: &kube::Client,
    request: Request<Bytes>,
    what: &str,
) -> Result<Bytes, WriteError> {
    send(client, request, what).await.map(Response::into_body)
}

/// As [`call`], with the head of the answer: a success is 200 or 201.
pub(super) async fn send(
    client: &kube::Client,
    request: Request<Bytes>,
    what: &str,
) -> Result<Response<Bytes>, WriteError> {
    let unanswered = |error: kube::Error| {
        let what = what.to_owned();
        if is_fenced(&error) {
            WriteError::Fenced { what }
        } else {
            WriteError::Unanswered { what, source: Box::new(error) }
        }
    };
    let response = client.send(request.map(Body::from)).await.map_err(unanswered)?;
    let code = response.status();
    let header = retry_after_header(&response);
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(unanswered)?.to_bytes();
    if code.is_success() {
        return Ok(Response::from_parts(head, body));
    }
    let status = read_status(code, &body);
    let details = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds));
    let retry_after = header.or_else(|| details.filter(|seconds| *seconds > 0).map(Duration::from_secs));
    Err(WriteError::Refused { what: what.to_owned(), status: Box::new(status), retry_after })
}

/// Reads the server's own words, or makes some for an answer that came from a proxy in between.
fn read_status(code: StatusCode, body: &[u8]) -> Status {
    let mut status = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(512)]).trim().to_owned();
        Status::failure(&text, code.canonical_reason().unwrap_or_default())
    });
    status.code = code.as_u16();
    status
}

/// Only the form in seconds: API servers send no dates.
fn retry_after_header<B>(response: &Response<B>) -> Option<Duration> {
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
