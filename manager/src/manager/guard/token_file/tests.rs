use super::*;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use http::header::AUTHORIZATION;
use http_body_util::BodyExt as _;
use tempfile::NamedTempFile;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::ServiceExt as _;

/// Sends a request and returns status and text of the answer; the handler behind the guard reports whether
/// the token was presented.
async fn asked(guarded: &Router, authorization: Option<&str>) -> (u16, String) {
    let mut request = Request::builder().uri("/debug/leader");
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let answer = guarded.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

fn guarded(token: TokenFile) -> Router {
    let handler = async |admitted: Option<Extension<Authorized>>| match admitted {
        Some(_) => "by token",
        None => "without",
    };
    token_required(Router::new().fallback(handler), token)
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[tokio::test]
async fn who_shows_the_token_is_let_in_and_nobody_else() {
    let file = file("s3cret\n");
    let guarded = guarded(TokenFile::new(file.path()).unwrap());
    assert_eq!(asked(&guarded, Some("Bearer s3cret")).await, (200, "by token".to_owned()));
    let wrong = (401, "{\"error\":\"this is not the token\"}\n".to_owned());
    for token in ["Bearer s3cre", "Bearer s3crets", "Bearer S3cret"] {
        assert_eq!(asked(&guarded, Some(token)).await, wrong, "{token}");
    }
    assert_eq!(asked(&guarded, Some("Basic s3cret")).await.0, 401);
    assert_eq!(asked(&guarded, None).await, (401, format!("{{\"error\":\"{NO_TOKEN}\"}}\n")));
}

/// On a volume that hangs each read would hold a thread for ever, and requests come from anybody.
#[tokio::test]
async fn a_request_does_not_read_the_file() {
    let file = file("secret");
    let guarded = guarded(TokenFile::new(file.path()).unwrap());
    file.close().unwrap();
    assert_eq!(asked(&guarded, Some("Bearer secret")).await.0, 200);
    assert_eq!(asked(&guarded, Some("Bearer guess")).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn a_new_token_replaces_the_old_one_and_without_a_token_every_request_is_refused() {
    let file = file("old");
    let token = TokenFile::new(file.path()).unwrap();
    let guarded = guarded(token.clone());
    let _following = JoinSet::from_iter([token.follow()]);
    // Longer than the file is polled and read twice.
    let settled = || sleep(Duration::from_secs(4));
    assert_eq!(asked(&guarded, Some("Bearer old")).await.0, 200);
    std::fs::write(file.path(), "new\r\n").unwrap();
    settled().await;
    assert_eq!(asked(&guarded, Some("Bearer new")).await.0, 200);
    assert_eq!(asked(&guarded, Some("Bearer old")).await.0, 401);
    std::fs::write(file.path(), "").unwrap();
    settled().await;
    for authorization in ["Bearer new", "Bearer \"\""] {
        assert_eq!(asked(&guarded, Some(authorization)).await.0, 500);
    }
    std::fs::write(file.path(), "again").unwrap();
    settled().await;
    assert_eq!(asked(&guarded, Some("Bearer again")).await.0, 200);
}

#[test]
fn a_file_without_a_token_is_refused_with_what_was_expected() {
    let longest = "x".repeat(LONGEST_BYTES);
    assert!(TokenFile::new(file(&format!("{longest}\r\n")).path()).is_ok());
    for text in ["", "\n", "two words", "a\nb", "\u{e9}", &format!("{longest}x")] {
        let file = file(text);
        let error = TokenFile::new(file.path()).unwrap_err();
        let path = file.path().display();
        assert_eq!(
            Chain(&error).to_string(),
            format!("no token in {path}: expected one line of 1 to 8192 printable characters")
        );
    }
    let error = TokenFile::new(Path::new("/nowhere/token")).unwrap_err();
    assert_eq!(Chain(&error).to_string().split(':').next(), Some("no token in /nowhere/token"));
}
