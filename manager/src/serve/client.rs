//! The client side: one request to the server of another replica, over a new connection.
//!
//! The certificate of a replica need not be signed by an authority: the client compares its digest with the
//! expected one, known from its own certificate directory or from the Lease. Names and dates of the
//! certificate are ignored.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::util::UnchainedVerifier;

/// Does a TLS handshake with a server and accepts only a certificate with this SHA-256, in hexadecimal.
///
/// # Errors
/// Fails if the server sends another certificate, lacks its key, or does not speak TLS.
pub(crate) async fn connect_tls(stream: TcpStream, sha256: String) -> io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let verifier = Arc::new(UnchainedVerifier::pinned(provider, sha256));
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    // An IP address is not sent as the server name.
    let no_name = ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED));
    TlsConnector::from(Arc::new(config)).connect(no_name, stream).await
}

/// Sends one HTTP request over `stream` and returns the whole answer, with a body of at most `max_bytes`.
///
/// # Errors
/// Fails if the connection ends early or the body is longer.
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
    max_bytes: usize,
) -> Result<Response<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
        Ok(Response::from_parts(head, Limited::new(body, max_bytes).collect().await?.to_bytes()))
        // The end of this block drops the sender, which closes the connection.
    };
    // If the connection fails, so does the answer.
    let (answer, _ended) = tokio::join!(answer, connection);
    answer
}

#[cfg(test)]
mod tests;
