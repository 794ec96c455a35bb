//! The identities of one cluster: an authority, its server, its administrator, its ServiceAccount key.
//!
//! Every cluster has its own, so that a client with a stale address fails in the handshake with another
//! cluster's server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rcgen::KeyPair;

use crate::authority::Authority;

/// The certificates and keys of a cluster: paths of their files, for the flags of the programs.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// Certificate of the authority that signs all other certificates.
    pub(crate) authority: PathBuf,
    /// Certificate that every server of the cluster presents, for 127.0.0.1 and localhost.
    pub(crate) server: PathBuf,
    pub(crate) server_key: PathBuf,
    /// Certificate of the administrator, in the group `system:masters`, which is allowed every request.
    pub(crate) admin: PathBuf,
    pub(crate) admin_key: PathBuf,
    /// Key that signs the tokens of ServiceAccounts.
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_public_key: PathBuf,
    /// Certificate of the authority as bytes, for the TLS handshakes of this process.
    pub(crate) authority_der: rustls::pki_types::CertificateDer<'static>,
    pub(crate) admin_der: rustls::pki_types::CertificateDer<'static>,
    pub(crate) admin_key_der: Vec<u8>,
}

/// The reason why the certificates of a cluster could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The certificate library refused the parameters.
    #[error("generating a certificate failed")]
    Generate(#[from] rcgen::Error),
    /// A certificate or key could not be written to its file.
    #[error("writing {path} failed", path = .path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The error of the write.
        source: io::Error,
    },
}

impl Certificates {
    /// Makes all certificates and keys of a cluster and writes them below `folder`, which must exist and be
    /// closed to other users.
    pub(crate) fn generate(folder: &Path) -> Result<Self, CertificateError> {
        let authority = Authority::generate()?;
        let (server, server_key) = authority.sign_server(&["127.0.0.1", "localhost"])?;
        let (admin, admin_key) = authority.sign_admin("admin")?;

        let service_account_key = KeyPair::generate()?;
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            match fs::write(&path, text) {
                Ok(()) => Ok(path),
                Err(source) => Err(CertificateError::Write { path, source }),
            }
        };
        // Tests sign more client certificates with it.
        write("ca.key", authority.key())?;
        Ok(Self {
            authority: write("ca.crt", authority.certificate.pem())?,
            server: write("server.crt", server.pem())?,
            server_key: write("server.key", server_key.serialize_pem())?,
            admin: write("admin.crt", admin.pem())?,
            admin_key: write("admin.key", admin_key.serialize_pem())?,
            service_account_key: write("service-account.key", service_account_key.serialize_pem())?,
            service_account_public_key: write("service-account.pub", service_account_key.public_key_pem())?,
            authority_der: authority.certificate.der().clone(),
            admin_der: admin.der().clone(),
            admin_key_der: admin_key.serialize_der(),
        })
    }
}
