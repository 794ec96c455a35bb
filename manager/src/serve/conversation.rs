//! What is said on one connection.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::places::Place;
use super::taken::Taken;
use super::{Handler, Limits, body};

/// Requests of one peer and their answers.
#[derive(Clone)]
pub(super) struct Conversation {
    pub(super) limits: Limits,
    pub(super) handler: Handler,
    pub(super) place: Arc<Place>,
}

// === impl Conversation ===

impl Conversation {
    /// Answers requests until the peer has no more, or until `ending` and what was begun then.
    pub(super) async fn hold(self, stream: impl AsyncRead + AsyncWrite + Unpin, ending: &CancellationToken) {
        let limits = self.limits;
        let service = service_fn(move |request| self.clone().answer(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_bytes.max(8 * 1024))
            // `nc` and shell scripts close their sending side first and still want the answer.
            .half_close(true)
            .serve_connection(TokioIo::new(Taken::within(limits.answer_timeout, stream)), service);
        let mut connection = pin!(connection);
        // Biased: a connection that is done is done, whatever else is due.
        let told = tokio::select! {
            biased;
            ended = connection.as_mut() => return log_end(ended),
            () = ending.cancelled() => "stopping",
            () = sleep(limits.connection_age) => "too old",
        };
        connection.as_mut().graceful_shutdown();
        match timeout(limits.grace, connection).await {
            Ok(ended) => log_end(ended),
            Err(_late) => {
                tracing::debug!(told, "dropped a connection whose reader did not take the answer");
            }
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let Self { limits, handler, place } = self;
        let request = match body::read(request, &limits).await {
            Ok(request) => request,
            Err(refusal) => return Ok(refusal.map(Full::new)),
        };
        let _answering = place.answering();
        let answered = AssertUnwindSafe(async move { handler(request).await }).catch_unwind().await;
        let response = answered.unwrap_or_else(|_panic| {
            let mut response =
                Response::new(Bytes::from_static(b"internal server error: the handler panicked\n"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        });
        Ok(response.map(Full::new))
    }
}

/// A peer that goes away, or sends what is not HTTP, is its own affair: a port scanner must not fill the log.
fn log_end(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::trace!(%error, "connection ended early");
    }
}
