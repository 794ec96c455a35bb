//! HTTPS requests to webhooks. Errors have the texts of Go's client.
//!
//! One connection per request: webhooks are called rarely, and a kept connection would outlive its server.

#[cfg(feature = "http")]
mod https;
#[cfg(feature = "http")]
mod trust;

use std::time::Duration;

use bytes::Bytes;

#[cfg(feature = "http")]
use https::exchange;

/// The server of a webhook.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the connection reads all fields"))]
pub(crate) struct Server {
    /// The host to connect to: a name or an address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The name that the server's certificate must have.
    pub(crate) name: String,
    /// The authorities that may sign the certificate, in PEM. The authorities of this system count for
    /// nothing.
    pub(crate) authorities: Vec<u8>,
}

/// The response of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// The media type; empty without one.
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

/// Posts JSON to an authority's path. `authority` and `path` are those of the URL.
pub(crate) async fn post(
    server: &Server,
    authority: &str,
    path: &str,
    body: Vec<u8>,
    timeout: Duration,
) -> Result<Answer, String> {
    let late = |_| Err("context deadline exceeded".to_owned());
    tokio::time::timeout(timeout, exchange(server, authority, path, body)).await.unwrap_or_else(late)
}

/// Without the feature `http` no server is reachable.
#[cfg(not(feature = "http"))]
fn exchange(
    server: &Server,
    _authority: &str,
    _path: &str,
    _body: Vec<u8>,
) -> std::future::Ready<Result<Answer, String>> {
    let why = format!("dial tcp {}:{}: connect: network is unreachable", server.host, server.port);
    std::future::ready(Err(why))
}

#[cfg(feature = "http")]
#[cfg(test)]
pub(crate) mod tests;
