//! The other end: one request to a server of a manager, over a connection of its own.
//!
//! Replicas show certificates that nobody has to vouch for: who asks knows by its digest which one it has to be, from the
//! same directory, or from the Lease. Names and dates in it do not count then.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The certificate of this SHA-256 and no other.
#[derive(Debug)]
struct Pinned {
    sha256: String,
    provider: Arc<CryptoProvider>,
}

/// Begins TLS with a server whose certificate has this SHA-256, in hexadecimal.
///
/// # Errors
/// If it shows another one, does not have its key, or speaks no TLS.
pub(crate) async fn shake_hands(stream: TcpStream, sha256: String) -> io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let pinned = Arc::new(Pinned { sha256, provider });
    let config = builder.dangerous().with_custom_certificate_verifier(pinned).with_no_client_auth();
    // Of an address, none is sent.
    let no_name = ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED));
    TlsConnector::from(Arc::new(config)).connect(no_name, stream).await
}

/// Sends one request and returns the whole answer, of `most` bytes.
///
/// # Errors
/// If the connection ends before, or the body is longer.
///
/// # Cancel safety
/// Dropped, it closes the connection.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<Response<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
        Ok(Response::from_parts(head, Limited::new(body, most).collect().await?.to_bytes()))
        // The sender goes, and the connection with it.
    };
    // A failure of the connection is one of the answer, too.
    let (answer, _ended) = tokio::join!(answer, connection);
    answer
}

// === impl Pinned ===

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_it = crate::util::sha256(own) == self.sha256;
        let is_it = is_it.then(ServerCertVerified::assertion);
        is_it.ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
