//! Stops every byte of leader-only work once its term is over.
//!
//! Three guards, each for what the others cannot see. [`Socket`] checks its pass at each write, under TLS and under
//! every buffer of hyper and rustls: nothing that waits there can leave late. [`transport`] gives each term a pool of
//! its own, so that a request of the new term never picks up a connection of the old. [`guarded`] lets go of a
//! request as soon as its term ends, so that it neither waits for an answer nor travels in the next term.
//!
//! # Invariants
//! 1. No write passes a socket whose pass is void, by a close or by the clock alone.
//! 2. A socket dropped with a void pass is reset: what the kernel still holds of it is thrown away.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::{Connect, Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tower::{BoxError, Service, service_fn};

use crate::client::error::is_fenced;
use crate::key::{Fence, FencePass};

use super::{ResponseBody, Stack};

/// The write was stopped because this replica's term has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica no longer holds the Lease, so nothing may leave it")]
pub struct Fenced;

/// A TCP connection of one term.
pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    pass: FencePass,
    /// Wakes the connection's task when the term is closed. `None` once it has.
    ended: Option<BoxFuture<'static, ()>>,
}

/// The pool of the latest term that sent anything.
struct TermPool<C> {
    pass: FencePass,
    pool: Pool<C, Body>,
}

// === impl Fenced ===

impl From<Fenced> for io::Error {
    fn from(fenced: Fenced) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, fenced)
    }
}

// === impl Socket ===

impl Socket {
    pub(super) fn new(stream: TcpStream, pass: FencePass) -> Self {
        let ended: BoxFuture<'static, ()> = Box::pin(pass.clone().revoked());
        Self { stream: TokioIo::new(stream), pass, ended: Some(ended) }
    }

    /// Fails if the term was closed, and otherwise wakes this task when it is.
    fn check_term(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(ended) = &mut self.ended else { return Err(Fenced.into()) };
        if ended.as_mut().poll(cx).is_ready() {
            self.ended = None;
            return Err(Fenced.into());
        }
        Ok(())
    }

    /// Fails if nothing may be written now. The clock is asked each time: an expired fence wakes nobody.
    fn check_write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.check_term(cx)?;
        if self.pass.admits() { Ok(()) } else { Err(Fenced.into()) }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // hyper reads from idle connections too, so this is where a closed term reaches them. A term that has only
        // expired may still read the answers to what it sent in time.
        self.check_term(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check_write(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_write(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An orderly end would let the kernel deliver what it still holds.
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

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.pass.admits()
            && let Err(error) = self.stream.inner().set_zero_linger()
        {
            tracing::warn!(%error, "a connection of an ended term could not be reset, only closed");
        }
    }
}

// === impl TermPool ===

impl<C: Connect + Clone> TermPool<C> {
    fn new(pass: FencePass, connector: &C) -> Self {
        Self { pass, pool: pool(connector.clone()) }
    }

    /// Returns the pool of the term of a new pass.
    fn at(&mut self, pass: FencePass, connector: &C) -> Result<Pool<C, Body>, Fenced> {
        if !pass.admits() {
            return Err(Fenced);
        }
        // Two passes of one fence that both admit are of one term.
        if !self.pass.admits() {
            *self = Self::new(pass, connector);
        }
        Ok(self.pool.clone())
    }
}

/// Makes a service, which is always ready, that sends over connections of `connector`, which must take its passes from
/// the same fence.
pub(super) fn transport<C>(
    connector: C,
    fence: Fence,
) -> impl Service<Request<Body>, Response = Response<ResponseBody>, Error = BoxError, Future: Send> + Clone
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let latest = Arc::new(Mutex::new(TermPool::new(fence.pass(), &connector)));
    service_fn(move |request: Request<Body>| {
        let pool = latest.lock().at(fence.pass(), &connector);
        async move {
            let response = pool?.request(request).await?;
            Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
    })
}

fn pool<C: Connect + Clone>(connector: C) -> Pool<C, Body> {
    Pool::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .retry_canceled_requests(false)
        .build(connector)
}

/// Gives up a request when the term it was made in ends.
///
/// A request is made in the term in which it leaves the buffer inside kube's client, a task switch after its caller
/// sent it. That one of an old term is not sent in the next is therefore also the campaign's part: it begins only once
/// the work of the old term has ended.
pub(super) fn guarded(mut inner: Stack, fence: Fence) -> Stack {
    Stack::new(service_fn(move |request| {
        let pass = fence.pass();
        let sending = pass.admits().then(|| inner.call(request));
        async move {
            let Some(sending) = sending else { return Err(Fenced.into()) };
            tokio::select! {
                // The end of the term first: the other branch could hand the request to a connection of the next.
                biased;
                () = pass.clone().revoked() => Err(Fenced.into()),
                // A proxy's tunnel may hide what stopped it, so the pass is asked as well.
                sent = sending => sent.map_err(|error| {
                    if is_fenced(&*error) || !pass.admits() { Fenced.into() } else { error }
                }),
            }
        }
    }))
}
