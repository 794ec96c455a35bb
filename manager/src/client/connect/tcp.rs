//! Opens TCP connections that notice a dead peer.
//!
//! Stands under TLS in every stack. A peer that vanished without a word (a node that lost power, a load balancer
//! that forgot the flow) is found after 45 seconds on an idle connection by keepalive, and as fast on a busy one by
//! `TCP_USER_TIMEOUT`, which keepalive does not cover: while data is unacknowledged the kernel would retransmit for
//! a quarter of an hour.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use rustix::net::sockopt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use tower::Service;

use crate::key::Fence;

use super::fenced::Socket;
use super::metrics::RequestMetrics;

/// Silence after which the first probe is sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Probes without an answer that end the connection.
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent bytes may stay unacknowledged: as long as keepalive takes, 15 s + 3 × 10 s.
const USER_TIMEOUT_MILLIS: u32 = 45_000;

/// Connects to host and port of a URI.
#[derive(Clone, Debug)]
pub(super) struct TcpConnector {
    /// Each connection takes a pass of it before it is opened; `None` opens connections that nothing stops.
    fence: Option<Fence>,
    /// For all addresses of a name together; each gets an equal share of it.
    timeout: Duration,
    metrics: RequestMetrics,
}

// === impl TcpConnector ===

impl TcpConnector {
    pub(super) fn new(fence: Option<Fence>, timeout: Duration, metrics: RequestMetrics) -> Self {
        Self { fence, timeout, metrics }
    }
}

impl Service<Uri> for TcpConnector {
    type Response = Socket;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Socket>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        // Taken before the first await: a connection that was being opened when a term ended never serves the next.
        let pass = self.fence.as_ref().map(Fence::pass);
        let (timeout, metrics) = (self.timeout, self.metrics.clone());
        Box::pin(async move {
            let stream = connect(&target, timeout, &metrics).await?;
            Ok(Socket::new(stream, pass))
        })
    }
}

async fn connect(target: &Uri, timeout: Duration, metrics: &RequestMetrics) -> io::Result<TcpStream> {
    let (host, port) = host_and_port(target)?;
    let asked = Instant::now();
    let found = lookup_host((host, port)).await;
    // An address is not looked up.
    if host.parse::<IpAddr>().is_err() {
        metrics.looked_up(host, asked.elapsed());
    }
    let addresses: Vec<SocketAddr> = found?.collect();
    let share = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                prepare(&stream)?;
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

fn prepare(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT_MILLIS)?;
    Ok(())
}

fn host_and_port(target: &Uri) -> io::Result<(&str, u16)> {
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
mod tests {
    use super::*;
    use crate::metrics::{Format, Registry};

    fn metrics() -> RequestMetrics {
        RequestMetrics::register(&Registry::new())
    }

    #[test]
    fn host_and_port_follow_scheme_and_brackets() {
        let parts =
            |uri: &'static str| host_and_port(&Uri::from_static(uri)).ok().map(|(h, p)| (h.to_owned(), p));
        assert_eq!(parts("https://[::1]:6443"), Some(("::1".to_owned(), 6443)));
        assert_eq!(parts("https://example"), Some(("example".to_owned(), 443)));
        assert_eq!(parts("http://127.0.0.1"), Some(("127.0.0.1".to_owned(), 80)));
        assert_eq!(parts("/api"), None);
    }

    #[tokio::test]
    async fn every_socket_notices_a_dead_peer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let stream = connect(&uri, Duration::from_secs(5), &metrics()).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEPALIVE_PROBES);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), USER_TIMEOUT_MILLIS);
    }

    #[tokio::test]
    async fn the_look_up_of_a_name_is_timed_and_an_address_is_not_looked_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let registry = Registry::new();
        let metrics = RequestMetrics::register(&registry);
        let count = r#"rest_client_dns_resolution_duration_seconds_count{host="localhost"} 1"#;
        for (host, looked_up) in [("127.0.0.1", false), ("localhost", true)] {
            let uri: Uri = format!("http://{host}:{port}").parse().unwrap();
            drop(connect(&uri, Duration::from_secs(5), &metrics).await.unwrap());
            let text = registry.encode(Format::Text).unwrap();
            assert_eq!(text.contains(count), looked_up, "{host}: {text}");
            assert_eq!(text.contains("dns_resolution"), looked_up, "{host}: {text}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_address() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let uri: Uri = format!("http://{address}").parse().unwrap();
        let error = connect(&uri, Duration::from_secs(5), &metrics()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().starts_with(&address.to_string()), "{error}");
    }
}
