//! Stops every byte of leader-only work once its term of leadership is over.
//!
//! There are three guards. [`FencedIo`] checks its pass at each write, under TLS and under every buffer of
//! hyper and rustls, so that no buffered byte leaves late. [`transport`] gives each term its own pool, so
//! that a request of the new term never uses a connection of the old one. [`guarded`] drops a request as soon
//! as its term ends, so that it neither waits for a response nor is sent in the next term.
//!
//! # Invariants
//! 1. No byte is written to a socket whose pass no longer admits writes, because the fence was closed or has
//!    expired.
//! 2. A socket dropped with such a pass is reset: the kernel discards the bytes that it has not sent yet.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Request;
use http_body_util::BodyExt as _;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::{Connect, Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tower::{BoxError, Service as _, service_fn};

use crate::client::error::is_fenced;
use crate::key::{Fence, FencePass};

use super::Stack;

/// The request was stopped because this replica's term of leadership has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica no longer holds the Lease, so the request was stopped")]
pub struct Fenced;

/// A TCP connection that fails every read and write once the fence of its leadership term is closed.
pub(super) struct FencedIo {
    stream: TokioIo<TcpStream>,
    pass: FencePass,
    /// Wakes the connection's task when the fence is closed; `None` afterwards.
    revoked: Option<BoxFuture<'static, ()>>,
}

// === impl Fenced ===

impl From<Fenced> for io::Error {
    fn from(fenced: Fenced) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, fenced)
    }
}

// === impl FencedIo ===

impl FencedIo {
    pub(super) fn new(stream: TcpStream, pass: FencePass) -> Self {
        let revoked: BoxFuture<'static, ()> = Box::pin(pass.clone().revoked());
        Self { stream: TokioIo::new(stream), pass, revoked: Some(revoked) }
    }

    /// Fails if the connection's term of leadership has ended; otherwise wakes this task when it ends.
    fn check_term(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(revoked) = &mut self.revoked else { return Err(Fenced.into()) };
        if revoked.as_mut().poll(cx).is_ready() {
            self.revoked = None;
            return Err(Fenced.into());
        }
        Ok(())
    }

    /// Fails if the connection may not write now, because its term of leadership has ended or the fence has
    /// expired. Compares the time at each call, because an expiring fence wakes no task.
    fn check_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.check_term(cx)?;
        if self.pass.admits() { Ok(()) } else { Err(Fenced.into()) }
    }
}

impl Read for FencedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper reads from idle connections too, so this check ends them when the fence is closed. After a
        // mere expiry the responses to requests that were sent in time may still be read.
        self.check_term(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for FencedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check_write(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_write(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // After an orderly shutdown the kernel would still send its buffered bytes.
        self.check_write(cx)?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_write(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

impl Connection for FencedIo {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Drop for FencedIo {
    fn drop(&mut self) {
        if !self.pass.admits()
            && let Err(error) = self.stream.inner().set_zero_linger()
        {
            tracing::warn!(%error, "a connection of an ended term could not be reset and was closed instead");
        }
    }
}

/// Makes a stack that sends requests over connections of `connector`, with a new connection pool for each
/// term of the fence. The connector must take its passes from the same fence.
pub(super) fn transport(connector: impl Connect + Clone + Send + Sync + 'static, fence: Fence) -> Stack {
    // The pool of the latest term that sent a request.
    let latest = Arc::new(Mutex::new((fence.pass(), pool(connector.clone()))));
    Stack::new(service_fn(move |request: Request<Body>| {
        let mut latest = latest.lock();
        let pass = fence.pass();
        let sending = pass.admits().then(|| {
            // Two passes of one fence that both admit writes are of the same term.
            if !latest.0.admits() {
                *latest = (pass, pool(connector.clone()));
            }
            latest.1.request(request)
        });
        async move {
            let response = sending.ok_or(Fenced)?.await?;
            Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
    }))
}

fn pool<C: Connect + Clone>(connector: C) -> Pool<C, Body> {
    Pool::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .retry_canceled_requests(false)
        .build(connector)
}

/// Makes a stack that drops a request and fails it with [`Fenced`] when its term of leadership ends.
///
/// The term of a request is the one in which it leaves the buffer inside kube's client, a task switch after
/// its caller sent it. A request of an old term is therefore kept out of the next term also by the election,
/// which campaigns again only after the work of the old term has ended.
pub(super) fn guarded(mut inner: Stack, fence: Fence) -> Stack {
    Stack::new(service_fn(move |request| {
        let pass = fence.pass();
        let sending = pass.admits().then(|| inner.call(request));
        async move {
            let Some(sending) = sending else { return Err(Fenced.into()) };
            tokio::select! {
                // The end of the term comes first: the other branch could use a connection of the next term.
                biased;
                () = pass.clone().revoked() => Err(Fenced.into()),
                // A proxy's tunnel may hide the cause of its error, so the pass is checked as well.
                sent = sending => sent.map_err(|error| {
                    if is_fenced(&*error) || !pass.admits() { Fenced.into() } else { error }
                }),
            }
        }
    }))
}
