//! TLS handshakes: `tls` checks verify the certificate; HTTPS and gRPC checks accept any.

use std::io;
use std::sync::Arc;

use mainstay::util::UnchainedVerifier;
use mainstay_api::Host;
use mainstay_api::plan::TlsCheck;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

use super::Failure;
use crate::dependency::probe::Connection;
use crate::dependency::probe::authorities::{MAX_AUTHORITIES, MAX_KIB, NoAuthorities};
use crate::dependency::probe::cluster_info::ClusterInfo;
use crate::reasons::probe;

/// The certificate authorities of the manager's system, read at the first check that needs them.
static SYSTEM: OnceCell<Arc<RootCertStore>> = OnceCell::const_new();

/// Returns a TLS configuration that trusts the certificate authorities of a check: those in its `ConfigMap`,
/// or those of the system.
pub(super) async fn trust(
    check: &TlsCheck,
    namespace: &str,
    cluster: &dyn ClusterInfo,
) -> Result<Arc<ClientConfig>, Failure> {
    let Some(key) = &check.ca else {
        return verifying(SYSTEM.get_or_init(system).await);
    };
    let what =
        format!("key {} of ConfigMap {namespace}/{}", key.key.as_deref().unwrap_or_default(), key.name);
    let roots = cluster.authorities(namespace, key).await.map_err(|error| {
        let (reason, message) = match error {
            NoAuthorities::Missing => (probe::AUTHORITIES_NOT_FOUND, format!("there is no {what}")),
            NoAuthorities::Unknown(cause) => {
                (probe::AUTHORITIES_NOT_FOUND, format!("{what} cannot be read: {cause}"))
            }
            NoAuthorities::Invalid => (
                probe::AUTHORITIES_INVALID,
                format!(
                    "{what} does not hold 1 to {MAX_AUTHORITIES} certificates in at most {MAX_KIB} KiB of PEM"
                ),
            ),
        };
        Failure::before(reason, message)
    })?;
    verifying(&roots)
}

/// Runs a `tls` check: succeeds if the certificate of the server is valid now, for the name, and signed by a
/// trusted authority.
pub(super) async fn verified(
    check: &TlsCheck,
    config: &Arc<ClientConfig>,
    connection: Connection,
) -> Result<(), Failure> {
    handshake(config, &check.server_name, connection).await.map(drop)
}

/// Encrypts a connection with TLS. Accepts any certificate, as the kubelet does for HTTPS probes. Offers
/// `protocol` by ALPN.
pub(super) async fn unverified(
    host: &Host,
    protocol: &[u8],
    connection: Connection,
) -> Result<Connection, Failure> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(UnchainedVerifier::any(Arc::clone(&provider)));
    let mut config = config(provider, verifier)?;
    config.alpn_protocols = vec![protocol.to_owned()];
    handshake(&Arc::new(config), &host.to_string(), connection).await
}

// === private ===

pub(super) fn verifying(roots: &Arc<RootCertStore>) -> Result<Arc<ClientConfig>, Failure> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(&provider));
    let Ok(verifier) = verifier.build() else {
        let message = "the manager's system has no trusted authorities; name some by caConfigMap";
        return Err(Failure::before(probe::AUTHORITIES_NOT_FOUND, message));
    };
    config(provider, verifier).map(Arc::new)
}

fn config(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, Failure> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let unusable = |error| Failure::before(probe::FAILED, format!("TLS cannot be set up: {error}"));
    // Not dangerous with the verifier of `tls` checks; the other one accepts any certificate on purpose.
    let builder = builder.map_err(unusable)?.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    // A resumed session would skip the certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}

async fn system() -> Arc<RootCertStore> {
    let read = || {
        let mut roots = RootCertStore::empty();
        // A certificate that cannot be read is not trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    let empty = |_| Arc::new(RootCertStore::empty());
    tokio::task::spawn_blocking(read).await.unwrap_or_else(empty)
}

async fn handshake(
    config: &Arc<ClientConfig>,
    name: &str,
    connection: Connection,
) -> Result<Connection, Failure> {
    let name = ServerName::try_from(name.to_owned());
    let name = name.map_err(|_| Failure::before(probe::FAILED, "the name is not valid for TLS"))?;
    let connected = TlsConnector::from(Arc::clone(config)).connect(name, connection).await;
    connected.map(Connection::new).map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Failure {
    let tls = error.get_ref().and_then(|inner| {
        inner.downcast_ref::<Error>().or_else(|| inner.source().and_then(|source| source.downcast_ref()))
    });
    let Some(tls) = tls else { return Failure::of_exchange(error, "TLS") };
    let (reason, message) = match tls {
        Error::InvalidCertificate(certificate) => of_certificate(certificate),
        Error::AlertReceived(_) | Error::PeerIncompatible(_) => {
            (probe::TLS_FAILED, "it refused the handshake, or speaks no version of TLS from 1.2")
        }
        _ => return Failure::not_protocol("TLS"),
    };
    Failure::answered(reason, message)
}

fn of_certificate(error: &CertificateError) -> (&'static str, &'static str) {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            (probe::CERTIFICATE_EXPIRED, "its certificate has expired")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            (probe::CERTIFICATE_NOT_YET_VALID, "its certificate is not valid yet")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            (probe::CERTIFICATE_WRONG_NAME, "its certificate is for other names")
        }
        // A bad signature comes from an issuer that only has the same name as a trusted one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            (probe::CERTIFICATE_UNTRUSTED, "its certificate is signed by no trusted authority")
        }
        _ => (probe::CERTIFICATE_INVALID, "its certificate is not acceptable"),
    }
}
