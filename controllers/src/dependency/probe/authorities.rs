//! Certificate authorities from a `ConfigMap`.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Maximum number of certificate authorities in one PEM text; a bundle of all public authorities has some
/// 150.
pub(super) const MAX_AUTHORITIES: usize = 500;
/// Maximum size of a PEM text with certificate authorities in KiB, twice the size of a bundle of all public
/// authorities.
pub(super) const MAX_KIB: usize = 512;

/// The certificate authorities to trust, or the reason why there are none.
pub type Authorities = Result<Arc<RootCertStore>, NoAuthorities>;

/// The reason why a `ConfigMap` gives no certificate authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAuthorities {
    /// The `ConfigMap` with the certificate authorities, or its key, does not exist.
    Missing,
    /// The value of the key is not a list of 1 to 500 certificates in PEM, or is too long.
    Invalid,
    /// The `ConfigMap` with the certificate authorities cannot be read at present; with the cause.
    Unknown(String),
}

/// Parses certificate authorities: 1 to 500 certificates in at most 512 KiB of PEM, which takes milliseconds.
///
/// # Errors
/// Fails with [`NoAuthorities::Invalid`] for any other text.
pub fn authorities(pem: &str) -> Authorities {
    if pem.len() > MAX_KIB * 1024 {
        return Err(NoAuthorities::Invalid);
    }
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let added = certificate.ok().and_then(|certificate| roots.add(certificate).ok());
        if added.is_none() || roots.len() > MAX_AUTHORITIES {
            return Err(NoAuthorities::Invalid);
        }
    }
    if roots.is_empty() { Err(NoAuthorities::Invalid) } else { Ok(Arc::new(roots)) }
}
