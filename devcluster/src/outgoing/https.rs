//! One request over a connection of its own.

use std::io;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::trust::Trust;
use super::{Answer, Server};

/// Longest response body that is read: more than any object here.
const BODY_LIMIT_BYTES: usize = 8 << 20;
/// The error of a server that ends the connection before its response.
const CLOSED: &str = "EOF";

pub(super) async fn exchange(
    server: &Server,
    authority: &str,
    path: &str,
    body: Vec<u8>,
) -> Result<Answer, String> {
    let request = http::Request::post(path)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
    let stream = stream.map_err(|error| unconnected(server, &error))?;
    let name = ServerName::try_from(server.name.clone()).map_err(|error| error.to_string())?;
    let connector = connector(&server.authorities).map_err(|error| error.to_string())?;
    let stream = connector.connect(name, stream).await.map_err(|error| distrusted(server, &error))?;
    let unanswered = |_: hyper::Error| CLOSED.to_owned();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(unanswered)?;
    let answer = async move {
        let response = sender.send_request(request).await.map_err(unanswered)?;
        let (head, body) = response.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let body = Limited::new(body, BODY_LIMIT_BYTES).collect().await;
        let body = body.map_err(|_| "unexpected EOF".to_owned())?.to_bytes();
        Ok(Answer { code: head.status.as_u16(), content_type, body })
    };
    // Biased: the response counts even if the connection closes right after its last byte.
    tokio::select! {
        biased;
        answer = answer => answer,
        _ = connection => Err(CLOSED.to_owned()),
    }
}

fn connector(authorities: &[u8]) -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust::new(authorities)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn unconnected(server: &Server, error: &io::Error) -> String {
    let Server { host, port, .. } = server;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {host}:{port}: connect: connection refused"),
        _ if host.parse::<std::net::IpAddr>().is_err() => {
            format!("dial tcp: lookup {host}: no such host")
        }
        _ => format!("dial tcp {host}:{port}: connect: {error}"),
    }
}

/// Returns the error of a TLS handshake.
fn distrusted(server: &Server, error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let why = match cause {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "certificate signed by unknown authority".to_owned(),
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        })) => {
            let names: Vec<_> = presented.iter().filter_map(|name| quoted_name(name)).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), server.name)
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "certificate has expired or is not yet valid".to_owned(),
        Some(rustls::Error::InvalidMessage(_)) => {
            return "http: server gave HTTP response to HTTPS client".to_owned();
        }
        Some(error) => return format!("remote error: tls: {error}"),
        None => return CLOSED.to_owned(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// Returns the name in a presented name such as `DnsName("a.example.com")`.
fn quoted_name(presented: &str) -> Option<&str> {
    presented.split('"').nth(1)
}
