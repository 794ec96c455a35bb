//! One connection: reads requests, calls the router and writes its answers.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::peers::Peer;
use super::write_timeout::WriteTimeout;
use super::{Limits, Server};

/// Extension of an HTTP request: the IP address of the peer that sent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) server: Server,
    pub(super) peer: Arc<Peer>,
}

// === impl Connection ===

impl Connection {
    /// Serves HTTP on the connection until the peer closes it, or until a stop or a limit ends it.
    pub(super) async fn serve(self, stream: TcpStream) {
        let Server { limits, tls, stop, .. } = self.server.clone();
        let Some(tls) = tls else { return self.serve_http(stream).await };
        let handshake = timeout(limits.header_timeout, tls.accept(stream));
        match stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => self.serve_http(stream).await,
            failed => tracing::trace!(?failed, "no TLS handshake"),
        }
    }

    pub(super) async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Server { limits, stop, .. } = self.server.clone();
        let service = service_fn(move |request| self.clone().answer(request).map(Ok::<_, Infallible>));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(limits.header_bytes.max(8 * 1024))
            // `nc` and shell scripts close their sending side first and still expect the answer.
            .half_close(true)
            .serve_connection(TokioIo::new(WriteTimeout::new(limits.answer_timeout, stream)), service);
        let mut connection = pin!(connection);
        // Biased: a connection that has ended needs no graceful shutdown. Broken connections and peers that
        // do not speak HTTP are not logged, so that a port scanner cannot fill the log.
        tokio::select! {
            biased;
            _ended = connection.as_mut() => return,
            () = stop.cancelled() => {}
            () = sleep(limits.connection_age) => {}
        }
        connection.as_mut().graceful_shutdown();
        if timeout(limits.grace, connection).await.is_err() {
            tracing::debug!("dropped a connection whose peer did not read the answer in time");
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Response {
        let mut request = match read_body(request, &self.server.limits).await {
            Ok(request) => request,
            Err((status, text)) => {
                // The rest of the body is not read, so the connection must close.
                let headers = [(CONNECTION, "close"), (CONTENT_TYPE, "text/plain; charset=utf-8")];
                return (status, headers, text).into_response();
            }
        };
        request.extensions_mut().insert(PeerAddress(self.peer.address));
        self.peer.answering();
        let answer = self.server.router.oneshot(request).map(|Ok(response)| response);
        let answered = AssertUnwindSafe(answer).catch_unwind().await;
        self.peer.wait();
        answered.unwrap_or_else(|_panic| {
            let text = "internal server error: the handler panicked\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        })
    }
}

/// Reads the whole body of a request within the limits, or returns HTTP status and text of a refusal.
async fn read_body(
    request: Request<Incoming>,
    limits: &Limits,
) -> Result<Request<Body>, (StatusCode, String)> {
    let allowed = limits.body_bytes;
    let length = request.body().size_hint().exact();
    let length = length.ok_or_else(|| (StatusCode::LENGTH_REQUIRED, "send a Content-Length\n".to_owned()))?;
    if !usize::try_from(length).is_ok_and(|length| length <= allowed) {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {allowed} bytes\n")));
    }
    let (head, body) = request.into_parts();
    // The parser ends the body at its stated length, which bounds the memory.
    match timeout(limits.body_timeout, body.collect()).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.to_bytes().into())),
        Ok(Err(_broken)) => Err((StatusCode::BAD_REQUEST, "the body ended early\n".to_owned())),
        Err(_elapsed) => {
            let text = format!("the body did not arrive within {:?}\n", limits.body_timeout);
            Err((StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}
