//! Access to the servers of the manager: by a token that the API server accepts, or the token of a file.
//!
//! A guard is a layer around a router. It decides on the control thread without blocking it. Tokens are
//! compared and remembered by their digests, so neither timing nor a core file discloses one.

mod reviews;
mod token_file;

use http::header::{AUTHORIZATION, HeaderMap};
use tracing::warn;

use super::BuildError;
use crate::config::{BindAddress, ManagerConfiguration};

pub(super) use reviews::{Reviews, reviewed};
pub use token_file::TokenFileError;
pub(super) use token_file::{TokenFile, token_required};

/// SHA-256 of a token, of an address, or of an access to review.
type Digest = [u8; 32];

/// Returns the token that requests for the debug pages need. `None` if the API server reviews tokens instead,
/// or if the server is bound to loopback, where any request from this host is admitted. Warns where a token
/// crosses the network in plain text.
pub(super) fn inspect_token(configuration: &ManagerConfiguration) -> Result<Option<TokenFile>, BuildError> {
    let ManagerConfiguration { metrics, inspect, .. } = configuration;
    if metrics.auth && metrics.tls_dir.is_none() && leaves_this_host(metrics.bind_address) {
        warn!("metrics.auth without metrics.tlsDir: the tokens of scrapers cross the network in plain text");
    }
    if inspect.tls_dir.is_none() && leaves_this_host(inspect.bind_address) {
        warn!("inspect.bindAddress without inspect.tlsDir: tokens cross the network in plain text");
    }
    // With reviews the file is for the command `inspect` only.
    let file = inspect.token_file.as_deref().filter(|_| !inspect.auth);
    file.map(TokenFile::new).transpose().map_err(BuildError::TokenFile)
}

/// Returns whether a server at this address can be reached from other hosts.
fn leaves_this_host(address: BindAddress) -> bool {
    address.socket().is_some_and(|address| !address.ip().is_loopback())
}

/// Returns the token of a request that has exactly one header `Authorization: Bearer TOKEN`; `None`
/// otherwise.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = only.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::default();
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    digest
}

#[cfg(test)]
mod tests;
