//! Asks a manager for one page, over a connection of its own.
//!
//! One connection per question: with one a second there is nothing to save, and a manager that was started anew in
//! between is simply asked again.

use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::Authority;
use http::{Request, StatusCode, request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Exit, complain, wrong_input};

/// For a connection on this machine or through a forwarded port.
const CONNECT: Duration = Duration::from_secs(5);
/// For an answer: a manager says by itself after ten seconds that it has no time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A manager that serves its debug pages.
pub(super) struct Server {
    address: String,
    token: Option<String>,
}

/// A question that was not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// Nobody listens there, or it cannot be reached.
    #[error("no manager answers at {address}; is it running, and is inspect.bindAddress this address?")]
    Connect {
        address: String,
        #[source]
        source: io::Error,
    },
    /// Somebody listens there who does not speak as a manager does, or went away in the middle.
    #[error("the connection to {address} ended before the answer was complete")]
    Broken {
        address: String,
        #[source]
        source: hyper::Error,
    },
    /// Address or token cannot stand in a request.
    #[error("{address} cannot be asked")]
    Request {
        address: String,
        #[source]
        source: http::Error,
    },
    #[error("no answer from {address} within {}", super::duration::Short(PATIENCE))]
    Late { address: String },
    /// The manager says why.
    #[error("{text}")]
    Refused { status: StatusCode, text: String },
}

/// What stands in the body of a refusal.
#[derive(serde::Deserialize)]
struct Refusal {
    error: String,
}

/// Returns where a server that listens on `socket` can be reached from the same machine.
pub(super) fn reachable(socket: SocketAddr) -> SocketAddr {
    let ip = match socket.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, socket.port())
}

/// Returns whether a text names a host, or an address, and a port.
pub(super) fn is_address(text: &str) -> bool {
    text.parse::<Authority>().is_ok_and(|authority| {
        !authority.host().is_empty()
            && !text.contains('@')
            && authority.port_u16().is_some_and(|port| port > 0)
    })
}

// === impl Server ===

impl Server {
    pub(super) fn new(address: String, token: Option<String>) -> Self {
        Self { address, token }
    }

    /// Asks for a page and returns the body of the answer.
    pub(super) async fn get(&self, path: &str) -> Result<String, AskError> {
        self.ask(Request::get(path), Bytes::new()).await
    }

    /// Asks for something to be done and returns the body of the answer.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<String, AskError> {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.ask(request, body.to_string().into()).await
    }

    async fn ask(&self, request: request::Builder, body: Bytes) -> Result<String, AskError> {
        let mut request = request.header(HOST, &self.address);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|source| AskError::Request { address: self.address(), source })?;
        let connect = timeout(CONNECT, TcpStream::connect(&self.address)).await;
        let stream = connect
            .unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|source| AskError::Connect { address: self.address(), source })?;
        let answer = timeout(PATIENCE, exchange(stream, request)).await;
        let (status, body) = answer
            .map_err(|_elapsed| AskError::Late { address: self.address() })?
            .map_err(|source| AskError::Broken { address: self.address(), source })?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(text);
        }
        let told = serde_json::from_str(&text).map(|Refusal { error }| error);
        let text = told.unwrap_or_else(|_| format!("{status}: {}", text.trim()));
        Err(AskError::Refused { status, text })
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

async fn exchange(
    stream: TcpStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), hyper::Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        Ok((response.status(), response.into_body().collect().await?.to_bytes()))
        // The sender goes, and the connection with it.
    };
    // What the connection ended with, the answer has heard.
    let (answer, _ended) = tokio::join!(answer, connection);
    answer
}

impl fmt::Debug for Server {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

// === impl AskError ===

impl AskError {
    /// Says what went wrong and returns how the process ends: a question that makes no sense is wrong input.
    pub(super) fn exit(&self, err: &mut dyn Write) -> Exit {
        match self {
            Self::Refused { status: StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND, text } => {
                wrong_input(err, &format!("error: {text}\n"))
            }
            Self::Request { .. } => {
                complain(self, err);
                Exit::WrongInput
            }
            _ => complain(self, err),
        }
    }
}
