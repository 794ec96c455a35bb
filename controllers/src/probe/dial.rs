//! The seam through which the engine opens connections, and its real implementation.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What [`Dial::dial`] returns.
pub type DialFuture<'a> = BoxFuture<'a, io::Result<Connection>>;

/// Opens TCP connections. Everything above them, be it TLS or HTTP, is spoken over what this gives and opens none.
pub trait Dial: Send + Sync + 'static {
    /// Connects to exactly this address. Dropping the future gives the attempt up.
    fn dial(&self, address: SocketAddr) -> DialFuture<'_>;
}

/// Bytes both ways. Dropping it closes the connection.
pub struct Connection(pub Box<dyn Stream>);

/// What a [`Connection`] may be made of.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

/// Dials with Tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioDial;

// === impl Connection ===

impl Connection {
    /// Takes a stream, such as a TCP socket or one half of a pipe in memory.
    pub fn new(stream: impl Stream) -> Self {
        Self(Box::new(stream))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

// === impl TokioDial ===

impl Dial for TokioDial {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        Box::pin(async move { TcpStream::connect(address).await.map(Connection::new) })
    }
}
