use super::*;
use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::advance;
use tower::ServiceExt as _;

const SECOND: Duration = Duration::from_secs(1);

/// An API server with two tokens: `reader` has the right, `stranger` has not; all others are unknown. It
/// records the requests.
#[derive(Clone, Default)]
struct Server {
    asked: Arc<Mutex<Vec<Value>>>,
    /// Whether and how the server answers reviews.
    up: Arc<Mutex<Up>>,
}

#[derive(Clone, Copy, Default)]
enum Up {
    #[default]
    Answers,
    Refuses,
    Hangs,
}

impl Server {
    fn reviews(&self) -> Reviews {
        self.reviews_for(None)
    }

    fn reviews_for(&self, audience: Option<&'static str>) -> Reviews {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        Reviews::new(Client::new(service, "default"), audience)
    }

    fn guarded(&self) -> Router {
        reviewed(Router::new().fallback(async || "metrics"), self.reviews())
    }

    async fn answer(&self, request: http::Request<Body>) -> http::Response<Full<Bytes>> {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let question: Value = serde_json::from_slice(&body).unwrap();
        self.asked.lock().push(question["spec"].clone());
        let up = *self.up.lock();
        match up {
            Up::Answers => {}
            Up::Refuses => {
                let mut refusal = http::Response::new(Full::from("{}"));
                *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                return refusal;
            }
            Up::Hangs => std::future::pending().await,
        }
        let mut answer = question.clone();
        let spec = &question["spec"];
        let meant = spec["audiences"].as_array().is_none_or(|wanted| *wanted == [json!("pages")]);
        answer["status"] = match spec["token"].as_str() {
            Some("unaware") => json!({"authenticated": true, "user": {"username": "reader"}}),
            Some("reader") if spec["audiences"].is_array() && meant => json!({
                "authenticated": true, "user": {"username": "reader"}, "audiences": ["pages"],
            }),
            Some(name @ ("reader" | "stranger")) => json!({
                "authenticated": true,
                "user": {"username": name, "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}},
            }),
            Some(_) => json!({"authenticated": false, "error": "no such token"}),
            None => json!({"allowed": spec["user"] == "reader"}),
        };
        http::Response::new(Full::from(answer.to_string()))
    }

    fn is(&self, up: Up) {
        *self.up.lock() = up;
    }

    /// Returns the requests that the server got since the last call.
    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.asked.lock())
    }
}

async fn ask(guarded: &Router, authorization: Option<&str>) -> (u16, String) {
    ask_from([10, 0, 0, 1], guarded, authorization).await
}

