//! The seam through which the engine opens connections, and its real implementation.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The future of [`Dial::dial`], which returns the open connection.
pub type DialFuture<'a> = BoxFuture<'a, io::Result<Connection>>;

/// Opens TCP connections. The protocols above, such as TLS and HTTP, use the connection and open none.
pub trait Dial: Send + Sync + 'static {
    /// Opens a TCP connection to exactly this address. Dropping the future cancels the attempt.
    fn dial(&self, address: SocketAddr) -> DialFuture<'_>;
}

/// Maximum number of bytes that a probe reads from one connection; up to one buffer more. Several times the
/// size of a chain of certificates with the longest head and body that a check reads.
///
/// One bound for all protocols: in each of them a hostile server can send data without end before its
/// answer, such as informational responses, pings and empty frames.
const MAX_READ: usize = 256 * 1024;

/// A network connection of a probe, with a bound on the bytes read from it. Dropping it closes the
/// connection.
#[derive(derive_more::Debug)]
#[debug("Connection {{ .. }}")]
pub struct Connection {
    stream: Box<dyn Stream>,
    /// The number of bytes that may still be read from the connection.
    left: usize,
}

/// A stream of bytes that a [`Connection`] can be made from.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

/// Opens real TCP connections with Tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioDial;

// === impl Connection ===

impl Connection {
    /// Makes the connection of a probe to its target from a stream, such as a TCP socket or a pipe in memory.
    pub fn new(stream: impl Stream) -> Self {
        Self { stream: Box::new(stream), left: MAX_READ }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // An error and not the end of the stream: a truncated answer must not look complete.
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than a probe reads")));
        }
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        self.left = self.left.saturating_sub(buf.filled().len() - before);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

// === impl TokioDial ===

impl Dial for TokioDial {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        Box::pin(async move { TcpStream::connect(address).await.map(Connection::new) })
    }
}
