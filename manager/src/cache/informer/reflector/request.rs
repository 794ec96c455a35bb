//! The requests a reflector sends, and what it makes of refusals.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use tokio::time::timeout;

use crate::cache::informer::frame::{is_expired, read_status};
use crate::cache::object::Projection;
use crate::cache::store::select::Scope;
use crate::key::Chain;

/// Longest silence within a page, and before the head of any answer.
const SILENCE: Duration = Duration::from_mins(1);
/// Longest wait a server may ask for: a confused header must not stop a reflector for hours.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// Bytes kept of a refusal.
const REFUSAL: usize = 64 * 1024;

/// Characters of a query value that stand escaped: all but the unreserved ones.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where one reflector asks, and how.
pub(super) struct Endpoint {
    client: kube::Client,
    /// Path and the part of the query that every request has, ending in `?` or `&`.
    base: String,
    projection: Projection,
}

/// Why a list or a watch ended badly.
#[derive(Debug)]
pub(super) enum Failure {
    /// The position asked for is no longer served (410): list again.
    Expired,
    /// The server does not stream lists: page instead.
    Unstreamed(String),
    /// The server named a time to wait.
    Later(Duration, String),
    /// The kind is not served (404).
    Missing(String),
    /// This identity may not read it (403).
    Forbidden(String),
    /// Another answer that is a refusal.
    Refused(String),
    /// The server is busy, or what it had begun to send broke off: nothing is known about the position.
    Broken(String),
    /// No server has answered: none could be reached, or it closed the connection, or it kept silent.
    Unanswered(String),
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(client: kube::Client, path: &str, scope: &Scope, projection: Projection) -> Self {
        let labels = scope.labels.as_ref().map(|selector| parameter("labelSelector", &selector.to_string()));
        let fields = scope.fields.as_ref().map(|selector| parameter("fieldSelector", selector));
        let base = [format!("{path}?"), labels.unwrap_or_default(), fields.unwrap_or_default()].concat();
        Self { client, base, projection }
    }

    /// Asks for one page. `limit` 0 asks for all at once.
    pub(super) async fn page(&self, limit: u32, next: Option<&str>) -> Result<Body, Failure> {
        let next = next.map(|token| format!("&continue={}", escaped(token))).unwrap_or_default();
        let query = format!("limit={limit}{next}");
        Ok(self.send(&query, "PartialObjectMetadataList").await?.into_body())
    }

    /// Opens a watch after a version.
    pub(super) async fn watch(&self, version: &str, seconds: u64) -> Result<Body, Failure> {
        let version = escaped(version);
        let query =
            format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}");
        Ok(self.send(&query, "PartialObjectMetadata").await?.into_body())
    }

    /// Opens a watch that begins with everything there is, as of now.
    pub(super) async fn streamed_list(&self, seconds: u64) -> Result<Body, Failure> {
        let query = format!(
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
             &timeoutSeconds={seconds}"
        );
        match self.send(&query, "PartialObjectMetadata").await {
            Ok(response) => Ok(response.into_body()),
            Err(Failure::Refused(text)) => Err(Failure::Unstreamed(text)),
            Err(failure) => Err(failure),
        }
    }

    async fn send(&self, query: &str, partial: &str) -> Result<Response<Body>, Failure> {
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
        let sent = timeout(SILENCE, self.client.send(request)).await;
        let response = sent
            .map_err(|_| Failure::Unanswered(silence(SILENCE)))?
            .map_err(|error| Failure::unanswered(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        // The code decides; a refusal whose text is cut off is still that refusal.
        let text = read_all(body, REFUSAL).await.unwrap_or_default();
        let status = read_status(head.status.as_u16(), &text);
        Err(Failure::from_status(&status, retry_after(&head.headers)))
    }
}

/// Reads what has come of a body that is to end by itself; `None` is its end.
pub(super) async fn next_bytes(body: &mut Body) -> Result<Option<Bytes>, Failure> {
    let frame = timeout(SILENCE, body.frame()).await.map_err(|_| Failure::Broken(silence(SILENCE)))?;
    let Some(frame) = frame else { return Ok(None) };
    let frame = frame.map_err(|error| Failure::broken(&error))?;
    Ok(Some(frame.into_data().unwrap_or_default()))
}

/// Reads a body to its end, or somewhat more than so many bytes of it.
pub(super) async fn read_all(mut body: Body, limit: usize) -> Result<Bytes, Failure> {
    let mut whole = BytesMut::new();
    while whole.len() < limit
        && let Some(bytes) = next_bytes(&mut body).await?
    {
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.freeze())
}

fn silence(limit: Duration) -> String {
    format!("the server sent nothing for {limit:?}")
}

/// Reads the header's seconds; its date form is not used by API servers.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Returns a part of a query with the separator behind it.
fn parameter(name: &str, value: &str) -> String {
    format!("{name}={}&", escaped(value))
}

/// Escapes a query value.
fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

// === impl Failure ===

impl Failure {
    pub(super) fn broken(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Broken(Chain(error).to_string())
    }

    fn unanswered(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Unanswered(Chain(error).to_string())
    }

    pub(super) fn from_status(status: &Status, header: Option<Duration>) -> Self {
        let text = match (status.message.as_str(), status.reason.as_str()) {
            ("", "") => format!("the server answered {}", status.code),
            ("", reason) => format!("the server answered {}: {reason}", status.code),
            (message, _) => format!("the server answered {}: {message}", status.code),
        };
        let named = || Some(Duration::from_secs(status.details.as_ref()?.retry_after_seconds.into()));
        let wait = header.or_else(named).filter(|wait| !wait.is_zero());
        // The page of a gateway that reached no server: servers give a reason.
        let of_gateway = status.reason.is_empty();
        match (status.code, wait) {
            _ if is_expired(status) => Self::Expired,
            (429 | 500..=599, Some(wait)) => Self::Later(wait.min(LONGEST_WAIT), text),
            (502..=504, None) if of_gateway => Self::Unanswered(text),
            // All about the server; an internal error, 500, may be about this very position.
            (401 | 408 | 429 | 501..=599, None) => Self::Broken(text),
            (404, _) => Self::Missing(text),
            (403, _) => Self::Forbidden(text),
            _ => Self::Refused(text),
        }
    }
}

#[cfg(test)]
mod tests;
