//! A check of a TLS server that needs no trusted authority.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::sha256;

/// Verifies the signatures of a TLS handshake, but not the chain, the names and the dates of the certificate.
#[derive(Debug)]
pub struct UnchainedVerifier {
    provider: Arc<CryptoProvider>,
    /// SHA-256 of the only accepted certificate, in hexadecimal; `None` accepts any.
    sha256: Option<String>,
}

// === impl UnchainedVerifier ===

impl UnchainedVerifier {
    /// Makes a verifier that accepts any certificate.
    pub fn any(provider: Arc<CryptoProvider>) -> Self {
        Self { provider, sha256: None }
    }

    /// Makes a verifier that accepts only the certificate with this SHA-256, in hexadecimal.
    pub(crate) fn pinned(provider: Arc<CryptoProvider>, sha256: String) -> Self {
        Self { provider, sha256: Some(sha256) }
    }
}

impl ServerCertVerifier for UnchainedVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let accepted = self.sha256.as_ref().is_none_or(|expected| sha256(own) == *expected);
        let verified = accepted.then(ServerCertVerified::assertion);
        verified.ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
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
