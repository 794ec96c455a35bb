//! Counts, times and weighs the requests of every stack.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::ResponseBody;
use super::deadline::is_watch;
use super::metrics::{Bytes, RequestMetrics};

/// The `code` of a request that got no answer, as client-go writes it.
const NO_ANSWER: &str = "<error>";

/// Puts [`Counted`] around a service.
pub(super) struct CountLayer {
    metrics: RequestMetrics,
    host: Arc<str>,
}

/// A service whose requests are counted when their answer begins, and timed and weighed when it ends.
#[derive(Clone)]
pub(super) struct Counted<S> {
    inner: S,
    metrics: RequestMetrics,
    host: Arc<str>,
}

/// A request that is under way. A guard: one whose caller does not wait for the end has ended all the same.
struct UnderWay {
    metrics: RequestMetrics,
    method: Method,
    host: Arc<str>,
    since: Instant,
}

/// An answer that is read by the caller.
struct Weighed {
    inner: ResponseBody,
    bytes: u64,
    /// `None` once it has been read to its end.
    under_way: Option<UnderWay>,
}

// === impl Counted ===

impl CountLayer {
    pub(super) fn new(metrics: &RequestMetrics, server: &Uri) -> Self {
        // Without user information, which could be a password.
        let host = match (server.host(), server.port_u16()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        Self { metrics: metrics.clone(), host: host.into() }
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Counted { inner, metrics: self.metrics.clone(), host: Arc::clone(&self.host) }
    }
}

impl<S> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<ResponseBody>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let metrics = self.metrics.clone();
        let host = Arc::clone(&self.host);
        let method = request.method().clone();
        let under_way = (!is_watch(request.uri())).then(|| UnderWay {
            metrics: metrics.clone(),
            method: method.clone(),
            host: Arc::clone(&host),
            since: Instant::now(),
        });
        // A body that is streamed has no size yet, and none of ours is.
        if let (Some(under_way), Some(bytes)) = (&under_way, request.body().size_hint().exact()) {
            under_way.weighed(Bytes::Sent(bytes));
        }
        let sending = self.inner.call(request);
        Box::pin(async move {
            let sent = sending.await.map_err(Into::into);
            let status = sent.as_ref().ok().map(Response::status);
            metrics.count(status.as_ref().map_or(NO_ANSWER, StatusCode::as_str), method.as_str(), &host);
            Ok(match under_way {
                Some(_) => sent?.map(|body| Weighed { inner: body, bytes: 0, under_way }.boxed_unsync()),
                None => sent?,
            })
        })
    }
}

// === impl UnderWay ===

impl UnderWay {
    fn weighed(&self, bytes: Bytes) {
        self.metrics.weighed(self.method.as_str(), &self.host, bytes);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.metrics.took(self.method.as_str(), &self.host, self.since.elapsed());
    }
}

// === impl Weighed ===

impl http_body::Body for Weighed {
    type Data = bytes::Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        // Who knows the length reads no further than its last byte.
        let ended = matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream();
        if let Some(under_way) = self.under_way.take_if(|_| ended) {
            under_way.weighed(Bytes::Received(self.bytes));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
