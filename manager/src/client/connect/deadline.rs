//! Ends what takes too long: opening a connection, and any request that has a deadline.

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Layer, Service};

use super::ResponseBody;

/// No end was reached in time. Whether a request took effect is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} took longer than {limit:?}")]
pub struct DeadlineExceeded {
    what: String,
    limit: Duration,
}

/// A connector with a limit for TCP and TLS together.
#[derive(Clone)]
pub(super) struct ConnectDeadline<C> {
    inner: C,
    limit: Duration,
}

/// Puts [`Deadlined`] around a service.
pub(super) struct DeadlineLayer {
    pub(super) timeout: Duration,
}

/// A service whose answers are complete when it gives them, or an error in time. The body of a watch is left open.
#[derive(Clone)]
pub(super) struct Deadlined<S> {
    inner: S,
    limit: Duration,
}

// === impl ConnectDeadline ===

impl<C> ConnectDeadline<C> {
    pub(super) fn new(inner: C, limit: Duration) -> Self {
        Self { inner, limit }
    }
}

impl<C> fmt::Debug for ConnectDeadline<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectDeadline").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl<C> Service<Uri> for ConnectDeadline<C>
where
    C: Service<Uri>,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let what = format!("connecting to {target}");
        let limit = self.limit;
        let connecting = self.inner.call(target);
        Box::pin(async move {
            match timeout(limit, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(DeadlineExceeded { what, limit }.into()),
            }
        })
    }
}

// === impl Deadlined ===

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadlined<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Deadlined { inner, limit: self.timeout }
    }
}

impl<S> Service<Request<Body>> for Deadlined<S>
where
    S: Service<Request<Body>, Response = Response<ResponseBody>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = self.limit;
        let end = Instant::now() + limit;
        let what = format!("{} {}", request.method(), request.uri().path());
        let watch = is_watch(request.uri());
        let sending = self.inner.call(request);
        Box::pin(async move {
            let whole = async {
                let response = sending.await?;
                if watch { Ok(response) } else { collected(response).await }
            };
            // Dropping a request that was sent closes its connection, so no late answer is taken for the next one's.
            timeout_at(end, whole).await.unwrap_or_else(|_| Err(DeadlineExceeded { what, limit }.into()))
        })
    }
}

async fn collected(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    let (head, body) = response.into_parts();
    let body = Full::new(body.collect().await?.to_bytes());
    Ok(Response::from_parts(head, body.map_err(|never| match never {}).boxed_unsync()))
}

pub(super) fn is_watch(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch")))
}
