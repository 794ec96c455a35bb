//! An `OpenID` provider whose tokens the API server accepts.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::authority::Authority;

/// An `OpenID` provider on loopback whose refresh tokens are valid for one use.
pub(super) struct Provider {
    pub(super) url: String,
    pub(super) authority: PathBuf,
    pub(super) state: Arc<Tokens>,
    _serving: JoinSet<()>,
}

pub(super) struct Tokens {
    key: EcdsaKeyPair,
    url: String,
    /// Number of refresh tokens issued; only the last one is valid.
    pub(super) given: Mutex<u32>,
}

impl Provider {
    pub(super) async fn start(folder: &Path) -> Self {
        let authority = Authority::stranger();
        let file = folder.join("provider.crt");
        std::fs::write(&file, authority.certificate().pem()).expect("written");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key");
        let state = Arc::new(Tokens { key, url: url.clone(), given: Mutex::new(0) });
        let (acceptor, tokens) = (authority.acceptor(), Arc::clone(&state));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, tokens) = (acceptor.clone(), Arc::clone(&tokens));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| answer(Arc::clone(&tokens), request));
                    let io = TokioIo::new(stream);
                    drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).await);
                });
            }
        });
        Self { url, authority: file, state, _serving: serving }
    }
}

async fn answer(
    tokens: Arc<Tokens>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let url = &tokens.url;
    let (code, answer) = match head.uri.path() {
        "/.well-known/openid-configuration" => (
            200,
            json!({
                "issuer": url, "jwks_uri": format!("{url}/keys"), "token_endpoint": format!("{url}/token"),
                "authorization_endpoint": format!("{url}/authorize"),
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
            }),
        ),
        "/keys" => {
            let point = tokens.key.public_key().as_ref();
            let key = json!({
                "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "1",
                "x": base64url(&point[1..33]), "y": base64url(&point[33..]),
            });
            (200, json!({"keys": [key]}))
        }
        "/token" => {
            let mut given = tokens.given.lock();
            let good = format!("refresh_token=refresh-{given}");
            if String::from_utf8_lossy(&body).split('&').any(|pair| pair == good) {
                *given += 1;
                (200, json!({"refresh_token": format!("refresh-{given}"), "id_token": tokens.id_token(15)}))
            } else {
                (400, json!({"error": "invalid_grant"}))
            }
        }
        _ => (404, json!({})),
    };
    let response = Response::builder().status(code).header("content-type", "application/json");
    Ok(response.body(Full::from(answer.to_string())).expect("a response"))
}

impl Tokens {
    /// Returns an ID token that is valid for so many seconds.
    pub(super) fn id_token(&self, seconds: i64) -> String {
        let now = Timestamp::now().as_second();
        let claims =
            json!({"iss": self.url, "aud": "mainstay", "sub": "me", "iat": now - 60, "exp": now + seconds});
        let head = json!({"alg": "ES256", "kid": "1", "typ": "JWT"});
        let text = [head, claims].map(|part| base64url(part.to_string().as_bytes())).join(".");
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes()).expect("signed");
        format!("{text}.{}", base64url(signature.as_ref()))
    }
}

fn base64url(bytes: &[u8]) -> String {
    let text = json!(ByteString(bytes.to_vec()));
    text.as_str().expect("text").trim_end_matches('=').replace('+', "-").replace('/', "_")
}
