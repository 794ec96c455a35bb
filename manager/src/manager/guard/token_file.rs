//! The token of the inspection, in a file.
//!
//! Who sits on this host needs none, as without a file. Everybody else shows it, which is the only way in from another
//! address. The file is read for each request that shows a token, so a new one counts from when it is written.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use serde_json::json;
use tokio::task::spawn_blocking;
use tracing::error;

use super::{Digest, Presented, digest, presented};
use crate::inspect::Admitted;
use crate::key::Chain;
use crate::serve::{Handler, Peer};

/// Longest token: room for a JWT.
const LONGEST_BYTES: usize = 8192;

/// A file that holds a token, which may change while it is read from.
#[derive(Clone, Debug)]
pub(in crate::manager) struct TokenFile(PathBuf);

/// There is no token in the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read, or is no text.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} holds no token; expected one line of 1 to {LONGEST_BYTES} printable characters", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
    },
}

// === impl TokenFile ===

impl TokenFile {
    /// Takes a file that holds a token now.
    pub(in crate::manager) fn new(path: &Path) -> Result<Self, TokenFileError> {
        let file = Self(path.to_owned());
        file.read().map(|_| file)
    }

    fn read(&self) -> Result<Digest, TokenFileError> {
        let path = || self.0.clone();
        let mut text = String::new();
        // One more than a token and its line feed may have: enough to see that it is none.
        let most = LONGEST_BYTES as u64 + 2;
        File::open(&self.0)
            .and_then(|file| file.take(most).read_to_string(&mut text))
            .map_err(|source| TokenFileError::Read { path: path(), source })?;
        let token = text.trim_end_matches(['\r', '\n']);
        let printable = token.bytes().all(|byte| byte.is_ascii_graphic());
        if token.is_empty() || token.len() > LONGEST_BYTES || !printable {
            return Err(TokenFileError::NoToken { path: path() });
        }
        Ok(digest(token.as_bytes()))
    }
}

/// Lets pass who shows the token, marked as [`Admitted`], and who says nothing and sits on this host.
pub(in crate::manager) fn token_or_loopback(handler: Handler, file: TokenFile) -> Handler {
    let file = Arc::new(file);
    Arc::new(move |mut request| {
        let (handler, file) = (Arc::clone(&handler), Arc::clone(&file));
        Box::pin(async move {
            let shown = match presented(request.headers()) {
                Presented::Nothing if is_local(&request) => return handler(request).await,
                Presented::Nothing => {
                    return refuse(StatusCode::UNAUTHORIZED, "show the token: Authorization: Bearer TOKEN");
                }
                Presented::Other => {
                    return refuse(
                        StatusCode::UNAUTHORIZED,
                        "expected one header Authorization: Bearer TOKEN",
                    );
                }
                Presented::Token(token) => digest(token.as_bytes()),
            };
            // Off the runtime: a volume that hangs must not stop what else runs on it.
            match spawn_blocking(move || file.read()).await {
                Ok(Ok(expected)) if shown == expected => {
                    request.extensions_mut().insert(Admitted);
                    handler(request).await
                }
                Ok(Ok(_other)) => refuse(StatusCode::UNAUTHORIZED, "this is not the token"),
                Ok(Err(error)) => {
                    error!(error = %Chain(&error), "nobody can be let in by the token of the inspection");
                    refuse(StatusCode::INTERNAL_SERVER_ERROR, "the token to compare with cannot be read")
                }
                Err(_panic) => {
                    refuse(StatusCode::INTERNAL_SERVER_ERROR, "the token to compare with cannot be read")
                }
            }
        })
    })
}

/// Whether the peer is a process of this host. The Host header would say so too, but anybody may write it.
fn is_local<B>(request: &Request<B>) -> bool {
    request.extensions().get().is_some_and(|Peer(address)| address.ip().to_canonical().is_loopback())
}

/// As the inspection refuses.
fn refuse(status: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("{}\n", json!({"error": text}))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::AUTHORIZATION;
    use tempfile::NamedTempFile;

    const HERE: &str = "127.0.0.1:5";
    const ELSEWHERE: &str = "10.0.0.1:5";

    /// Status and text; the handler behind tells whether the token was shown.
    async fn asked(guarded: &Handler, peer: &str, authorization: Option<&str>) -> (u16, String) {
        let mut request = Request::builder().uri("/debug/leader").extension(Peer(peer.parse().unwrap()));
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = guarded(request.body(Bytes::new()).unwrap()).await;
        (answer.status().as_u16(), String::from_utf8(answer.into_body().to_vec()).unwrap())
    }

    fn guarded(file: &NamedTempFile) -> Handler {
        let handler: Handler = Arc::new(|request| {
            let admitted = request.extensions().get::<Admitted>().is_some();
            let text = if admitted { "by token" } else { "by place" };
            Box::pin(async move { Response::new(Bytes::from(text)) })
        });
        token_or_loopback(handler, TokenFile::new(file.path()).unwrap())
    }

    fn file(text: &str) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[tokio::test]
    async fn who_shows_the_token_is_let_in_from_anywhere_and_who_shows_none_from_here_only() {
        let file = file("s3cret\n");
        let guarded = guarded(&file);
        for peer in [HERE, ELSEWHERE, "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert_eq!(asked(&guarded, peer, Some("Bearer s3cret")).await, (200, "by token".to_owned()));
            // A wrong token is refused from here too: who shows one means to be let in by it.
            let wrong = (401, "{\"error\":\"this is not the token\"}\n".to_owned());
            for token in ["Bearer s3cre", "Bearer s3crets", "Bearer S3cret"] {
                assert_eq!(asked(&guarded, peer, Some(token)).await, wrong, "{token}");
            }
            assert_eq!(asked(&guarded, peer, Some("Basic s3cret")).await.0, 401);
        }
        for peer in [HERE, "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert_eq!(asked(&guarded, peer, None).await, (200, "by place".to_owned()), "{peer}");
        }
        assert_eq!(
            asked(&guarded, ELSEWHERE, None).await,
            (401, "{\"error\":\"show the token: Authorization: Bearer TOKEN\"}\n".to_owned()),
        );
    }

    #[tokio::test]
    async fn a_new_token_counts_at_once_and_without_one_nobody_is_let_in() {
        let file = file("old");
        let guarded = guarded(&file);
        std::fs::write(file.path(), "new\r\n").unwrap();
        assert_eq!(asked(&guarded, ELSEWHERE, Some("Bearer new")).await.0, 200);
        assert_eq!(asked(&guarded, ELSEWHERE, Some("Bearer old")).await.0, 401);
        std::fs::write(file.path(), "").unwrap();
        for authorization in ["Bearer new", "Bearer \"\""] {
            assert_eq!(asked(&guarded, ELSEWHERE, Some(authorization)).await.0, 500);
        }
    }

    #[test]
    fn a_file_without_a_token_is_refused_with_what_was_expected() {
        let longest = "x".repeat(LONGEST_BYTES);
        assert!(TokenFile::new(file(&format!("{longest}\r\n")).path()).is_ok());
        for text in ["", "\n", "two words", "a\nb", "\u{e9}", &format!("{longest}x")] {
            let file = file(text);
            let error = TokenFile::new(file.path()).unwrap_err().to_string();
            let path = file.path().display();
            assert_eq!(
                error,
                format!("{path} holds no token; expected one line of 1 to 8192 printable characters")
            );
        }
        let error = TokenFile::new(Path::new("/nowhere/token")).unwrap_err();
        assert_eq!(Chain(&error).to_string().split(':').next(), Some("/nowhere/token cannot be read"));
    }
}
