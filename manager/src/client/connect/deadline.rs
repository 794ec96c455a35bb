//! Deadlines for opening a connection and for the requests of a stack.

use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Service, service_fn};

use super::{ResponseBody, Stack};

/// A connection or a request took too long. Whether the request took effect is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} took longer than {limit:?}")]
pub struct DeadlineExceeded {
    what: String,
    limit: Duration,
}

/// Limits the time that an always-ready connector takes to open a connection: TCP and TLS together.
pub(super) fn connect_deadline<C>(
    mut inner: C,
    limit: Duration,
) -> impl Service<Uri, Response = C::Response, Error = BoxError, Future: Send + Unpin> + Clone + Send + Sync
where
    C: Service<Uri> + Clone + Send + Sync,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    service_fn(move |target: Uri| {
        let what = format!("connecting to {target}");
        let connecting = inner.call(target);
        Box::pin(async move {
            match timeout(limit, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(DeadlineExceeded { what, limit }.into()),
            }
        })
    })
}

/// Limits the time of each request of a stack, and collects its whole response. The body of a watch is not
/// collected and has no limit.
pub(super) fn deadlined(mut inner: Stack, limit: Duration) -> Stack {
    Stack::new(service_fn(move |request: Request<Body>| {
        let end = Instant::now() + limit;
        let what = format!("{} {}", request.method(), request.uri().path());
        let watch = is_watch(request.uri());
        let sending = inner.call(request);
        async move {
            let whole = async {
                let response = sending.await?;
                if watch { Ok(response) } else { collected(response).await }
            };
            // Dropping a sent request closes its connection, so a late response cannot be read as that of the
            // next request.
            timeout_at(end, whole).await.unwrap_or_else(|_| Err(DeadlineExceeded { what, limit }.into()))
        }
    }))
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