/// Sends a request from a peer of this address, and returns status and text of the answer.
async fn ask_from(peer: [u8; 4], guarded: &Router, authorization: Option<&str>) -> (u16, String) {
    let mut request = http::Request::builder().uri("/metrics").extension(PeerAddress(peer.into()));
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let request = request.body(axum::body::Body::empty()).unwrap();
    let answer = guarded.clone().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

fn said(code: u16, text: &str) -> (u16, String) {
    (code, text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_server_says_whose_a_token_is_and_whether_its_owner_may_get_the_path() {
    let server = Server::default();
    let guarded = server.guarded();
    assert_eq!(ask(&guarded, None).await, said(401, "Unauthorized\n"));
    assert_eq!(ask(&guarded, Some("Basic reader")).await, said(401, "Unauthorized\n"));
    assert_eq!(server.take(), [] as [Value; 0], "nothing that is no token is asked about");
    assert_eq!(ask(&guarded, Some("Bearer nobody")).await, said(401, "Unauthorized\n"));
    assert_eq!(server.take(), [json!({"token": "nobody"})]);
    assert_eq!(
        ask(&guarded, Some("Bearer stranger")).await,
        said(403, "Authorization denied for user stranger\n")
    );
    server.take();
    assert_eq!(ask(&guarded, Some("Bearer reader")).await, said(200, "metrics"));
    let access = json!({
        "user": "reader", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    assert_eq!(server.take(), [json!({"token": "reader"}), access]);
}

/// Counts the reviews of each of these tokens, with one request per second.
#[tokio::test(start_paused = true)]
async fn answers_are_remembered_as_long_as_upstream_remembers_them() {
    let server = Server::default();
    let guarded = server.guarded();
    let mut questions = BTreeMap::new();
    for token in ["nobody", "reader", "stranger"] {
        for second in 0..600 {
            ask(&guarded, Some(&format!("Bearer {token}"))).await;
            for question in server.take() {
                let kind = if question["token"].is_string() { "token" } else { "access" };
                questions.entry((token, kind)).or_insert_with(Vec::new).push(second);
            }
            advance(SECOND).await;
        }
    }
    let every = |seconds: usize| (0..600).step_by(seconds).collect::<Vec<i32>>();
    let expected = BTreeMap::from([
        (("nobody", "token"), every(60)),
        (("reader", "access"), every(300)),
        (("reader", "token"), every(60)),
        (("stranger", "access"), every(30)),
        (("stranger", "token"), every(60)),
    ]);
    assert_eq!(questions, expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_lets_nobody_in_but_those_it_has_just_let_in() {
    let server = Server::default();
    let guarded = server.guarded();
    assert_eq!(ask(&guarded, Some("Bearer reader")).await.0, 200);
    let began = Instant::now();
    for up in [Up::Refuses, Up::Hangs] {
        server.is(up);
        assert_eq!(ask(&guarded, Some("Bearer reader")).await.0, 200);
        assert_eq!(ask(&guarded, Some("Bearer stranger")).await, said(500, "Authentication failed\n"));
    }
    assert_eq!(began.elapsed(), PATIENCE, "who hangs is waited for once");
    advance(TOKEN_TTL).await;
    assert_eq!(ask(&guarded, Some("Bearer reader")).await, said(500, "Authentication failed\n"));
    // The token can be authenticated again, and the remembered authorization is used.
    server.is(Up::Answers);
    assert_eq!(ask(&guarded, Some("Bearer reader")).await.0, 200);
    assert_eq!(ask(&guarded, Some("Bearer stranger")).await.0, 403, "no failure is remembered");
}

#[tokio::test(start_paused = true)]
async fn made_up_tokens_push_out_no_answer_that_has_not_expired() {
    let server = Server::default();
    let reviews = server.reviews();
    assert!(reviews.user("reader", Some(&reviews.unknown_peers)).await.unwrap().is_some());
    let began = Instant::now();
    let mut made_up = 0;
    // As fast as they are reviewed, for as long as an answer is remembered.
    while began.elapsed() < TOKEN_TTL.saturating_sub(SECOND) {
        if reviews.user(&format!("made up {made_up}"), Some(&reviews.unknown_peers)).await.is_err() {
            advance(SECOND / PER_SECOND).await;
        } else {
            made_up += 1;
        }
    }
    assert!(made_up > 1_000 && reviews.memory.lock().users.len() < REMEMBERED, "{made_up}");
    server.take();
    assert!(reviews.user("reader", Some(&reviews.unknown_peers)).await.unwrap().is_some());
    assert_eq!(server.take(), [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn made_up_tokens_cost_the_server_so_many_questions_a_second_and_no_more() {
    let server = Server::default();
    let guarded = server.guarded();
    for (questions, pause) in [(BURST, SECOND), (PER_SECOND, SECOND / PER_SECOND), (1, SECOND)] {
        let mut statuses = BTreeMap::new();
        for _ in 0..500 {
            let (status, _) = ask(&guarded, Some(&format!("Bearer {}", fastrand::u128(..)))).await;
            *statuses.entry(status).or_insert(0) += 1;
        }
        assert_eq!(statuses, BTreeMap::from([(401, questions), (429, 500 - questions)]));
        assert_eq!(server.take().len(), questions as usize);
        advance(pause).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_rotated_token_of_an_admitted_peer_is_reviewed_during_a_flood_from_elsewhere() {
    let server = Server::default();
    let guarded = server.guarded();
    let (scraper, other) = ([10, 0, 0, 7], [10, 0, 0, 8]);
    assert_eq!(ask_from(scraper, &guarded, Some("Bearer reader")).await.0, 200);
    for _ in 0..BURST {
        ask_from(other, &guarded, Some(&format!("Bearer {}", fastrand::u128(..)))).await;
    }
    assert_eq!(ask_from(other, &guarded, Some("Bearer stranger")).await.0, 429);
    assert_eq!(ask_from(scraper, &guarded, Some("Bearer stranger")).await.0, 403, "it was reviewed");
    // A flood from the address of the scraper is limited too, and its admitted token still passes.
    for _ in 0..BURST {
        ask_from(scraper, &guarded, Some(&format!("Bearer {}", fastrand::u128(..)))).await;
    }
    assert_eq!(ask_from(scraper, &guarded, Some("Bearer made up")).await.0, 429);
    advance(TOKEN_TTL).await;
    assert_eq!(ask_from(scraper, &guarded, Some("Bearer reader")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_unknown_tokens_keeps_no_admitted_peer_waiting() {
    let server = Server::default();
    let guarded = server.guarded();
    let scraper = [10, 0, 0, 7];
    assert_eq!(ask_from(scraper, &guarded, Some("Bearer reader")).await.0, 200);
    advance(ALLOWED_TTL).await;
    server.take();
    server.is(Up::Hangs);
    let mut crowd = tokio::task::JoinSet::new();
    for number in 0..100 {
        let guarded = guarded.clone();
        crowd.spawn(async move { ask(&guarded, Some(&format!("Bearer made up {number}"))).await.0 });
    }
    while server.asked.lock().len() < AT_ONCE {
        tokio::task::yield_now().await;
    }
    server.is(Up::Answers);
    let began = Instant::now();
    assert_eq!(ask_from(scraper, &guarded, Some("Bearer reader")).await.0, 200);
    assert_eq!(
        ask_from(scraper, &guarded, Some("Bearer stranger")).await.0,
        403,
        "its next token was reviewed"
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
    crowd.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_has_to_be_for_the_audience_that_is_asked_for() {
    let server = Server::default();
    let pages = Router::new()
        .fallback(async |admitted: Option<axum::Extension<Authorized>>| format!("{}", admitted.is_some()));
    let guarded = reviewed(pages, server.reviews_for(Some("pages")));
    let ask = async |token: &str| {
        let request = http::Request::get("/debug/leader").header(AUTHORIZATION, format!("Bearer {token}"));
        let answer = guarded.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(ask("reader").await, (200, "true".to_owned()), "admitted, and marked so");
    assert_eq!(server.take()[0]["audiences"], json!(["pages"]));
    // As an old API server, which has looked at no audience, answers.
    for other in ["unaware", "made-up"] {
        let (status, text) = ask(other).await;
        assert!(status == 401 && text.contains("--audience=pages"), "{other}: {status} {text}");
    }
}
