//! Opens TCP connections that detect a dead peer.
//!
//! Used under TLS in every stack. Keepalive detects after 45 seconds that the peer of an idle connection is
//! gone without closing it (a node that lost power, a load balancer that dropped the flow). Keepalive does
//! not cover unacknowledged data, which the kernel would retransmit for a quarter of an hour; on Linux
//! `TCP_USER_TIMEOUT` limits that to 45 seconds as well.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tower::service_fn;

use crate::key::Fence;
use crate::util::os::KeepAlive;

use super::Connector;
use super::fenced::FencedIo;
use super::metrics::RequestMetrics;

/// TCP keepalive settings: a dead peer is detected after 45 seconds in total.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle: Duration::from_secs(15), interval: Duration::from_secs(10), probes: 3 };

/// Makes a connector that opens a TCP connection to the host and port of a URI.
///
/// Each connection takes a pass of `fence` before it is opened. `timeout` is divided equally among the
/// addresses of the host.
pub(super) fn connector(fence: Fence, timeout: Duration, metrics: RequestMetrics) -> Connector<FencedIo> {
    Connector::new(service_fn(move |target: Uri| {
        // The pass is taken before the first await: a connection that is being opened when a term ends never
        // serves the next term.
        let (pass, metrics) = (fence.pass(), metrics.clone());
        async move { Ok(FencedIo::new(connect(&target, timeout, &metrics).await?, pass)) }
    }))
}

async fn connect(target: &Uri, timeout: Duration, metrics: &RequestMetrics) -> io::Result<TcpStream> {
    let (host, port) = host_and_port(target)?;
    let start = Instant::now();
    let found = lookup_host((host, port)).await;
    // For an IP address no DNS request is sent.
    if host.parse::<IpAddr>().is_err() {
        let labels = [("host", host.to_owned())];
        metrics.lookups.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    }
    let addresses: Vec<SocketAddr> = found?.collect();
    let share = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in addresses {
        last = match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                KEEP_ALIVE.set(&stream)?;
                return Ok(stream);
            }
            Ok(Err(error)) => io::Error::new(error.kind(), format!("{address}: {error}")),
            Err(_) => {
                io::Error::new(io::ErrorKind::TimedOut, format!("{address}: no answer within {share:?}"))
            }
        };
    }
    Err(last)
}

pub(super) fn host_and_port(target: &Uri) -> io::Result<(&str, u16)> {
    let host = target.host().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{target} names no host to connect to"))
    })?;
    // The resolver needs an IPv6 address without the brackets of a URI.
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port_of(target)))
}

/// Returns the port of a URI: by default 80 for `http` and 443 for any other scheme.
pub(in crate::client) fn port_of(target: &Uri) -> u16 {
    target.port_u16().unwrap_or(if target.scheme_str() == Some("http") { 80 } else { 443 })
}

#[cfg(test)]
mod tests;
