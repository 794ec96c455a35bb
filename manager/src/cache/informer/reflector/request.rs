//! The requests of a reflector, and how it classifies failures.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use tokio::time::timeout;

use crate::cache::informer::frame::{is_expired, read_status};
use crate::cache::object::Projection;
use crate::cache::store::Scope;
use crate::key::Chain;

/// Longest time that a server may send no byte, before the head of a response and within a page.
const READ_TIMEOUT: Duration = Duration::from_mins(1);
/// Upper bound of the delay that a `Retry-After` header requests, so that a wrong header cannot stop a
/// reflector for hours.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);
/// Largest number of bytes read of the body of an error response.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// Characters that are escaped in a query value: all but the unreserved ones of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The collection that one reflector lists and watches, and the client that sends the requests.
pub(super) struct Endpoint {
    client: kube::Client,
    /// The path and the selectors in the URL of every request, ending in `?` or `&`.
    base: String,
    projection: Projection,
}

/// Why a list or a watch of a reflector failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The resourceVersion or continue token of the request has expired (410), so the reflector lists again.
    Expired,
    /// The server does not stream lists, for this reason, so the reflector lists by pages.
    Unstreamed(String),
    /// The server refused the request, with this error text, and named a delay before the next one.
    RetryAfter(Duration, String),
    /// The kind is not served (404).
    NotFound(String),
    /// This identity may not list or watch the kind (403).
    Forbidden(String),
    /// The server sent any other error response. It may be caused by the version, so some of them in a row
    /// lead to a list.
    Refused(String),
    /// The server is busy, or the response broke off. The resourceVersion may still be good, so the watch
    /// resumes.
    Broken(String),
    /// The request had no response: the server could not be reached, closed the connection or was silent for
    /// too long.
    Unanswered(String),
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(client: kube::Client, path: &str, scope: &Scope, projection: Projection) -> Self {
        let labels = scope.labels.as_ref().map(ToString::to_string);
        let labels = labels.map(|selector| format!("labelSelector={}&", escaped(&selector)));
        let fields = scope.fields.as_ref().map(|selector| format!("fieldSelector={}&", escaped(selector)));
        let base = [format!("{path}?"), labels.unwrap_or_default(), fields.unwrap_or_default()].concat();
        Self { client, base, projection }
    }

    /// Requests one page of a list, of at most `limit` items (0 = all): the first page, or that of the
    /// continue token `next`.
    pub(super) async fn page(&self, limit: u32, next: Option<&str>) -> Result<Body, Failure> {
        let next = next.map(|token| format!("&continue={}", escaped(token))).unwrap_or_default();
        self.send(&format!("limit={limit}{next}"), "PartialObjectMetadataList").await
    }

    /// Opens a watch of the changes after `version`, which the server ends after this number of seconds.
    pub(super) async fn watch(&self, version: &str, seconds: u64) -> Result<Body, Failure> {
        let version = escaped(version);
        let query =
            format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}");
        self.send(&query, "PartialObjectMetadata").await
    }

    /// Opens a watch that begins with all present objects ([KEP-3157](https://kep.k8s.io/3157)), and which
    /// the server ends after this number of seconds.
    pub(super) async fn streamed_list(&self, seconds: u64) -> Result<Body, Failure> {
        let query = format!(
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
             &timeoutSeconds={seconds}"
        );
        self.send(&query, "PartialObjectMetadata").await.map_err(|failure| match failure {
            Failure::Refused(text) => Failure::Unstreamed(text),
            failure => failure,
        })
    }

    /// Sends a GET with this query and returns the body of the response. `partial` is the type that is
    /// requested for metadata-only objects.
    async fn send(&self, query: &str, partial: &str) -> Result<Body, Failure> {
        let accept = match self.projection {
            Projection::Full => "application/json".to_owned(),
            Projection::Metadata => {
                format!("application/json;as={partial};g=meta.k8s.io;v=v1,application/json")
            }
        };
        let request = Request::get(format!("{}{query}", self.base))
            .header(ACCEPT, accept)
            .body(Body::empty())
            .map_err(|error| Failure::Refused(format!("the request cannot be built: {error}")))?;
        let sent = timeout(READ_TIMEOUT, self.client.send(request)).await;
        let response = sent
            .map_err(|_| Failure::Unanswered(sent_nothing()))?
            .map_err(|error| Failure::Unanswered(Chain(&error).to_string()))?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let (head, body) = response.into_parts();
        // The code decides, so it does not matter if the body breaks off.
        let text = read_all(body, MAX_ERROR_BODY).await.unwrap_or_default();
        let status = read_status(head.status.as_u16(), &text);
        Err(Failure::from_status(&status, retry_after(&head.headers)))
    }
}

/// Reads the next bytes of a response body; `None` at its end.
pub(super) async fn next_bytes(body: &mut Body) -> Result<Option<Bytes>, Failure> {
    let frame = timeout(READ_TIMEOUT, body.frame()).await.map_err(|_| Failure::Broken(sent_nothing()))?;
    let Some(frame) = frame else { return Ok(None) };
    let frame = frame.map_err(|error| Failure::Broken(Chain(&error).to_string()))?;
    Ok(Some(frame.into_data().unwrap_or_default()))
}

/// Reads a response body to its end, or until at least `limit` bytes of it are read.
pub(super) async fn read_all(mut body: Body, limit: usize) -> Result<Bytes, Failure> {
    let mut whole = BytesMut::new();
    while whole.len() < limit
        && let Some(bytes) = next_bytes(&mut body).await?
    {
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.freeze())
}

fn sent_nothing() -> String {
    format!("the server sent nothing for {READ_TIMEOUT:?}")
}

/// Returns the delay in a `Retry-After` header; `None` without one. API servers send seconds, not its date
/// form.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Escapes a text for use as a value in the query of a URL.
fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

// === impl Failure ===

impl Failure {
    /// Classifies an error response of the API server as a failure; `header` is the delay in its
    /// `Retry-After`.
    pub(super) fn from_status(status: &Status, header: Option<Duration>) -> Self {
        let text = match (status.message.as_str(), status.reason.as_str()) {
            ("", "") => format!("the server answered {}", status.code),
            ("", reason) => format!("the server answered {}: {reason}", status.code),
            (message, _) => format!("the server answered {}: {message}", status.code),
        };
        let in_body = || Some(Duration::from_secs(status.details.as_ref()?.retry_after_seconds.into()));
        let retry_after = header.or_else(in_body).filter(|delay| !delay.is_zero());
        // API servers send a reason; the page of a gateway that could not reach one has none.
        let from_gateway = status.reason.is_empty();
        match (status.code, retry_after) {
            _ if is_expired(status) => Self::Expired,
            (429 | 500..=599, Some(delay)) => Self::RetryAfter(delay.min(MAX_RETRY_AFTER), text),
            (502..=504, None) if from_gateway => Self::Unanswered(text),
            // These depend on the server's state alone. A 500 is missing here: the version may cause it.
            (401 | 408 | 429 | 501..=599, None) => Self::Broken(text),
            (404, _) => Self::NotFound(format!("{text}; is the CRD of the kind installed?")),
            (403, _) => Self::Forbidden(text),
            _ => Self::Refused(text),
        }
    }
}

#[cfg(test)]
mod tests;
