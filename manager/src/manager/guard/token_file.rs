//! The token of the inspection, in a file.
//!
//! With a file everybody shows its token, from whatever address: behind a proxy of the Pod, such as that of a service mesh,
//! every peer is of this host, and the Host header is anybody's to write. The file is read for each request that shows
//! a token, so a new one counts from when it is written.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::error;

use super::{Digest, Presented, digest, presented};
use crate::inspect::Admitted;
use crate::key::Chain;
use crate::metrics::Paced;
use crate::serve::Handler;

/// Longest token: room for a JWT.
const LONGEST_BYTES: usize = 8192;

/// To who shows none: most are people at a terminal.
const NO_TOKEN: &str = "show the token of inspect.tokenFile: mainstay inspect --config PATH or --token-file FILE, otherwise the header Authorization: Bearer TOKEN";

/// A file that holds a token, which may change while it is read from.
#[derive(Clone, Debug)]
pub(in crate::manager) struct TokenFile(PathBuf);

/// How often the file could not be read, which anybody who shows any token makes it try.
#[derive(Default)]
struct Unread(Mutex<Paced>);

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

// === impl Unread ===

impl Unread {
    /// Counts one more; returns how many there were since the last that was told, if it is time to tell.
    fn add(&self) -> Option<u64> {
        self.0.lock().add(1, Instant::now())
    }
}

/// Lets pass who shows the token, marked as [`Admitted`], and nobody else.
pub(in crate::manager) fn token_required(handler: Handler, file: TokenFile) -> Handler {
    let (file, unread) = (Arc::new(file), Arc::new(Unread::default()));
    Arc::new(move |mut request| {
        let (handler, file, unread) = (Arc::clone(&handler), Arc::clone(&file), Arc::clone(&unread));
        Box::pin(async move {
            let shown = match presented(request.headers()) {
                Presented::Nothing => return refuse(StatusCode::UNAUTHORIZED, NO_TOKEN),
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
                    if let Some(requests) = unread.add() {
                        error!(error = %Chain(&error), requests, "nobody can be let in by the token of the inspection");
                    }
                    refuse(StatusCode::INTERNAL_SERVER_ERROR, "the token to compare with cannot be read")
                }
                Err(_panic) => {
                    refuse(StatusCode::INTERNAL_SERVER_ERROR, "the token to compare with cannot be read")
                }
            }
        })
    })
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
    use http::Request;
    use http::header::AUTHORIZATION;
    use tempfile::NamedTempFile;

    /// Status and text; the handler behind tells whether the token was shown.
    async fn asked(guarded: &Handler, authorization: Option<&str>) -> (u16, String) {
        let mut request = Request::builder().uri("/debug/leader");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = guarded(request.body(Bytes::new()).unwrap()).await;
        (answer.status().as_u16(), String::from_utf8(answer.into_body().to_vec()).unwrap())
    }

    fn guarded(file: &NamedTempFile) -> Handler {
        let handler: Handler = Arc::new(|request| {
            let admitted = request.extensions().get::<Admitted>().is_some();
            let text = if admitted { "by token" } else { "without" };
            Box::pin(async move { Response::new(Bytes::from(text)) })
        });
        token_required(handler, TokenFile::new(file.path()).unwrap())
    }

    fn file(text: &str) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[tokio::test]
    async fn who_shows_the_token_is_let_in_and_nobody_else() {
        let file = file("s3cret\n");
        let guarded = guarded(&file);
        assert_eq!(asked(&guarded, Some("Bearer s3cret")).await, (200, "by token".to_owned()));
        let wrong = (401, "{\"error\":\"this is not the token\"}\n".to_owned());
        for token in ["Bearer s3cre", "Bearer s3crets", "Bearer S3cret"] {
            assert_eq!(asked(&guarded, Some(token)).await, wrong, "{token}");
        }
        assert_eq!(asked(&guarded, Some("Basic s3cret")).await.0, 401);
        assert_eq!(asked(&guarded, None).await, (401, format!("{{\"error\":\"{NO_TOKEN}\"}}\n")));
    }

    #[tokio::test]
    async fn a_new_token_counts_at_once_and_without_one_nobody_is_let_in() {
        let file = file("old");
        let guarded = guarded(&file);
        std::fs::write(file.path(), "new\r\n").unwrap();
        assert_eq!(asked(&guarded, Some("Bearer new")).await.0, 200);
        assert_eq!(asked(&guarded, Some("Bearer old")).await.0, 401);
        std::fs::write(file.path(), "").unwrap();
        for authorization in ["Bearer new", "Bearer \"\""] {
            assert_eq!(asked(&guarded, Some(authorization)).await.0, 500);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_read_is_told_once_a_minute_however_many_ask() {
        let unread = Unread::default();
        let told: Vec<_> = (0..1_000).filter_map(|_| unread.add()).collect();
        assert_eq!(told, [1]);
        tokio::time::advance(std::time::Duration::from_mins(1)).await;
        assert_eq!(unread.add(), Some(1_000));
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
