//! The token of the debug server, in a file.
//!
//! With a file every request has to present its token, from whatever address: behind a proxy in the Pod, such
//! as a service mesh's, every peer has an address of this host, and clients choose the Host header. The file
//! is followed, so a new token is valid about two seconds after it was written; requests read no file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use parking_lot::RwLock;
use tracing::error;

use super::{Digest, bearer, digest};
use crate::inspect::{Authorized, refusal};
use crate::key::Chain;
use crate::util::{Follower, read_regular};

/// The longest valid token in bytes: room for a JWT.
const LONGEST_BYTES: usize = 8192;

/// The text of the response to a request without a token, mostly of a person at a terminal.
const NO_TOKEN: &str = "show the token of inspect.tokenFile: \
    mainstay inspect --config PATH or --token-file FILE, otherwise the header Authorization: Bearer TOKEN";

/// A file that holds the token for the debug pages. Cheap to clone; all clones have the same token.
#[derive(Clone, Debug)]
pub(in crate::manager) struct TokenFile {
    path: Arc<Path>,
    /// The digest of the token; `None` while the file holds no token.
    token: Arc<RwLock<Option<Digest>>>,
}

/// Error of a token file that cannot be read, or that holds something else than a token.
#[derive(Debug, thiserror::Error)]
#[error("no token in {}", path.display())]
pub struct TokenFileError {
    path: PathBuf,
    source: io::Error,
}

// === impl TokenFile ===

impl TokenFile {
    /// Reads the token that the file at this path holds now.
    pub(in crate::manager) fn new(path: &Path) -> Result<Self, TokenFileError> {
        let token = parse(path, read_regular(path))?;
        Ok(Self { path: path.into(), token: Arc::new(RwLock::new(Some(token))) })
    }

    /// Makes a token file of a token, without a file.
    #[cfg(any(test, fuzzing))]
    pub(in crate::manager) fn holding(token: &str) -> Self {
        let token = Arc::new(RwLock::new(Some(digest(token.as_bytes()))));
        Self { path: Path::new("none").into(), token }
    }

    /// Reads the token again each time the file changes, for ever.
    pub(in crate::manager) async fn follow(self) {
        let mut file = Follower::new([self.path.to_path_buf()]);
        loop {
            let [read] = file.next().await;
            let token = parse(&self.path, read).inspect_err(|error| {
                error!(error = %Chain(error), "debug requests are refused until the file holds a token");
            });
            *self.token.write() = token.ok();
        }
    }
}

fn parse(path: &Path, read: io::Result<Vec<u8>>) -> Result<Digest, TokenFileError> {
    read.and_then(|bytes| token_in(&bytes)).map_err(|source| TokenFileError { path: path.to_owned(), source })
}

fn token_in(bytes: &[u8]) -> io::Result<Digest> {
    let line_feeds = bytes.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let token = &bytes[..bytes.len() - line_feeds];
    let printable = token.iter().all(u8::is_ascii_graphic);
    if token.is_empty() || token.len() > LONGEST_BYTES || !printable {
        let text = format!("expected one line of 1 to {LONGEST_BYTES} printable characters");
        return Err(io::Error::other(text));
    }
    Ok(digest(token))
}

/// Returns the router behind a check that admits only requests with the token of the file, and marks them as
/// [`Authorized`].
pub(in crate::manager) fn token_required(router: Router, file: TokenFile) -> Router {
    router.layer(from_fn_with_state(file, admit))
}

async fn admit(State(file): State<TokenFile>, mut request: Request, next: Next) -> Response {
    let unauthorized =
        |text| ([(WWW_AUTHENTICATE, "Bearer")], refusal(StatusCode::UNAUTHORIZED, text)).into_response();
    let presented = bearer(request.headers()).map(|token| digest(token.as_bytes()));
    let expected = *file.token.read();
    match (presented, expected) {
        (None, _) => unauthorized(NO_TOKEN),
        (Some(_), None) => {
            let text = "the token to compare with cannot be read";
            refusal(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
        (Some(presented), Some(expected)) if presented == expected => {
            request.extensions_mut().insert(Authorized);
            next.run(request).await
        }
        (Some(_), Some(_)) => unauthorized("this is not the token"),
    }
}

#[cfg(test)]
mod tests;
