//! Refuses requests in a test, as an API server does that denies a right.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use kube::client::Body;
use parking_lot::RwLock;
use serde_json::json;
use tower::{Service as _, service_fn};

use super::{ResponseBody, Stack, whole};

/// Decides which requests of a process are sent, and learns which of them created an object.
pub(crate) trait RequestGuard: Send + Sync + 'static {
    /// Returns the reason why this request is not sent; `None` if it is.
    fn refuse(&self, method: &Method, uri: &Uri) -> Option<String>;

    /// Called after a patch of this URI has created an object.
    fn created(&self, uri: &Uri);
}

/// The guard of one [`Connections`](super::Connections), shared with the clients that were made before it was
/// set.
pub(super) type GuardSlot = Arc<RwLock<Option<Arc<dyn RequestGuard>>>>;

/// Makes a stack that asks the guard about each request, if there is one.
pub(super) fn guarded_in_test(mut inner: Stack, slot: GuardSlot) -> Stack {
    Stack::new(service_fn(move |request: Request<Body>| {
        let guard = slot.read().clone();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let refusal = guard.as_ref().and_then(|guard| guard.refuse(&method, &uri));
        let sending = refusal.is_none().then(|| inner.call(request));
        async move {
            let Some(sending) = sending else { return Ok(forbidden(&refusal.unwrap_or_default())) };
            let response = sending.await?;
            if let Some(guard) = guard
                && method == Method::PATCH
                && response.status() == StatusCode::CREATED
            {
                guard.created(&uri);
            }
            Ok(response)
        }
    }))
}

fn forbidden(message: &str) -> Response<ResponseBody> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Forbidden", "code": 403,
    });
    let mut response = Response::new(whole(status.to_string().into()));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
