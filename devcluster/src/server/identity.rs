//! The certificates of one embedded server, in memory: certificate authority, server and administrator.
//!
//! Each server generates its own, so that a client with the kubeconfig of an earlier server fails in the TLS
//! handshake. Only a cluster with a file keeps them.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::yaml;
use crate::authority::Authority;

/// The certificates and keys of a server; certificates and keys without a comment are in PEM.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) admin_der: CertificateDer<'static>,
    authority: String,
    saved: Saved,
}

/// The keys and certificates that stay the same when a cluster starts again from its file, in PEM. The
/// certificate of the authority is made anew; clients that trust an earlier one of the same key trust it too.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Saved {
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
    /// A saved certificate is none.
    #[error("a saved certificate cannot be read")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The TLS library rejected a certificate.
    #[error("the certificates do not fit together")]
    Tls(#[from] rustls::Error),
    /// The TLS library rejected the certificate authority.
    #[error("the authority cannot verify clients")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

// === impl Identity ===

impl Identity {
    /// Generates the certificates of a server on loopback, but for those that are saved.
    pub(crate) fn generate(saved: Option<Saved>) -> Result<Self, IdentityError> {
        let authority = match &saved {
            Some(saved) => Authority::restore(&saved.authority_key)?,
            None => Authority::generate()?,
        };
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        let (server, server_key) = authority.sign_server(&names)?;
        let saved = if let Some(saved) = saved {
            saved
        } else {
            let (admin, admin_key) = authority.sign_admin("system:admin")?;
            let (admin, admin_key) = (admin.pem(), admin_key.serialize_pem());
            Saved { authority_key: authority.key(), admin, admin_key }
        };

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
            admin_der: CertificateDer::from_pem_slice(saved.admin.as_bytes())?,
            authority: authority.certificate.pem(),
            saved,
        })
    }

    /// Returns the certificate of the authority in PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the key of the authority in PEM.
    pub(crate) fn authority_key(&self) -> &str {
        &self.saved.authority_key
    }

    /// Returns what a file keeps of the identity.
    pub(crate) fn saved(&self) -> &Saved {
        &self.saved
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
                "client-certificate-data": BASE64_STANDARD.encode(&self.saved.admin),
                "client-key-data": BASE64_STANDARD.encode(&self.saved.admin_key),
            }}],
        }))
    }
}
