//! Opens TCP connections that notice a dead peer.
//!
//! Stands under TLS in every stack. A peer that vanished without a word (a node that lost power, a load balancer
//! that forgot the flow) is found after 45 seconds on an idle connection by keepalive, and on Linux as fast on a
//! busy one by `TCP_USER_TIMEOUT`, which keepalive does not cover: while data is unacknowledged the kernel would
//! retransmit for a quarter of an hour.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tower::{Service, service_fn};

use crate::key::Fence;
use crate::util::os::KeepAlive;

use super::fenced::Socket;
use super::metrics::RequestMetrics;

/// 45 seconds in all.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(15), interval: Duration::from_secs(10), probes: 3 };

/// Makes a service, which is always ready, that connects to host and port of a URI.
///
/// Each connection takes a pass of `fence` before it is opened. `timeout` is for all addresses of a name together; each
/// gets an equal share of it.
pub(super) fn connector(
    fence: Fence,
    timeout: Duration,
    metrics: RequestMetrics,
) -> impl Service<Uri, Response = Socket, Error = io::Error, Future: Send + Unpin> + Clone + Send + Sync {
    service_fn(move |target: Uri| {
        // Taken before the first await: a connection that was being opened when a term ended never serves the next.
        let pass = fence.pass();
        let metrics = metrics.clone();
        Box::pin(async move {
            let stream = connect(&target, timeout, &metrics).await?;
            Ok(Socket::new(stream, pass))
        })
    })
}

async fn connect(target: &Uri, timeout: Duration, metrics: &RequestMetrics) -> io::Result<TcpStream> {
    let (host, port) = host_and_port(target)?;
    let asked = Instant::now();
    let found = lookup_host((host, port)).await;
    // An address is not looked up.
    if host.parse::<IpAddr>().is_err() {
        let labels = [("host", host.to_owned())];
        metrics.lookups.get_or_create(&labels).observe(asked.elapsed().as_secs_f64());
    }
    let addresses: Vec<SocketAddr> = found?.collect();
    let share = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                KEEP_ALIVE.set(&stream)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = named(address, &error),
            Err(_) => {
                let silence = io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {share:?}"));
                last = named(address, &silence);
            }
        }
    }
    Err(last)
}

pub(super) fn host_and_port(target: &Uri) -> io::Result<(&str, u16)> {
    let host = target.host().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{target} names no host to connect to"))
    })?;
    let port = target.port_u16().unwrap_or(if target.scheme_str() == Some("http") { 80 } else { 443 });
    // A URI writes an IPv6 address in brackets; the resolver wants it without.
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
}

fn named(address: SocketAddr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{address}: {error}"))
}

#[cfg(test)]
mod tests;
