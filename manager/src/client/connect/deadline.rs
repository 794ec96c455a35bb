//! Ends what takes too long: opening a connection, and any request that has a deadline.

use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Service, service_fn};

use super::{ResponseBody, Stack};

/// No end was reached in time. Whether a request took effect is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} took longer than {limit:?}")]
pub struct DeadlineExceeded {
    what: String,
    limit: Duration,
}

/// Limits the time in which a connector, which is always ready, opens a connection: TCP and TLS together.
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

/// Makes each answer of a stack complete, or an error in time. The body of a watch is left open.
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
            // Dropping a request that was sent closes its connection, so no late answer is taken for the next one's.
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
