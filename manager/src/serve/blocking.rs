//! Runs handlers that may block on blocking threads, a bounded number at once.
//!
//! The server runs on the control thread: a handler that blocked it would also block the elector. Handlers
//! may block because they run users' code, such as checks, collectors and the `Display` of keys.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::StatusCode;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time limit of a handler's answer, including the wait for a slot: longer than any prober waits.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A slot for a handler in use, which is freed when this permit is dropped. The semaphore is never closed, so
/// the permit is never an error.
pub(crate) type Permit = Result<OwnedSemaphorePermit, AcquireError>;

/// A fixed number of slots for HTTP handlers that may block their thread. Clones share the slots.
#[derive(Clone, Debug)]
pub(crate) struct BlockingSlots {
    slots: Arc<Semaphore>,
    /// Whether a slot stays in use until the body of the response has been sent or dropped.
    until_sent: bool,
}

/// The body of a response that keeps its handler's slot in use.
struct PermitBody {
    body: Bytes,
    _permit: Permit,
}

// === impl BlockingSlots ===

impl BlockingSlots {
    /// Makes slots for this many HTTP handlers at once.
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(slots)), until_sent: false }
    }

    /// Makes slots for handlers that also bound the response bodies in memory: a slot stays in use until the
    /// peer has read the body.
    pub(crate) fn until_sent(slots: usize) -> Self {
        Self { until_sent: true, ..Self::new(slots) }
    }

    /// Runs a handler on a blocking thread and returns its answer: 503 after [`TIMEOUT`], 500 after a panic.
    /// A handler that exceeds the timeout keeps its slot until it ends.
    pub(crate) async fn answer(self, answer: impl FnOnce() -> Response + Send + 'static) -> Response {
        let answered = timeout(TIMEOUT, async {
            let permit = self.slots.acquire_owned().await;
            spawn_blocking(move || if self.until_sent { hold(answer(), permit) } else { answer() }).await
        });
        match answered.await {
            Ok(Ok(response)) => response,
            Ok(Err(_panic)) => (StatusCode::INTERNAL_SERVER_ERROR, "the handler panicked\n").into_response(),
            Err(_elapsed) => (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response(),
        }
    }

    /// Runs the next handler of a request, as middleware, in a slot and with the time limit of
    /// [`answer`](Self::answer). The handler may block but must not await.
    pub(crate) async fn run(self, request: Request, next: Next) -> Response {
        self.answer(move || next.run(request).now_or_never().unwrap_or_else(unfinished)).await
    }
}

/// Returns the body of a response as bytes that keep a handler's slot in use until they were sent or dropped.
pub(crate) fn keep_permit(body: Bytes, permit: Permit) -> Bytes {
    Bytes::from_owner(PermitBody { body, _permit: permit })
}

/// Returns the response with a body that keeps the handler's slot in use until it was sent or dropped.
fn hold(response: Response, permit: Permit) -> Response {
    let (head, body) = response.into_parts();
    match to_bytes(body, usize::MAX).now_or_never() {
        Some(Ok(body)) => Response::from_parts(head, keep_permit(body, permit).into()),
        Some(Err(_)) | None => unfinished(),
    }
}

/// Returns the answer 500 for a handler that awaits, which is a bug.
fn unfinished() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "the answer is not complete\n").into_response()
}

impl AsRef<[u8]> for PermitBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests;
