//! What a standby says of itself beside each answer: that it is one, and which Pod leads.
//!
//! In a header rather than in the pages: it concerns all of them, those of a program too, and a page stays what it is.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::HeaderValue;

use super::Leader;
use super::pages::Standby;
use crate::key::is_dns_subdomain;

/// The header of every answer of a replica that does not lead, with a [`Standby`] as JSON.
pub(crate) const STANDBY: &str = "mainstay-standby";

// === impl Leader ===

impl Leader {
    /// Returns what this replica says of itself; `None` if it leads, or needs no election to.
    pub(super) fn standby(&self) -> Option<Standby> {
        let (leading, leader) = self.who(&self.election.as_ref()?.leadership.borrow());
        let pod = leader.as_deref().and_then(pod_of).map(str::to_owned);
        let namespace = self.namespace.clone();
        let identity = self.identity.clone();
        let standby = Standby { identity, leader, pod, namespace, forwarded: false, trouble: None };
        (!leading).then_some(standby)
    }
}

/// Returns the Pod of a replica, if its identity begins with one: see [`unique_identity`](crate::election::unique_identity).
fn pod_of(identity: &str) -> Option<&str> {
    let (host, _) = identity.rsplit_once('_')?;
    is_dns_subdomain(host).then_some(host)
}

/// Marks the answers of a standby.
pub(super) async fn mark(State(leader): State<Leader>, request: Request, next: Next) -> Response {
    let standby = leader.standby();
    let mut response = next.run(request).await;
    if let Some(standby) = standby {
        told(&mut response, &standby);
    }
    response
}

/// Puts the header in place.
pub(super) fn told(response: &mut Response, standby: &Standby) {
    // Control characters, which no header can have, are escaped in JSON but for DEL, which is in no identity of ours.
    let header = serde_json::to_vec(standby).ok().and_then(|text| HeaderValue::try_from(text).ok());
    header.map(|header| response.headers_mut().insert(STANDBY, header));
}
