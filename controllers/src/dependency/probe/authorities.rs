//! Certificate authorities, as a `ConfigMap` lists them.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Most authorities of one text: a bundle of everything the web trusts has some 150.
pub(super) const MAX_AUTHORITIES: usize = 500;
/// Longest text in bytes: twice what all authorities of the web take.
pub(super) const MAX_TEXT: usize = 512 * 1024;

/// Whom to trust, or why that cannot be told.
pub type Authorities = Result<Arc<RootCertStore>, NoAuthorities>;

/// Why there are no authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAuthorities {
    /// There is no such `ConfigMap`, or no such key in it.
    Missing,
    /// What is there does not hold certificates, or too many.
    Invalid,
    /// It could not be read at present; with the cause.
    Unknown(String),
}

/// Reads certificates in PEM: 1 to 500 in at most 512 KiB. Takes milliseconds for that many.
///
/// # Errors
/// Fails with [`NoAuthorities::Invalid`] if it is anything else.
pub fn authorities(pem: &str) -> Authorities {
    if pem.len() > MAX_TEXT {
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
