//! A client of a manager's debug pages.
//!
//! Each request has a new connection: at one request per second nothing is lost by that, and a restart of the
//! manager needs no special handling.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{Request, Response, StatusCode, request};
use http_body_util::Full;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Chain, Failure};
use crate::inspect::pages::{Error, Standby};
use crate::inspect::{OWN, STANDBY};
use crate::reconcile::BoxError;
use crate::serve::{connect_tls, exchange};
use crate::util::sha256;

/// The timeout to open a connection to a manager on this machine or through a forwarded port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of the answer of a manager, which answers 503 by itself after ten seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The server of a manager's debug pages to connect to.
pub(super) struct Server {
    pub(super) address: String,
    pub(super) token: Option<String>,
    /// The SHA-256 of the only accepted certificate of the server; `None` for plain HTTP.
    pub(super) certificate: Option<String>,
    /// Whether the replica must answer itself, instead of forwarding the request to the leader.
    pub(super) own: bool,
}

/// A successful answer of a manager's debug pages.
pub(super) struct Answer {
    pub(super) body: String,
    /// The data of the header that a standby replica adds to its answer; `None` from a leader.
    pub(super) standby: Option<Standby>,
}

/// Returns the address at which clients on the same machine reach a server that listens on `socket`: loopback
/// if it listens on all addresses.
pub(super) fn reachable(socket: SocketAddr) -> SocketAddr {
    let ip = match socket.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, socket.port())
}

/// Returns whether a text is a host name or an IP address, with a port.
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<Authority>().is_ok_and(|authority| {
        !authority.host().is_empty()
            && !text.contains('@')
            && authority.port_u16().is_some_and(|port| port > 0)
    })
}

/// Returns the SHA-256 of the certificate in a manager's TLS directory.
pub(super) fn certificate(directory: &Path) -> Result<String, Failure> {
    let path = directory.join("tls.crt");
    let own = CertificateDer::from_pem_file(&path);
    let own =
        own.map_err(|error| Failure::wrong_input(format_args!("{}: {}", path.display(), Chain(&error))))?;
    Ok(sha256(&own))
}

// === impl Server ===

impl Server {
    /// Requests the debug page at this path from the manager.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.send(Request::get(path), Bytes::new()).await
    }

    /// Sends an action to the manager, by a POST with this body.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.send(request, body.to_string().into()).await
    }

    async fn send(&self, request: request::Builder, body: Bytes) -> Result<Answer, Failure> {
        let address = &self.address;
        let mut request = request.header(HOST, address);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if self.own {
            request = request.header(OWN, "true");
        }
        // Address or token may have a character that a header must not have.
        let request = request.body(Full::new(body)).map_err(|error| {
            Failure::wrong_input(format_args!("no valid request to {address}: {}", Chain(&error)))
        })?;
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let stream =
            stream.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
                let hint = "is the manager running, and is inspect.bindAddress this address?";
                Failure::other(format_args!("no connection to {address}; {hint}: {error}"))
            })?;
        let answer = timeout(ANSWER_TIMEOUT, self.exchange(stream, request)).await.map_err(|_elapsed| {
            Failure::other(format_args!("no answer from {address} within {ANSWER_TIMEOUT:?}"))
        })?;
        let answer = answer.map_err(|error| {
            let text = "ended before the answer was complete";
            Failure::other(format_args!("the connection to {address} {text}: {}", Chain(&*error)))
        })?;
        let (status, text) = (answer.status(), String::from_utf8_lossy(answer.body()).into_owned());
        if status.is_success() {
            let standby = answer.headers().get(STANDBY);
            let standby = standby.and_then(|standby| serde_json::from_slice(standby.as_bytes()).ok());
            return Ok(Answer { body: text, standby });
        }
        let refusal = serde_json::from_str(&text).map(|Error { error }| error);
        let text = refusal.unwrap_or_else(|_| format!("{status}: {}", text.trim()));
        // The manager refused the request itself.
        Err(match status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Failure::wrong_input(text),
            _ => Failure::other(text),
        })
    }

    async fn exchange(
        &self,
        stream: TcpStream,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, BoxError> {
        match self.certificate.clone() {
            None => exchange(stream, request, usize::MAX).await,
            Some(certificate) => exchange(connect_tls(stream, certificate).await?, request, usize::MAX).await,
        }
    }
}
