//! Who may read what the manager serves: whoever has a token that the API server vouches for, or that is in a file.
//!
//! A guard is a handler around a handler. It decides on the control thread and without blocking it; what it lets pass is
//! answered as ever. Tokens are compared and remembered by their digests, so that neither a clock nor a core file tells one.

mod reviews;
mod token_file;

use http::header::{AUTHORIZATION, HeaderMap};
use tracing::warn;

use super::BuildError;
use crate::config::{BindAddress, ManagerConfiguration};

pub(super) use reviews::{Reviews, reviewed};
pub use token_file::TokenFileError;
pub(super) use token_file::{TokenFile, token_required};

/// Which servers are guarded, and by what.
pub(super) struct Guards {
    /// Whether scrapes are [`reviewed`].
    pub(super) reviewed: bool,
    /// The token of the inspection; `None` where it is bound to loopback and being on this host is enough.
    pub(super) token: Option<TokenFile>,
}

/// What stands for a token: SHA-256.
type Digest = [u8; 32];

/// What a request says of who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presented<'a> {
    Nothing,
    Token(&'a str),
    /// Something else, or several things.
    Other,
}

// === impl Guards ===

impl Guards {
    /// Takes from the configuration what guards what, and says where a guard sees tokens that others can see too.
    pub(super) fn new(configuration: &ManagerConfiguration) -> Result<Self, BuildError> {
        let ManagerConfiguration { metrics, inspect, .. } = configuration;
        let token = inspect.token_file.as_deref().map(TokenFile::new).transpose();
        let token = token.map_err(BuildError::TokenFile)?;
        if metrics.auth && metrics.tls_dir.is_none() && leaves_this_host(metrics.bind_address) {
            warn!(
                "metrics.auth without metrics.tlsDir: the tokens of scrapers cross the network in plain text"
            );
        }
        if token.is_some() && leaves_this_host(inspect.bind_address) {
            warn!("inspect.tokenFile guards plain HTTP: its token crosses the network in plain text");
        }
        Ok(Self { reviewed: metrics.auth, token })
    }
}

/// Whether a server at this address can be reached from elsewhere.
fn leaves_this_host(address: BindAddress) -> bool {
    address.socket().is_some_and(|address| !address.ip().is_loopback())
}

/// Reads the token of a request, as `Authorization: Bearer TOKEN`.
fn presented(headers: &HeaderMap) -> Presented<'_> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (all.next(), all.next());
    let Some(first) = first else { return Presented::Nothing };
    let words = first.to_str().ok().filter(|_| second.is_none()).and_then(|text| text.trim().split_once(' '));
    match words {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
            Presented::Token(token.trim())
        }
        _ => Presented::Other,
    }
}

fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::default();
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_token_is_read_and_anything_else_is_none() {
        let read = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line.parse().unwrap());
            }
            match presented(&headers) {
                Presented::Token(token) => token.to_owned(),
                Presented::Nothing => "nothing".to_owned(),
                Presented::Other => "other".to_owned(),
            }
        };
        assert_eq!(read(&[]), "nothing");
        assert_eq!(read(&["Bearer abc"]), "abc");
        assert_eq!(read(&["bearer  abc "]), "abc");
        for other in ["", "abc", "Bearer", "Bearer  ", "Basic abc"] {
            assert_eq!(read(&[other]), "other", "{other}");
        }
        assert_eq!(read(&["Bearer abc", "Bearer abc"]), "other");
    }
}
