//! The certificates of one embedded server, in memory: certificate authority, server and administrator.
//!
//! Each server generates its own, so that a client with the kubeconfig of an earlier server fails in the TLS
//! handshake.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;

use super::yaml;
use crate::authority::Authority;

/// The certificates and keys of a server; certificates and keys without a comment are in PEM.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) admin_der: CertificateDer<'static>,
    authority: String,
    authority_key: String,
    admin: String,
    admin_key: String,
}

/// An error while the certificates of a server are generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A certificate could not be generated.
    #[error("generating a certificate failed")]
    Generate(#[from] rcgen::Error),
    /// The TLS library rejected a certificate.
    #[error("the certificates do not fit together")]
    Tls(#[from] rustls::Error),
    /// The TLS library rejected the certificate authority.
    #[error("the authority cannot verify clients")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

// === impl Identity ===

impl Identity {
    /// Generates the certificates of a server on loopback.
    pub(crate) fn generate() -> Result<Self, IdentityError> {
        let authority = Authority::generate()?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        let (server, server_key) = authority.sign_server(&names)?;
        let (admin, admin_key) = authority.sign_admin("system:admin")?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.der().clone())?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?;
        let key = PrivatePkcs8KeyDer::from(server_key.serialize_der()).into();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![server.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            server: Arc::new(config),
            admin_der: admin.der().clone(),
            authority: authority.certificate.pem(),
            authority_key: authority.key(),
            admin: admin.pem(),
            admin_key: admin_key.serialize_pem(),
        })
    }

    /// Returns the certificate of the authority in PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the key of the authority in PEM.
    pub(crate) fn authority_key(&self) -> &str {
        &self.authority_key
    }

    /// Returns the kubeconfig of the administrator, with the certificates inline.
    pub(crate) fn kubeconfig(&self, url: &str) -> String {
        let name = "mainstay-devcluster";
        yaml::encode(&json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {
                "server": url,
                "certificate-authority-data": BASE64_STANDARD.encode(&self.authority),
            }}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
            "users": [{"name": name, "user": {
                "client-certificate-data": BASE64_STANDARD.encode(&self.admin),
                "client-key-data": BASE64_STANDARD.encode(&self.admin_key),
            }}],
        }))
    }
}
