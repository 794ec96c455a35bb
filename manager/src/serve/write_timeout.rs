//! A stream with a time limit for the peer to read.
//!
//! Without the limit, a peer that requests a long answer and does not read it would keep the answer in memory
//! forever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream that fails writes with `TimedOut` if the written bytes are not flushed within `limit`, counted
/// from the first write that had to wait. A slow read does not extend the limit: a byte per second is not
/// worth a connection.
pub(super) struct WriteTimeout<IO> {
    io: IO,
    limit: Duration,
    /// Timer of the writes, which runs from the first write that had to wait until the next flush; otherwise
    /// `None`.
    deadline: Option<Pin<Box<Sleep>>>,
}

// === impl WriteTimeout ===

impl<IO> WriteTimeout<IO> {
    pub(super) fn new(limit: Duration, io: IO) -> Self {
        Self { io, limit, deadline: None }
    }

    fn in_time<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            let limit = self.limit;
            let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
            ready!(deadline.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for WriteTimeout<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.in_time(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.in_time(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(cx);
        let flushed = ready!(self.in_time(polled, cx));
        self.deadline = None;
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.in_time(polled, cx)
    }
}

#[cfg(test)]
mod tests;
