//! Counts, times and weighs the requests of every stack.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service as _, service_fn};

use super::deadline::is_watch;
use super::metrics::{Histograms, Labels, RequestMetrics};
use super::{ResponseBody, Stack};

/// The `code` of a request that got no answer, as client-go writes it.
const NO_ANSWER: &str = "<error>";

/// A request that is under way. A guard: one whose caller does not wait for the end has ended all the same.
struct UnderWay {
    metrics: RequestMetrics,
    /// Its verb and host.
    labels: Labels<2>,
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
    let metrics = metrics.clone();
    Stack::new(service_fn(move |request: Request<Body>| {
        let (metrics, host, method) = (metrics.clone(), host.clone(), request.method().to_string());
        let under_way = (!is_watch(request.uri())).then(|| UnderWay {
            metrics: metrics.clone(),
            labels: [("verb", method.clone()), ("host", host.clone())],
            since: Instant::now(),
        });
        // A body that is streamed has no size yet, and none of ours is.
        if let (Some(under_way), Some(bytes)) = (&under_way, request.body().size_hint().exact()) {
            under_way.weigh(&metrics.sent, bytes);
        }
        let sending = inner.call(request);
        async move {
            let sent = sending.await;
            let status = sent.as_ref().ok().map(Response::status);
            let code = status.as_ref().map_or(NO_ANSWER, StatusCode::as_str).to_owned();
            metrics.requests.get_or_create(&[("code", code), ("method", method), ("host", host)]).inc();
            Ok(match under_way {
                Some(_) => sent?.map(|body| Weighed { inner: body, bytes: 0, under_way }.boxed_unsync()),
                None => sent?,
            })
        }
    }))
}

// === impl UnderWay ===

impl UnderWay {
    fn weigh(&self, family: &Histograms<2>, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "no body is that long")]
        family.get_or_create(&self.labels).observe(bytes as f64);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.metrics.seconds.get_or_create(&self.labels).observe(self.since.elapsed().as_secs_f64());
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
            under_way.weigh(&under_way.metrics.received, self.bytes);
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
