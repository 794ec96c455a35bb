//! Counts, times and weighs the requests of every stack.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service as _, service_fn};

use super::deadline::is_watch;
use super::metrics::{Bytes, RequestMetrics};
use super::{ResponseBody, Stack};

/// The `code` of a request that got no answer, as client-go writes it.
const NO_ANSWER: &str = "<error>";

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

/// Counts the requests of a stack when their answer begins, and times and weighs them when it ends.
pub(super) fn counted(mut inner: Stack, metrics: &RequestMetrics, server: &Uri) -> Stack {
    // Without user information, which could be a password.
    let host = match (server.host(), server.port_u16()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    };
    let (metrics, host) = (metrics.clone(), Arc::<str>::from(host));
    Stack::new(service_fn(move |request: Request<Body>| {
        let (metrics, host, method) = (metrics.clone(), Arc::clone(&host), request.method().clone());
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
        let sending = inner.call(request);
        async move {
            let sent = sending.await;
            let status = sent.as_ref().ok().map(Response::status);
            metrics.count(status.as_ref().map_or(NO_ANSWER, StatusCode::as_str), method.as_str(), &host);
            Ok(match under_way {
                Some(_) => sent?.map(|body| Weighed { inner: body, bytes: 0, under_way }.boxed_unsync()),
                None => sent?,
            })
        }
    }))
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
