//! A webhook server, for tests here and of the API, and tests of requests to it.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::authority::Authority;

/// A server on loopback that answers each review with the value that a function returns for its path.
pub(crate) struct TestServer {
    pub(crate) port: u16,
    /// The certificate of its authority in PEM.
    pub(crate) authority: String,
    _tasks: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn start(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        let authority = Authority::generate().unwrap();
        let (certificate, key) = authority.sign_server(&["127.0.0.1"]).unwrap();
        Self { authority: authority.certificate.pem(), ..Self::serve(&certificate, &key, answer).await }
    }

    /// Starts a server with this certificate, which is its own authority.
    async fn serve(
        certificate: &Certificate,
        key: &KeyPair,
        answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into());
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(answer);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let answer = Arc::clone(&answer);
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let answer = Arc::clone(&answer);
                    async move {
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
                        let body = Bytes::from(answer(&path, &review).to_string());
                        Ok::<_, Infallible>(http::Response::new(Full::new(body)))
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                connections.spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { port, authority: certificate.pem(), _tasks: tasks }
    }

    fn server(&self, authorities: &str) -> Server {
        let host = "127.0.0.1".to_owned();
        Server { name: host.clone(), host, port: self.port, authorities: authorities.as_bytes().to_vec() }
    }
}

const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_review_is_posted_and_its_answer_is_read() {
    let server = TestServer::start(|path, review| serde_json::json!([path, review])).await;
    let answer =
        post(&server.server(&server.authority), "127.0.0.1", "/a?timeout=1s", b"1".to_vec(), LONG).await;
    let answer = answer.unwrap();
    assert_eq!((answer.code, answer.body), (200, Bytes::from(r#"["/a",1]"#)));
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let server = TestServer::start(|_, review| review.clone()).await;
    for authorities in [Authority::generate().unwrap().certificate.pem(), String::new()] {
        let answer = post(&server.server(&authorities), "127.0.0.1", "/", Vec::new(), LONG).await;
        let text = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
        assert_eq!(answer.unwrap_err(), text);
    }
    let other = Server { name: "localhost".to_owned(), ..server.server(&server.authority) };
    let error = post(&other, "localhost", "/", Vec::new(), LONG).await.unwrap_err();
    assert!(error.contains("x509: certificate is valid for"), "{error}");
}

#[tokio::test]
async fn a_certificate_may_be_its_own_authority() {
    let authority = Authority::generate().unwrap();
    let signed = authority.sign_server(&["127.0.0.1"]).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let self_signed = (params.self_signed(&key).unwrap(), key);
    for (certificate, key) in [signed, self_signed] {
        let server = TestServer::serve(&certificate, &key, |_, review| review.clone()).await;
        let server = server.server(&server.authority);
        post(&server, "127.0.0.1", "/", b"1".to_vec(), LONG).await.unwrap();
        let other = Server { name: "localhost".to_owned(), ..server };
        let error = post(&other, "localhost", "/", b"1".to_vec(), LONG).await.unwrap_err();
        assert!(error.contains("x509: certificate is valid for"), "{error}");
    }
}

#[tokio::test]
async fn a_closed_port_refuses_the_connection() {
    let server =
        Server { host: "127.0.0.1".to_owned(), port: 1, name: String::new(), authorities: Vec::new() };
    let error = post(&server, "127.0.0.1:1", "/", Vec::new(), LONG).await.unwrap_err();
    assert_eq!(error, "dial tcp 127.0.0.1:1: connect: connection refused");
}
