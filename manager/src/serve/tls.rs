//! The certificate of a server, reloaded while it runs.
//!
//! The directory has the layout of a mounted Secret of type `kubernetes.io/tls`. Its two files are followed
//! together, and the served pair changes once both are present and match, so an incomplete rotation has no
//! effect. Open connections keep the certificate of their handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info};

use crate::key::Chain;
use crate::util::{Follower, read_regular, sha256};

/// Names of the certificate files in their directory: the chain, which starts with the server's own
/// certificate, and its key.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// A server's TLS certificate and key, kept up to date with their files. Clones share one pair.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<Shared>);

/// Counters of reads of the certificate files: one read at the start, and one whenever the files have
/// changed.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Number of all reads of the certificate files, including failed ones.
    pub total: Counter,
    /// Number of reads of the certificate files that found no usable pair.
    pub errors: Counter,
}

/// The certificate files hold no usable certificate and key. A running server keeps its last one until the
/// files are corrected.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct CertificateError {
    text: String,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// The certificate and key for new TLS handshakes.
    pair: RwLock<Arc<CertifiedKey>>,
    reads: Reads,
}

// === impl Certificates ===

impl Certificates {
    /// Reads the TLS certificate and key from `tls.crt` and `tls.key` in a directory.
    ///
    /// # Errors
    /// Fails if the files hold no usable pair.
    pub fn load(directory: &Path) -> Result<Self, CertificateError> {
        let reads = Reads::default();
        let pair = reads.count(parse(directory, paths(directory).map(|path| read_regular(&path))))?;
        let (directory, pair) = (directory.to_owned(), RwLock::new(Arc::new(pair)));
        Ok(Self(Arc::new(Shared { directory, pair, reads })))
    }

    /// Returns the counters of certificate reads, for registration as metrics.
    pub fn reads(&self) -> Reads {
        self.0.reads.clone()
    }

    /// Returns the SHA-256 of the server's present certificate, in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        self.0.pair.read().cert.first().map(|own| sha256(own)).unwrap_or_default()
    }

    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.0.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Follows the certificate files forever and uses each new certificate for new handshakes.
    pub(super) async fn follow(self) {
        let directory = &self.0.directory;
        let mut files = Follower::new(paths(directory));
        loop {
            match self.update(files.next().await) {
                Ok(true) => info!(directory = %directory.display(), "serving a new certificate"),
                Ok(false) => {}
                Err(error) => {
                    error!(error = %Chain(&error), "cannot load a new certificate; serving the last one");
                }
            }
        }
    }

    /// Uses the certificate and key in these files for new handshakes; returns whether they are new.
    fn update(&self, files: [io::Result<Vec<u8>>; 2]) -> Result<bool, CertificateError> {
        let Shared { directory, pair, reads } = &*self.0;
        let read = reads.count(parse(directory, files))?;
        // A certificate contains its public key, so an equal chain means an equal pair.
        let new = pair.read().cert != read.cert;
        if new {
            *pair.write() = Arc::new(read);
        }
        Ok(new)
    }
}

// === impl Reads ===

impl Reads {
    fn count<T, E>(&self, read: Result<T, E>) -> Result<T, E> {
        self.total.inc();
        read.inspect_err(|_| {
            self.errors.inc();
        })
    }
}

// === impl Shared ===

impl ResolvesServerCert for Shared {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.pair.read()))
    }
}

fn paths(directory: &Path) -> [PathBuf; 2] {
    FILES.map(|name| directory.join(name))
}

fn parse(directory: &Path, files: [io::Result<Vec<u8>>; 2]) -> Result<CertifiedKey, CertificateError> {
    let [chain_path, key_path] = paths(directory).map(|path| path.display().to_string());
    let [chain, key] = files;
    let chain = chain.map_err(failed(format!("{chain_path} cannot be read")))?;
    let key = key.map_err(failed(format!("{key_path} cannot be read")))?;
    let certificates = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
    let certificates = match certificates {
        Ok(none) if none.is_empty() => Err(pem::Error::NoItemsFound),
        read => read,
    };
    let certificates =
        certificates.map_err(failed(format!("{chain_path} contains no certificate in PEM")))?;
    let key = PrivateKeyDer::from_pem_slice(&key);
    let key = key.map_err(failed(format!("{key_path} contains no private key in PEM")))?;
    let pair = CertifiedKey::from_der(certificates, key, &ring::default_provider());
    let [chain, key] = FILES;
    pair.map_err(failed(format!("{chain} and {key} in {} are not a usable pair", directory.display())))
}

fn failed<E>(text: String) -> impl FnOnce(E) -> CertificateError
where
    E: std::error::Error + Send + Sync + 'static,
{
    |source| CertificateError { text, source: Box::new(source) }
}

#[cfg(test)]
mod tests;
