//! Counts the requests of every stack, and measures their duration and size.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Service as _, service_fn};

use super::deadline::is_watch;
use super::metrics::{Histograms, Labels, RequestMetrics};
use super::{ResponseBody, Stack};

/// Value of the metric label `code` for a request without a response, as in client-go.
const NO_RESPONSE: &str = "<error>";

/// A request in flight. Records the duration of the request when this value is dropped: at the end of the
/// response, or when the caller gives up.
struct InFlight {
    metrics: RequestMetrics,
    /// Metric labels of the request: verb and host.
    labels: Labels<2>,
    started_at: Instant,
}

/// A response body that counts its bytes while the caller reads it.
struct MeasuredBody {
    inner: ResponseBody,
    bytes: u64,
    /// The request that the response belongs to; `None` once the body was read to its end, or for a watch.
    in_flight: Option<InFlight>,
}

/// Makes a stack that counts each request in the metrics when its response begins. Of all but watches it also
/// records the duration and the sizes of request and response.
pub(super) fn counted(mut inner: Stack, metrics: &RequestMetrics, server: &Uri) -> Stack {
    // The user information of the URI is left out, since it could contain a password.
    let host = match (server.host(), server.port_u16()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    };
    let metrics = metrics.clone();
    Stack::new(service_fn(move |request: Request<Body>| {
        let (metrics, host, method) = (metrics.clone(), host.clone(), request.method().to_string());
        let in_flight = (!is_watch(request.uri())).then(|| InFlight {
            metrics: metrics.clone(),
            labels: [("verb", method.clone()), ("host", host.clone())],
            started_at: Instant::now(),
        });
        // A streamed body has no size yet, but this process streams none.
        if let (Some(in_flight), Some(bytes)) = (&in_flight, request.body().size_hint().exact()) {
            in_flight.record_size(&metrics.sent, bytes);
        }
        let sending = inner.call(request);
        async move {
            let sent = sending.await;
            let status = sent.as_ref().ok().map(Response::status);
            let code = status.as_ref().map_or(NO_RESPONSE, StatusCode::as_str).to_owned();
            metrics.requests.get_or_create(&[("code", code), ("method", method), ("host", host)]).inc();
            Ok(match in_flight {
                Some(_) => sent?.map(|inner| MeasuredBody { inner, bytes: 0, in_flight }.boxed_unsync()),
                None => sent?,
            })
        }
    }))
}

// === impl InFlight ===

impl InFlight {
    fn record_size(&self, family: &Histograms<2>, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "no body is that long")]
        family.get_or_create(&self.labels).observe(bytes as f64);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let seconds = self.started_at.elapsed().as_secs_f64();
        self.metrics.seconds.get_or_create(&self.labels).observe(seconds);
    }
}

// === impl MeasuredBody ===

impl http_body::Body for MeasuredBody {
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
        // `is_end_stream` is left at its default, so every reader reads up to this `None`.
        if matches!(polled, Poll::Ready(None))
            && let Some(in_flight) = self.in_flight.take()
        {
            in_flight.record_size(&in_flight.metrics.received, self.bytes);
        }
        polled
    }
}
