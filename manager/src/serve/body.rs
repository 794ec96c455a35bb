//! The body of a request, whole, or why there is none.
//!
//! What is sent to these servers is a short text for people's scripts: an action, its object. So a body says its length
//! before it comes, and a length beyond the limit is refused before a byte of it is read.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::Limits;

/// Reads the body of a request to its end. A request without one has an empty one.
///
/// # Errors
/// The answer to a request whose body is too long (413), of a length that is not told (411), late (408) or broken (400).
pub(super) async fn read<B>(request: Request<B>, limits: &Limits) -> Result<Request<Bytes>, Response<Bytes>>
where
    B: Body<Data = Bytes>,
{
    let allowed = limits.body_bytes;
    match request.body().size_hint().exact() {
        None => return Err(refuse(StatusCode::LENGTH_REQUIRED, "send a Content-Length\n".to_owned())),
        Some(length) if usize::try_from(length).is_ok_and(|length| length <= allowed) => {}
        Some(_long) => {
            let text = format!("the body is longer than {allowed} bytes\n");
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
    }
    let (head, body) = request.into_parts();
    // The length bounds what is collected: the parser ends the body there.
    match timeout(limits.body_timeout, body.collect()).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.to_bytes())),
        Ok(Err(_broken)) => Err(refuse(StatusCode::BAD_REQUEST, "the body ended early\n".to_owned())),
        Err(_elapsed) => {
            let text = format!("the body did not come within {:?}\n", limits.body_timeout);
            Err(refuse(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

/// What is left of such a request is not read, so nothing can follow it on its connection.
fn refuse(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
