//! The few requests that a launcher sends: readiness, create an object, read an object.
//!
//! One connection per request: before a server is ready no connection is worth keeping open, and after that
//! no more requests are sent. The server must present a certificate of this cluster's own authority, so
//! another process that answers on the port is never mistaken for it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{IpAddr, PrivatePkcs8KeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::real::certificates::Certificates;

/// Timeout of one request to a server of the cluster; the caller sends it again until its own deadline.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest response body that is read from a server of the cluster: longer than any single object here. A
/// faulty server must not fill the memory of this process.
const BODY_LIMIT_BYTES: usize = 4 << 20;

/// An HTTPS client of the cluster's servers, with the certificate of its administrator.
#[derive(Clone)]
pub(crate) struct Https {
    connector: TlsConnector,
}

/// Status and body of an HTTP response, or the text of the error: every such error is transient while
/// servers start.
pub(crate) type Response = Result<(StatusCode, Bytes), String>;

impl std::fmt::Debug for Https {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The connector holds the administrator's key.
        f.write_str("Https")
    }
}

impl Https {
    pub(crate) fn new(certificates: &Certificates) -> Result<Self, rustls::Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificates.authority_der.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificates.admin_der.clone()],
                PrivatePkcs8KeyDer::from(certificates.admin_key_der.clone()).into(),
            )?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    pub(crate) async fn get(&self, port: u16, path: &str) -> Response {
        self.send(port, Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post(&self, port: u16, path: &str, object: &serde_json::Value) -> Response {
        self.send(port, Method::POST, path, Bytes::from(object.to_string())).await
    }

    async fn send(&self, port: u16, method: Method, path: &str, body: Bytes) -> Response {
        let exchange = self.exchange(port, method, path, body);
        let late = |_| Err(format!("no response within {REQUEST_TIMEOUT:?}"));
        tokio::time::timeout(REQUEST_TIMEOUT, exchange).await.unwrap_or_else(late)
    }

    async fn exchange(&self, port: u16, method: Method, path: &str, body: Bytes) -> Response {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, format!("127.0.0.1:{port}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| format!("invalid request: {error}"))?;
        let unconnected = |error: std::io::Error| format!("no connection: {error}");
        let unanswered = |error: hyper::Error| format!("no response: {error}");
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.map_err(unconnected)?;
        let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let stream = self.connector.connect(name, stream).await.map_err(unconnected)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(unanswered)?;
        let answer = async move {
            let response = sender.send_request(request).await.map_err(unanswered)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_LIMIT_BYTES);
            let body = body.collect().await.map_err(|error| format!("incomplete response: {error}"))?;
            Ok((status, body.to_bytes()))
        };
        // Biased: the response counts even if the connection closes right after its last byte.
        tokio::select! {
            biased;
            answer = answer => answer,
            ended = connection => {
                ended.map_err(unanswered)?;
                Err("the connection ended before the response".to_owned())
            }
        }
    }
}
