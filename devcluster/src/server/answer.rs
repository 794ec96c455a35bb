//! HTTP responses: status code, headers, and a body that is complete or streamed.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use serde_json::Value;

use super::accept::{Accepted, Format};
use super::yaml;
use crate::api::Status;

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The body of a response. Dropping the body of a watch ends the watch.
pub struct AnswerBody(Inner);

enum Inner {
    Whole(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// A response without the headers that [`Answer::finish`] adds.
#[derive(Debug)]
pub(super) struct Answer(Response<AnswerBody>);

// === impl AnswerBody ===

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Stream(stream) => {
                stream.as_mut().poll_next(context).map(|item| item.map(|it| Ok(Frame::data(it))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AnswerBody")
    }
}

// === impl Answer ===

impl Answer {
    fn new(code: u16, content_type: HeaderValue, body: Inner) -> Self {
        let mut response = Response::new(AnswerBody(body));
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        Self(response)
    }

    /// Returns a response with plain text.
    pub(super) fn text(code: u16, text: impl Into<String>) -> Self {
        let text: String = text.into();
        Self::new(code, PLAIN_TEXT, Inner::Whole(text.into())).with("x-content-type-options", "nosniff")
    }

    /// Returns a 404 response with plain text.
    pub(super) fn no_page() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// Returns a response with a `Status` in the accepted format.
    pub(super) fn status(status: &Status, accepted: &Accepted) -> Self {
        let mut answer = Self::value(status.code(), &status.to_value(), accepted);
        for warning in &status.failure().warnings {
            answer.warn(warning);
        }
        match status.retry_after_seconds() {
            Some(seconds) => answer.with(RETRY_AFTER.as_str(), &seconds.to_string()),
            None => answer,
        }
    }

    /// Returns a response with a value in the accepted format.
    pub(super) fn value(code: u16, value: &Value, accepted: &Accepted) -> Self {
        let text = match accepted.format {
            Format::Yaml => yaml::encode(value),
            Format::Json if accepted.pretty => format!("{value:#}\n"),
            Format::Json => value.to_string(),
        };
        let content_type = HeaderValue::from_static(accepted.format.content_type());
        Self::new(code, content_type, Inner::Whole(text.into()))
    }

    /// Returns a response without content.
    pub(super) fn empty(code: u16) -> Self {
        let mut answer = Self::json(code, Bytes::new());
        answer.0.headers_mut().remove(CONTENT_TYPE);
        answer
    }

    /// Returns a response with JSON that is encoded already.
    pub(super) fn json(code: u16, json: Bytes) -> Self {
        let content_type = HeaderValue::from_static(Format::Json.content_type());
        Self::new(code, content_type, Inner::Whole(json))
    }

    /// Returns a response with JSON that consists of these pieces; a single piece has a `Content-Length`.
    pub(super) fn pieces(code: u16, mut pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        let first = pieces.next().unwrap_or_default();
        match pieces.next() {
            None => Self::json(code, first),
            Some(second) => {
                let all = [first, second].into_iter().chain(pieces);
                let content_type = HeaderValue::from_static(Format::Json.content_type());
                Self::new(code, content_type, Inner::Stream(Box::pin(stream::iter(all))))
            }
        }
    }

    /// Returns a 200 response with a streamed body: lines of JSON.
    pub(super) fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        let content_type = HeaderValue::from_static(Format::Json.content_type());
        Self::new(200, content_type, Inner::Stream(Box::pin(stream)))
    }

    /// Returns the status code.
    pub(super) fn code(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// Sets a header; a value with characters that a header cannot contain is ignored.
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.0.headers_mut().insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// Adds a header `Warning` with code 299.
    pub(super) fn warn(&mut self, text: &str) {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            self.0.headers_mut().append(WARNING, value);
        }
    }

    /// Adds the headers of every response and returns the response.
    pub(super) fn finish(self, audit_id: &str) -> Response<AnswerBody> {
        let mut response = self.with("audit-id", audit_id).0;
        let private = HeaderValue::from_static("no-cache, private");
        response.headers_mut().entry(CACHE_CONTROL).or_insert(private);
        response
    }
}
