//! The certificate a server shows, read anew while it runs.
//!
//! A directory as Kubernetes mounts a Secret of type `kubernetes.io/tls`. The files are read every ten seconds, as
//! controller-runtime's certwatcher does; the pair in force changes when both files are there and belong together, so a
//! rotation that is seen half-way costs nothing. Connections that are open keep the certificate they began with.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info};

/// The files of the directory: the chain, the server's own certificate first, and its key.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// Between two looks at the files. A kubelet takes a minute to bring a changed Secret.
const LOOK_PERIOD: Duration = Duration::from_secs(10);

/// A certificate and its key, as they are on disk. Cheap to clone; all clones show the same pair.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

/// How often the files were read.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// All reads, those that failed included.
    pub total: Counter,
    /// Those after which there was no pair to show.
    pub errors: Counter,
}

/// There is no certificate to show. Until the files are put right, a server that has one keeps it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no {expected} in PEM", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it is to hold.
        expected: &'static str,
        /// What is wrong with it.
        #[source]
        source: pem::Error,
    },
    /// Both can be read and cannot be used together.
    #[error("{} and {} in {} are no pair that can be shown", FILES[0], FILES[1], directory.display())]
    Pair {
        /// Where they are.
        directory: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

struct Shared {
    directory: PathBuf,
    /// The one copy of what is in force.
    shown: RwLock<Arc<CertifiedKey>>,
    reads: Reads,
}

/// Gives the pair in force to each handshake.
#[derive(Clone)]
struct Shown(Arc<Shared>);

// === impl Certificates ===

impl Certificates {
    /// Reads `tls.crt` and `tls.key` of a directory.
    ///
    /// # Errors
    /// Fails if there is no pair there that can be shown.
    pub fn load(directory: &Path) -> Result<Self, CertificateError> {
        let reads = Reads::default();
        let shown = RwLock::new(read(directory, &reads)?);
        let shared = Shared { directory: directory.to_owned(), shown, reads };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the counts of reads, to register them.
    pub fn reads(&self) -> Reads {
        self.shared.reads.clone()
    }

    /// Returns what shakes hands with the pair in force.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shown(Arc::clone(&self.shared))));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Looks at the files for ever.
    pub(super) async fn follow(self) {
        // What is wrong is told when it begins and when it changes.
        let mut told = None;
        loop {
            sleep(LOOK_PERIOD).await;
            let looking = self.clone();
            // Off the runtime: a volume that hangs must not stop what else runs on it.
            let looked = spawn_blocking(move || looking.look()).await;
            let wrong = match looked {
                Ok(Ok(false)) => None,
                Ok(Ok(true)) => {
                    info!(directory = %self.shared.directory.display(), "a new certificate is in force");
                    None
                }
                Ok(Err(error)) => Some(crate::key::Chain(&error).to_string()),
                Err(panic) => Some(panic.to_string()),
            };
            if let Some(error) = wrong.as_deref().filter(|_| wrong != told) {
                error!(error, "the certificate in force stays");
            }
            told = wrong;
        }
    }

    /// Reads the files; returns whether what they hold is new.
    fn look(&self) -> Result<bool, CertificateError> {
        let Shared { directory, shown, reads } = &*self.shared;
        let read = read(directory, reads)?;
        // A certificate says which key belongs to it, so the same chain is the same pair.
        let new = shown.read().cert != read.cert;
        if new {
            *shown.write() = read;
        }
        Ok(new)
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

// === impl Shown ===

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.shown.read()))
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").field(&self.0.directory).finish()
    }
}

/// Reads a pair, and counts that.
fn read(directory: &Path, reads: &Reads) -> Result<Arc<CertifiedKey>, CertificateError> {
    reads.total.inc();
    pair(directory).map(Arc::new).inspect_err(|_| {
        reads.errors.inc();
    })
}

fn pair(directory: &Path) -> Result<CertifiedKey, CertificateError> {
    let [chain_path, key_path] = FILES.map(|name| directory.join(name));
    let text = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| CertificateError::Read { path: path.clone(), source })
    };
    let pem = |path: &PathBuf, expected| {
        let path = path.clone();
        move |source| CertificateError::Pem { path, expected, source }
    };
    let (chain, key) = (text(&chain_path)?, text(&key_path)?);
    let wrong = pem(&chain_path, "certificate");
    let chain: Vec<_> = match CertificateDer::pem_slice_iter(&chain).collect() {
        Ok(chain) if Vec::is_empty(&chain) => return Err(wrong(pem::Error::NoItemsFound)),
        Ok(chain) => chain,
        Err(source) => return Err(wrong(source)),
    };
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(pem(&key_path, "private key"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|source| CertificateError::Pair { directory: directory.to_owned(), source })
}

#[cfg(test)]
mod tests;
