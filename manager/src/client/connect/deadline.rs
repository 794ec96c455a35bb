//! Deadlines for opening a connection and for the requests of a stack.

use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::timeout;
use tower::{BoxError, Service as _, service_fn};

use super::{Connector, ResponseBody, Stack, whole};

/// A connection or a request took too long. Whether the request took effect is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} took longer than {limit:?}")]
pub struct DeadlineExceeded {
    what: String,
    limit: Duration,
}

/// Makes a connector that limits the time to open a connection: TCP and TLS together.
pub(super) fn connect_deadline<S: 'static>(mut inner: Connector<S>, limit: Duration) -> Connector<S> {
    Connector::new(service_fn(move |target: Uri| {
        let what = format!("connecting to {target}");
        in_time(limit, what, inner.call(target))
    }))
}

/// Makes a stack that limits the time of each request and collects the whole response. The body of a watch is
/// not collected and has no limit.
pub(super) fn deadlined(mut inner: Stack, limit: Duration) -> Stack {
    Stack::new(service_fn(move |request: Request<Body>| {
        let what = format!("{} {}", request.method(), request.uri().path());
        let watch = is_watch(request.uri());
        let sending = inner.call(request);
        // Dropping a sent request closes its connection, so a late response cannot be read as that of the
        // next request.
        in_time(limit, what, async move {
            let response = sending.await?;
            if watch { Ok(response) } else { collected(response).await }
        })
    }))
}

/// Limits the time of a future, from this call on. After `limit` it is dropped and the result is an error;
/// `what` begins its text.
fn in_time<T>(
    limit: Duration,
    what: String,
    future: impl Future<Output = Result<T, BoxError>>,
) -> impl Future<Output = Result<T, BoxError>> {
    let ended = timeout(limit, future);
    async move { ended.await.unwrap_or_else(|_| Err(DeadlineExceeded { what, limit }.into())) }
}

async fn collected(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    let (head, body) = response.into_parts();
    Ok(Response::from_parts(head, whole(body.collect().await?.to_bytes())))
}

pub(crate) fn is_watch(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch")))
}
