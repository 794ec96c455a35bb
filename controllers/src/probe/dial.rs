//! The two seams through which the engine touches the network, and their real implementations.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Most look-ups at one time. The resolver of the C library blocks a thread for as long as DNS is silent and cannot be
/// cancelled; the permit is given back only when that thread is done.
const MAX_LOOKUPS: usize = 16;

/// What [`Dial::dial`] returns.
pub type DialFuture<'a> = BoxFuture<'a, io::Result<()>>;
/// What [`Resolve::resolve`] returns.
pub type ResolveFuture<'a> = BoxFuture<'a, io::Result<Vec<IpAddr>>>;

/// Opens a TCP connection and closes it again.
pub trait Dial: Send + Sync + 'static {
    /// Connects to exactly this address. Dropping the future gives the attempt up.
    fn dial(&self, address: SocketAddr) -> DialFuture<'_>;
}

/// Looks a name up that is no Service.
pub trait Resolve: Send + Sync + 'static {
    /// Returns every address of the name.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a>;
}

/// Dials with Tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioDial;

/// Asks the operating system's resolver.
#[derive(Clone, Debug)]
pub struct TokioResolve {
    lookups: Arc<Semaphore>,
}

// === impl TokioDial ===

impl Dial for TokioDial {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        Box::pin(async move { TcpStream::connect(address).await.map(drop) })
    }
}

// === impl TokioResolve ===

impl Default for TokioResolve {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolve for TokioResolve {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        Box::pin(async move {
            let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
            // The dot keeps the search list of the manager's own Pod out: what is written is the whole name.
            let name = format!("{name}.");
            let lookup = move || {
                let _permit = permit;
                let found = (name.as_str(), 0).to_socket_addrs()?;
                Ok(found.map(|address| address.ip()).collect())
            };
            tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
        })
    }
}
