//! Connections through a proxy: HTTP CONNECT, in TLS where its address is `https`, and SOCKS5.
//!
//! The tunnel runs inside [`FencedIo`](super::fenced::FencedIo) and is opened within the connect timeout,
//! like a direct connection. The proxy resolves the name in the server's address.

use std::io;

use futures_util::future;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use tower::{BoxError, Service as _, service_fn};

use super::tcp::host_and_port;
use super::{ConnectError, Connector};

/// A proxy for the connections to one API server.
#[derive(Clone)]
pub(super) struct Proxy {
    /// The URI of the proxy: `https` if the connection to the proxy uses TLS, otherwise `http`.
    address: Uri,
    protocol: Protocol,
}

#[derive(Clone)]
enum Protocol {
    /// The proxy opens tunnels by HTTP CONNECT; the value is that of the header `Proxy-Authorization`, if it
    /// is sent.
    Connect(Option<HeaderValue>),
    /// The proxy opens tunnels by SOCKS5; the values are user and password, if it needs them.
    Socks(Option<(String, String)>),
}

#[derive(Debug, thiserror::Error)]
#[error("no connection through proxy {address}")]
struct ProxyError {
    address: Uri,
    source: BoxError,
}

// === impl Proxy ===

impl Proxy {
    /// Reads the `proxy-url` for the API server `server`. The error does not quote the URL, which may contain
    /// a password.
    pub(super) fn new(url: &Uri, server: &Uri) -> Result<Self, ConnectError> {
        // The matcher's parser also decodes user and password. Without a list of exceptions it intercepts any
        // host.
        let any_host = Uri::from_static("http://server");
        let read = Matcher::builder().all(url.to_string()).build().intercept(&any_host);
        let proxy = read.and_then(|read| {
            let (scheme, port, protocol) = match read.uri().scheme_str()? {
                "http" => ("http", 80, Protocol::Connect(read.basic_auth().cloned())),
                "https" => ("https", 443, Protocol::Connect(read.basic_auth().cloned())),
                "socks5" | "socks5h" => {
                    let user = read.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned()));
                    ("http", 1080, Protocol::Socks(user))
                }
                _ => return None,
            };
            let (host, port) = (read.uri().host()?, read.uri().port_u16().unwrap_or(port));
            Some(Self { address: format!("{scheme}://{host}:{port}").parse().ok()?, protocol })
        });
        proxy.ok_or_else(|| ConnectError::Proxy { server: Box::new(server.clone()) })
    }
}

/// Makes a connector to a server, through the proxy if there is one.
///
/// `hop` connects to a URI: with TLS for `https`, without TLS for `http`.
pub(super) fn proxied<S>(mut hop: Connector<S>, proxy: Option<Proxy>) -> Connector<S>
where
    S: Read + Write + Send + Unpin + 'static,
{
    Connector::new(service_fn(move |target: Uri| {
        let proxy = proxy.clone();
        let opening = without_tls(&target).map(|server| {
            let first = proxy.as_ref().map_or(&server, |proxy| &proxy.address).clone();
            (hop.call(first), server)
        });
        async move {
            let (opening, server) = opening?;
            let Some(Proxy { address, protocol }) = proxy else { return opening.await };
            let tunnel = async { tunnel(opening.await?, server, protocol).await };
            tunnel.await.map_err(|source| ProxyError { address, source }.into())
        }
    }))
}

/// Opens a tunnel to the server through the proxy at the other end of a stream.
async fn tunnel<S>(stream: S, server: Uri, protocol: Protocol) -> Result<S, BoxError>
where
    S: Read + Write + Send + Unpin + 'static,
{
    let mut stream = Some(stream);
    let once = service_fn(move |_| {
        future::ready(stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    // Placeholder: the stream is already connected to the proxy.
    let proxy = Uri::from_static("http://proxy");
    match protocol {
        Protocol::Connect(None) => Ok(Tunnel::new(proxy, once).call(server).await?),
        Protocol::Connect(Some(auth)) => Ok(Tunnel::new(proxy, once).with_auth(auth).call(server).await?),
        Protocol::Socks(None) => Ok(SocksV5::new(proxy, once).call(server).await?),
        Protocol::Socks(Some((user, password))) => {
            Ok(SocksV5::new(proxy, once).with_auth(user, password).call(server).await?)
        }
    }
}

/// Returns the URI of a server as `http://HOST:PORT`. The scheme is `http` because TLS to the server is added
/// by the caller of the connector.
fn without_tls(target: &Uri) -> io::Result<Uri> {
    let (_, port) = host_and_port(target)?;
    let host = target.host().unwrap_or_default();
    format!("http://{host}:{port}").parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
