//! Which certificates of a webhook's server are trusted: those that Go trusts.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Trusts what a given certificate has signed, and the given certificates themselves: a webhook with a
/// self-signed certificate has it as its `caBundle`.
#[derive(Debug)]
pub(super) struct Trust {
    given: Vec<CertificateDer<'static>>,
    /// Verifies chains of certificates; `None` if no certificate is given.
    chains: Option<Arc<WebPkiServerVerifier>>,
}

// === impl Trust ===

impl Trust {
    /// Reads the given certificates in PEM.
    pub(super) fn new(pem: &[u8]) -> Self {
        let given: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(given.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chains = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build();
        Self { given, chains: chains.ok() }
    }

    fn chains(&self) -> Result<&WebPkiServerVerifier, Error> {
        self.chains.as_deref().ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.chains()?.verify_server_cert(server, intermediates, name, ocsp, now);
        match verified {
            // The time has been checked before: no chain leads to it, or it may sign others.
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_)))
                if self.given.contains(server) =>
            {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains()?.verify_tls12_signature(message, server, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains()?.verify_tls13_signature(message, server, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
