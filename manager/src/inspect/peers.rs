//! A standby forwards requests about the leader's work to the leader.
//!
//! The leader writes the address and the certificate of its pages into a [notice](Notice) on the Lease.
//! Standbys trust the notice, because only accounts with the right to update the Lease can write it.
//!
//! # Invariants
//! 1. A request is sent only to the address that the Lease has for its present holder, and only over TLS with
//!    the certificate in the Lease. The request has the token of its sender, never a token of this replica.
//! 2. Only requests that this replica would answer itself are forwarded: they are [`Authorized`].
//! 3. A forwarded request has the header [`OWN`], and a request with this header is not forwarded.
//! 4. The number of answers in memory is limited, and the size of each. If the leader does not answer, the
//!    standby gives up early enough to answer itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, ORIGIN, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::pages::Standby;
use super::standby::set_header;
use super::{Authorized, Leader, STANDBY, own, refusal};
use crate::election::Notice;
use crate::key::Chain;
use crate::serve::{connect_tls, exchange, keep_permit};

/// The name of the header of a request that the receiving replica must answer itself: a forwarded request, or
/// a request about that replica.
pub(crate) const OWN: &str = "mainstay-own";

/// The timeout to open a connection to the leader's Pod.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of the leader's whole answer to a forwarded request, the wait for a slot included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(8);
/// The size limit of the leader's answer to a forwarded request. A thousand keys of a queue are some hundred
/// KiB; larger pages need a direct request to the leader.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The most answers to forwarded requests in memory, until clients have read them.
const MAX_ANSWERS: usize = 2;

/// The address of the leader's debug pages, as the leader writes it into the Lease.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The identity of the leader. Electors of other programs keep the notice of an earlier holder in the
    /// Lease.
    pub holder: String,
    /// The address and port at which other replicas reach the leader's debug pages.
    pub address: SocketAddr,
    /// The SHA-256 of the leader's TLS certificate, in hexadecimal.
    pub sha256: String,
}

/// Forwards requests for debug pages from a standby to the leader. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peers {
    leader: Leader,
    notice: Notice,
    slots: Arc<Semaphore>,
}

// === impl Peers ===

impl Peers {
    /// Makes a forwarder of requests to the leader known to `leader`, at the address in the `notice` of the
    /// Lease.
    pub fn new(leader: Leader, notice: Notice) -> Self {
        Self { leader, notice, slots: Arc::new(Semaphore::new(MAX_ANSWERS)) }
    }

    /// Returns these debug pages, with requests forwarded to the leader while this replica is a standby.
    pub fn before(self, pages: Router) -> Router {
        pages.layer(from_fn_with_state(self, forward))
    }

    fn address_of(&self, leader: &str) -> Option<Address> {
        let address: Address = serde_json::from_str(&self.notice.seen()?).ok()?;
        (address.holder == leader).then_some(address)
    }

    /// Forwards a request to the leader and returns its answer. The error is a text with the problem.
    async fn send(&self, leader: &str, head: &Parts, body: Bytes) -> Result<Response, String> {
        let Address { address, sha256, .. } =
            self.address_of(leader).ok_or("the Lease has no address of its pages")?;
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let failed = |problem: &str, error: &(dyn std::error::Error + 'static)| {
            format!("{problem} {address}: {}", Chain(error))
        };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let stream =
            stream.map_err(|_elapsed| format!("no connection to {address} within {CONNECT_TIMEOUT:?}"))?;
        let stream = stream.map_err(|error| failed("no connection to", &error))?;
        let stream = connect_tls(stream, sha256).await;
        let stream = stream.map_err(|error| failed("no TLS with the certificate in the Lease to", &error))?;
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = path.parse().map_err(|error| failed("no request to", &error))?;
        let headers = request.headers_mut();
        for name in [AUTHORIZATION, CONTENT_TYPE, ORIGIN] {
            // All values: the leader must refuse a header that is repeated.
            head.headers.get_all(&name).iter().for_each(|value| {
                headers.append(&name, value.clone());
            });
        }
        headers.insert(OWN, HeaderValue::from_static("true"));
        headers.insert(HOST, address.to_string().parse().map_err(|error| failed("no request to", &error))?);
        let answer = exchange(stream, request, MAX_ANSWER_BYTES).await;
        let answer = answer.map_err(|error| failed("incomplete answer from", &*error))?;
        let (mut head, body) = answer.into_parts();
        for name in [CONNECTION, TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        Ok(Response::from_parts(head, keep_permit(body, slot).into()))
    }
}

/// Middleware that answers a request through the leader if this replica is a standby and the request is about
/// the leader's work; otherwise by `next`.
async fn forward(State(peers): State<Peers>, request: Request, next: Next) -> Response {
    let authorized = request.extensions().get::<Authorized>().is_some();
    let may_forward = authorized && !request.headers().contains_key(OWN);
    let standby = peers.leader.standby().filter(|_| may_forward && concerns_leader(request.uri().path()));
    let Some((standby, leader)) = standby.and_then(|standby| Some((standby.clone(), standby.leader?))) else {
        return next.run(request).await;
    };
    let (head, body) = request.into_parts();
    // The server has already limited the size of the body.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return refusal(StatusCode::BAD_REQUEST, "the body ended early");
    };
    let answer = timeout(ANSWER_TIMEOUT, peers.send(&leader, &head, body.clone())).await;
    let trouble = match answer.unwrap_or_else(|_elapsed| Err(format!("no answer within {ANSWER_TIMEOUT:?}")))
    {
        Ok(mut response) => {
            // A leader that has become a standby meanwhile has set the header itself.
            if !response.headers().contains_key(STANDBY) {
                set_header(&mut response, &Standby { forwarded: true, ..standby });
            }
            return response;
        }
        Err(trouble) => trouble,
    };
    if head.method != Method::GET {
        // The leader may have carried out the action; this replica must not repeat it.
        let text = format!("the leader {leader} did not answer: {trouble}");
        return refusal(StatusCode::BAD_GATEWAY, &text).into_response();
    }
    let mut response = next.run(Request::from_parts(head, Body::from(body))).await;
    set_header(&mut response, &Standby { trouble: Some(trouble), ..standby });
    response
}

/// Returns whether the debug page at this path is about the leader's work: the pages of controllers and of
/// the program. All other pages are about the replica that gets the request.
fn concerns_leader(path: &str) -> bool {
    let page = path.split('/').filter(|segment| !segment.is_empty()).nth(1).unwrap_or_default();
    page == "controllers" || !own::RESERVED.contains(&page)
}

#[cfg(test)]
mod tests;
