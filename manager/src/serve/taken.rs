//! A stream whose peer takes in time what it is sent.
//!
//! Without a limit, who asks for a long answer and does not read it holds the answer in memory for as long as it likes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Fails with `TimedOut` when what is written has not been taken whole within a time, counted from when the peer first
/// let it wait. Progress does not prolong it: a byte a second is no progress worth a connection.
pub(super) struct Taken<IO> {
    io: IO,
    limit: Duration,
    /// Runs while something that was written has not been flushed.
    late: Option<Pin<Box<Sleep>>>,
}

// === impl Taken ===

impl<IO> Taken<IO> {
    pub(super) fn within(limit: Duration, io: IO) -> Self {
        Self { io, limit, late: None }
    }

    fn in_time<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            let limit = self.limit;
            let late = self.late.get_or_insert_with(|| Box::pin(sleep(limit)));
            ready!(late.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Taken<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Taken<IO> {
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
        self.late = None;
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(cx);
        self.in_time(polled, cx)
    }
}

#[cfg(test)]
mod tests;
