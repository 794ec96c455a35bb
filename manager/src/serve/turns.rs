//! Answers that may take their time, away from the runtime that serves.
//!
//! The runtime is the control thread's: an answer that blocked it would stop the elector. So users' code (checks,
//! collectors, the `Display` of keys) runs on blocking threads, a bounded number at once.

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

/// How long an answer may take, its wait for a turn included: longer than any prober waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// A turn that was taken; it is over when this goes.
pub(crate) type Turn = Result<OwnedSemaphorePermit, AcquireError>;

/// Turns of answers that may block. Cheap to clone; all clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    slots: Arc<Semaphore>,
    /// Whether a turn lasts until its body has left this process or was given up.
    until_read: bool,
}

/// A body that keeps its turn.
struct Held {
    body: Bytes,
    _turn: Turn,
}

// === impl Turns ===

impl Turns {
    /// Has at most so many answers made at the same time.
    pub(crate) fn new(at_once: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(at_once)), until_read: false }
    }

    /// Has at most so many bodies in memory as well, however many peers ask for long answers and read them slowly.
    pub(crate) fn until_read(at_once: usize) -> Self {
        Self { until_read: true, ..Self::new(at_once) }
    }

    /// Makes an answer on a blocking thread. Without one within ten seconds it is a 503, while a call that has begun
    /// keeps its turn until it ends. A panic answers 500.
    pub(crate) async fn answer(self, answer: impl FnOnce() -> Response + Send + 'static) -> Response {
        let answered = timeout(PATIENCE, async {
            // An error only if the semaphore is closed, which never happens.
            let turn = self.slots.acquire_owned().await;
            spawn_blocking(move || if self.until_read { hold(answer(), turn) } else { answer() }).await
        });
        match answered.await {
            Ok(Ok(response)) => response,
            Ok(Err(_panic)) => (StatusCode::INTERNAL_SERVER_ERROR, "the answer panicked\n").into_response(),
            Err(_elapsed) => (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response(),
        }
    }

    /// Answers a request like [`answer`](Self::answer), by handlers that may block and have nothing to await.
    pub(crate) async fn run(self, request: Request, next: Next) -> Response {
        self.answer(move || next.run(request).now_or_never().unwrap_or_else(unfinished)).await
    }
}

/// Has bytes keep a turn until they have left this process, or were given up.
pub(crate) fn held(body: Bytes, turn: Turn) -> Bytes {
    Bytes::from_owner(Held { body, _turn: turn })
}

/// Has the body keep the turn.
fn hold(response: Response, turn: Turn) -> Response {
    let (head, body) = response.into_parts();
    match to_bytes(body, usize::MAX).now_or_never() {
        Some(Ok(body)) => Response::from_parts(head, held(body, turn).into()),
        Some(Err(_)) | None => unfinished(),
    }
}

/// The answer of a handler that is not done although it has nothing to await: a bug.
fn unfinished() -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, "the answer is not complete\n").into_response()
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests;
