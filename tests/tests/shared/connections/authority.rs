//! A certificate authority that signs certificates of clients, servers and proxies.

use std::sync::Arc;

use mainstay_tests::TestCluster;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// A certificate authority that signs further identities for a cluster.
pub(super) struct Authority(Issuer<'static, KeyPair>);

impl Authority {
    pub(super) fn of(cluster: &TestCluster) -> Self {
        let key = std::fs::read_to_string(cluster.authority_key_path()).expect("the key");
        Self::with(KeyPair::from_pem(&key).expect("a key"))
    }

    /// Returns an authority of the same name that the cluster does not trust.
    pub(super) fn stranger() -> Self {
        Self::with(KeyPair::generate().expect("a key"))
    }

    fn with(key: KeyPair) -> Self {
        Self(Issuer::new(Self::parameters(), key))
    }

    fn parameters() -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, "mainstay devcluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// Returns its own, self-signed certificate.
    pub(super) fn certificate(&self) -> rcgen::Certificate {
        Self::parameters().self_signed(self.0.key()).expect("signed")
    }

    pub(super) fn sign(&self, name: &str, addresses: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(addresses).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("signed"), key)
    }

    /// Returns a TLS server with a certificate for 127.0.0.1.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let (certificate, key) = self.sign("server", &["127.0.0.1"]);
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a certificate");
        TlsAcceptor::from(Arc::new(config))
    }
}
