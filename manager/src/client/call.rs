//! Builds one request, sends it and reads its whole response.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::core::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::key::{KindId, NamespacedName};

use super::error::{WriteError, is_fenced};

/// Content type of a JSON merge patch.
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
/// Longest name of a field manager that the API server accepts, in bytes.
const MAX_FIELD_MANAGER: usize = 128;

/// Characters of a field manager's name that are percent-encoded in a query: all but the unreserved ones of
/// RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The part of an object that a write may change: the object without its status, or the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The whole object except its status.
    Object,
    Status,
}

/// Returns the name of a write for error texts, such as `apply of Pod status shop/web`; the verb of a dry run
/// is `dry run`.
pub(super) fn attempt(verb: &str, kind: &KindId, part: Part, name: &NamespacedName, dry_run: bool) -> String {
    let verb = if dry_run { "dry run" } else { verb };
    let part = if part == Part::Status { " status" } else { "" };
    format!("{verb} of {kind}{part} {name}")
}

/// Returns the URL path of a part of an object.
pub(super) fn address(kind: &KindId, part: Part, name: &NamespacedName) -> String {
    let subresource = if part == Part::Status { "/status" } else { "" };
    format!("{}{subresource}", kind.object_path(name))
}

/// Returns the query of the URL of a write: the field manager and, for a dry run, `dryRun=All`.
///
/// # Errors
/// Fails for a field manager that the API server would reject.
pub(super) fn query(field_manager: &str, dry_run: bool, what: &str) -> Result<String, WriteError> {
    if field_manager.is_empty()
        || field_manager.len() > MAX_FIELD_MANAGER
        || field_manager.chars().any(char::is_control)
    {
        let why = format!(
            "its field manager is {field_manager:?}; give a name of 1..={MAX_FIELD_MANAGER} printable bytes, \
             such as that of the controller"
        );
        return Err(WriteError::Malformed { what: what.to_owned(), why });
    }
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    Ok(format!("fieldManager={}{dry_run}", utf8_percent_encode(field_manager, ESCAPED)))
}

/// Sends a request about an object to the API server and returns the successful response: JSON, with the
/// status 200, or 201 for a created object. `body` is the content type and the content. `what` names the
/// attempt in errors, such as `apply of Pod shop/web`.
///
/// # Cancel safety
/// After the future is dropped the request may still take effect.
pub(super) async fn send(
    client: &kube::Client,
    method: Method,
    uri: &str,
    body: Option<(&'static str, Bytes)>,
    what: &str,
) -> Result<Response<Bytes>, WriteError> {
    let mut request = Request::builder().method(method).uri(uri).header(header::ACCEPT, "application/json");
    if let Some((content_type, _)) = body {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    let request = request
        .body(body.map(|(_, body)| body).unwrap_or_default().into())
        .map_err(|error| WriteError::Malformed { what: what.to_owned(), why: error.to_string() })?;
    let unanswered = |error: kube::Error| {
        let what = what.to_owned();
        if is_fenced(&error) {
            WriteError::Fenced { what }
        } else {
            WriteError::Unanswered { what, source: Box::new(error) }
        }
    };
    let response = client.send(request).await.map_err(unanswered)?;
    let code = response.status();
    let header = retry_after_header(&response);
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(unanswered)?.to_bytes();
    if code.is_success() {
        return Ok(Response::from_parts(head, body));
    }
    let status = read_status(code, &body);
    let details = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds));
    // A wait of zero counts as absent, in the header and in the details.
    let retry_after = header.into_iter().chain(details).find(|seconds| *seconds > 0).map(Duration::from_secs);
    Err(WriteError::Refused { what: what.to_owned(), status: Box::new(status), retry_after })
}

/// Decodes the `Status` in an error response; makes one from the text if the response is no JSON, as from a
/// proxy.
fn read_status(code: StatusCode, body: &[u8]) -> Status {
    let mut status = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(512)]).trim().to_owned();
        Status::failure(&text, code.canonical_reason().unwrap_or_default())
    });
    status.code = code.as_u16();
    status
}

/// Reads the header `Retry-After` of a response, in seconds; its other form, a date, is ignored because API
/// servers never send one.
fn retry_after_header<B>(response: &Response<B>) -> Option<u64> {
    response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
