//! A standby has the leader answer what is about the leader's work.
//!
//! Where the leader serves its pages, and with which certificate, it says in a [notice](Notice) on the Lease: who may write
//! that is the leader as far as anybody can tell.
//!
//! # Invariants
//! 1. A request goes to the address that the Lease gives for its present holder, over TLS with the certificate given
//!    there, or nowhere. It takes the token of its sender along and none of this replica.
//! 2. Only requests that this replica would answer itself are forwarded: they were [`Authorized`].
//! 3. A forwarded request is marked ([`OWN`]), and what is marked is not forwarded.
//! 4. Answers under way are few, and each is bounded; a leader that does not answer is given up on, in time for an answer
//!    of one's own.

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
use super::standby::told;
use super::{Authorized, Leader, STANDBY, own, refusal};
use crate::election::Notice;
use crate::key::Chain;
use crate::serve::{exchange, held, shake_hands};

/// The header of a request that the replica which gets it answers itself: a forwarded one, or one about that replica.
pub(crate) const OWN: &str = "mainstay-own";

/// Between two Pods.
const CONNECT: Duration = Duration::from_secs(2);
/// For the whole answer, the wait for a slot included.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of an answer. A thousand keys of a queue are some hundred KiB; who wants a hundred thousand asks the leader.
const MOST: usize = 8 << 20;
/// Answers in memory, until their readers have taken them.
const AT_ONCE: usize = 2;

/// Where a replica serves its pages, as it says in the Lease while it holds it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Its identity: electors that know nothing of this leave the notice of another in place.
    pub holder: String,
    /// Where other replicas reach it.
    pub address: SocketAddr,
    /// The SHA-256 of its certificate, in hexadecimal.
    pub sha256: String,
}

/// How a standby finds the leader. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peers {
    leader: Leader,
    notice: Notice,
    slots: Arc<Semaphore>,
}

// === impl Peers ===

impl Peers {
    /// Asks whom `leader` names, where the `notice` says.
    pub fn new(leader: Leader, notice: Notice) -> Self {
        Self { leader, notice, slots: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Has the leader answer these pages as long as this replica is a standby.
    pub fn before(self, pages: Router) -> Router {
        pages.layer(from_fn_with_state(self, forward))
    }

    fn address_of(&self, leader: &str) -> Option<Address> {
        let address: Address = serde_json::from_str(&self.notice.seen()?).ok()?;
        (address.holder == leader).then_some(address)
    }

    async fn ask(&self, leader: &str, head: &Parts, body: Bytes) -> Result<Response, String> {
        let Address { address, sha256, .. } =
            self.address_of(leader).ok_or("the Lease does not say where it serves its pages")?;
        let turn = Arc::clone(&self.slots).acquire_owned().await;
        let failed = |what: &str, error: &(dyn std::error::Error + 'static)| {
            format!("{what} {address}: {}", Chain(error))
        };
        let stream = timeout(CONNECT, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_elapsed| format!("no connection to {address} within {CONNECT:?}"))?;
        let stream = stream.map_err(|error| failed("no connection to", &error))?;
        let stream = shake_hands(stream, sha256).await;
        let stream =
            stream.map_err(|error| failed("no TLS, with the certificate named in the Lease, at", &error))?;
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = path.parse().map_err(|error| failed("no request to", &error))?;
        let headers = request.headers_mut();
        for name in [AUTHORIZATION, CONTENT_TYPE, ORIGIN] {
            // Each value: where one is expected, the leader has to see that there are two.
            head.headers.get_all(&name).iter().for_each(|value| {
                headers.append(&name, value.clone());
            });
        }
        headers.insert(OWN, HeaderValue::from_static("true"));
        headers.insert(HOST, address.to_string().parse().map_err(|error| failed("no request to", &error))?);
        let answer = exchange(stream, request, MOST).await;
        let answer = answer.map_err(|error| failed("no whole answer from", &*error))?;
        let (mut head, body) = answer.into_parts();
        for name in [CONNECTION, TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        Ok(Response::from_parts(head, held(body, turn).into()))
    }
}

async fn forward(State(peers): State<Peers>, request: Request, next: Next) -> Response {
    let (admitted, marked) =
        (request.extensions().get::<Authorized>().is_some(), request.headers().contains_key(OWN));
    let standby =
        peers.leader.standby().filter(|_| admitted && !marked && concerns_leader(request.uri().path()));
    let Some((standby, leader)) = standby.and_then(|standby| Some((standby.clone(), standby.leader?))) else {
        return next.run(request).await;
    };
    let (head, body) = request.into_parts();
    // It has arrived, within the limit of the server.
    let Ok(body) = to_bytes(body, usize::MAX).await else {
        return refusal(StatusCode::BAD_REQUEST, "the body ended early");
    };
    let asked = timeout(PATIENCE, peers.ask(&leader, &head, body.clone())).await;
    let trouble = match asked.unwrap_or_else(|_elapsed| Err(format!("no answer within {PATIENCE:?}"))) {
        Ok(mut response) => {
            // A leader that has become a standby since says so itself.
            if !response.headers().contains_key(STANDBY) {
                told(&mut response, &Standby { forwarded: true, ..standby });
            }
            return response;
        }
        Err(trouble) => trouble,
    };
    if head.method != Method::GET {
        // What was done is not known, and must not be done twice, nor here.
        let text = format!("the leader {leader} did not answer: {trouble}");
        return refusal(StatusCode::BAD_GATEWAY, &text).into_response();
    }
    let mut response = next.run(Request::from_parts(head, Body::from(body))).await;
    told(&mut response, &Standby { trouble: Some(trouble), ..standby });
    response
}

/// Whether a page is about the work of the leader, as those of a program are; the others are about the replica asked.
fn concerns_leader(path: &str) -> bool {
    let page = path.split('/').filter(|segment| !segment.is_empty()).nth(1).unwrap_or_default();
    page == "controllers" || !own::RESERVED.contains(&page)
}

#[cfg(test)]
mod tests;
