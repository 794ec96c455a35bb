//! The header of a standby's answers: its identity, and the Pod of the leader.
//!
//! A header rather than a field of the pages, because all pages have it, a program's pages included.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::HeaderValue;

use super::Leader;
use super::pages::Standby;
use crate::key::is_dns_subdomain;

/// The name of the header in every answer of a replica that does not lead, with a [`Standby`] as JSON.
pub(crate) const STANDBY: &str = "mainstay-standby";

// === impl Leader ===

impl Leader {
    /// Returns the content of the header that a standby adds to its answers; `None` if this replica leads, or
    /// runs without an election.
    pub(super) fn standby(&self) -> Option<Standby> {
        let (leading, leader) = self.leading_and_holder(&self.election.as_ref()?.leadership.borrow());
        let pod = leader.as_deref().and_then(pod_of).map(str::to_owned);
        let namespace = self.namespace.clone();
        let identity = self.identity.clone();
        let standby = Standby { identity, leader, pod, namespace, forwarded: false, trouble: None };
        (!leading).then_some(standby)
    }
}

/// Returns the name of a replica's Pod, if the replica's identity starts with a Pod name: see
/// [`unique_identity`](crate::election::unique_identity).
fn pod_of(identity: &str) -> Option<&str> {
    let (host, _) = identity.rsplit_once('_')?;
    is_dns_subdomain(host).then_some(host)
}

/// Middleware that adds the header [`STANDBY`] to the answers of a replica that does not lead.
pub(super) async fn add_header(State(leader): State<Leader>, request: Request, next: Next) -> Response {
    let standby = leader.standby();
    let mut response = next.run(request).await;
    if let Some(standby) = standby {
        set_header(&mut response, &standby);
    }
    response
}

/// Sets the header [`STANDBY`] of a response, in place of an earlier one.
pub(super) fn set_header(response: &mut Response, standby: &Standby) {
    // A header must not have control characters. JSON escapes them except DEL, which no identity of a manager
    // has.
    let header = serde_json::to_vec(standby).ok().and_then(|text| HeaderValue::try_from(text).ok());
    header.map(|header| response.headers_mut().insert(STANDBY, header));
}
