//! Counts the requests of every stack, under client-go's name and labels.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri};
use kube::client::Body;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tower::{BoxError, Layer, Service};

use crate::metrics::Registry;

use super::ResponseBody;

/// The `code` of a request that got no answer, as client-go writes it.
const NO_ANSWER: &str = "<error>";

/// `rest_client_requests_total` of one manager.
#[derive(Clone, Debug)]
pub(super) struct RequestCounts {
    family: Family<Labels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    code: String,
    method: String,
    host: Arc<str>,
}

/// Puts [`Counted`] around a service.
pub(super) struct CountLayer {
    counts: RequestCounts,
    host: Arc<str>,
}

/// A service whose requests are counted when their answer begins.
#[derive(Clone)]
pub(super) struct Counted<S> {
    inner: S,
    counts: RequestCounts,
    host: Arc<str>,
}

// === impl RequestCounts ===

impl RequestCounts {
    pub(super) fn register(registry: &Registry) -> Self {
        let family = Family::default();
        let help = "Number of HTTP requests, partitioned by status code, method, and host";
        registry.register("rest_client_requests", help, family.clone());
        Self { family }
    }

    fn count(&self, code: &str, method: &str, host: &Arc<str>) {
        let labels = Labels { code: code.to_owned(), method: method.to_owned(), host: Arc::clone(host) };
        self.family.get_or_create(&labels).inc();
    }
}

// === impl Counted ===

impl CountLayer {
    pub(super) fn new(counts: &RequestCounts, server: &Uri) -> Self {
        // Without user information, which could be a password.
        let host = match (server.host(), server.port_u16()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        Self { counts: counts.clone(), host: host.into() }
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Counted { inner, counts: self.counts.clone(), host: Arc::clone(&self.host) }
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
        let counts = self.counts.clone();
        let host = Arc::clone(&self.host);
        let method = request.method().clone();
        let sending = self.inner.call(request);
        Box::pin(async move {
            let sent = sending.await.map_err(Into::into);
            let status = sent.as_ref().ok().map(Response::status);
            counts.count(status.as_ref().map_or(NO_ANSWER, StatusCode::as_str), method.as_str(), &host);
            sent
        })
    }
}
