//! Connections through a proxy: HTTP CONNECT, in TLS where its address is `https`, and SOCKS5.
//!
//! The tunnel is made inside the fenced socket and under the deadline for opening a connection, so both hold for it
//! as for a direct connection. A name in the server's address is resolved by the proxy.

use std::io;

use futures_util::future;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use tower::{BoxError, Service, service_fn};

use super::ConnectError;
use super::tcp::host_and_port;

/// A proxy for the connections to one server.
#[derive(Clone)]
pub(super) struct Proxy {
    /// Where it is: `https` if it wants TLS, otherwise `http`.
    address: Uri,
    protocol: Protocol,
}

#[derive(Clone)]
enum Protocol {
    /// With `Proxy-Authorization`.
    Connect(Option<HeaderValue>),
    /// With user and password.
    Socks(Option<(String, String)>),
}

#[derive(Debug, thiserror::Error)]
#[error("proxy {address} gave no connection")]
struct ThroughProxy {
    address: Uri,
    source: BoxError,
}

// === impl Proxy ===

impl Proxy {
    /// Reads a `proxy-url`. The error does not quote it, since it may hold a password.
    pub(super) fn new(url: &Uri, server: &Uri) -> Result<Self, ConnectError> {
        // Its parser also decodes user and password; without a list of exceptions it intercepts every host.
        let anywhere = Uri::from_static("http://server");
        let read = Matcher::builder().all(url.to_string()).build().intercept(&anywhere);
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

/// Makes a service, which is always ready, that connects to a server, through the proxy if there is one.
///
/// `hop` connects to a URI: with TLS if it is `https`, and without if it is `http`.
pub(super) fn proxied<C>(
    mut hop: C,
    proxy: Option<Proxy>,
) -> impl Service<Uri, Response = C::Response, Error = BoxError, Future: Send + 'static> + Clone + Send + Sync
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
{
    service_fn(move |target: Uri| {
        let proxy = proxy.clone();
        let opening = plain(&target).map(|server| {
            let first = proxy.as_ref().map_or(&server, |proxy| &proxy.address).clone();
            (hop.call(first), server)
        });
        async move {
            let (opening, server) = opening?;
            let Some(Proxy { address, protocol }) = proxy else { return opening.await };
            let tunnel = async { tunnel(opening.await?, server, protocol).await };
            tunnel.await.map_err(|source| ThroughProxy { address, source }.into())
        }
    })
}

/// Asks the proxy at the other end of a stream for a connection to the server.
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

/// Returns the server of a URI with its port and without TLS, which is for the caller of the connector.
fn plain(target: &Uri) -> io::Result<Uri> {
    let (_, port) = host_and_port(target)?;
    let host = target.host().unwrap_or_default();
    format!("http://{host}:{port}").parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
