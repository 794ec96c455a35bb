//! Where the API server is: as this manager reaches it, and as the Service that stands for it.
//!
//! # Invariants
//! 1. Nobody is told that an address is not the API server's before everything has been found out once in this term.
//! 2. What was found is remembered while nothing newer is found, and for `SEEN` where something is: a name that stands
//!    for many machines is answered with other ones each time.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use mainstay::reconcile::Context;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::dependency::service::SERVICE_NAME_LABEL;

/// How long after a look the next one follows.
const PERIOD: Duration = Duration::from_secs(30);
/// As that, after the first look that did not find everything; after each further one twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an address counts that is found no more.
const SEEN: Duration = Duration::from_hours(1);
/// The Service that stands for the API server.
const SERVICE: (&str, &str) = ("default", "kubernetes");

/// Knows the addresses of the API server.
#[derive(Debug)]
pub(super) struct ApiServer {
    /// Under which the manager reaches it; an IPv6 address without brackets.
    host: String,
    port: u16,
    known: watch::Sender<Known>,
}

#[derive(Debug)]
struct Known {
    /// With the time at which each was found last.
    addresses: HashMap<IpAddr, Instant>,
    /// Whether there may be others, and why; `None` before the end of the first look of a term. Stays `Ok` to the end of
    /// the term.
    looked: Option<Result<(), String>>,
}

// === impl ApiServer ===

impl ApiServer {
    /// Takes the address under which the manager knows the API server.
    pub(super) fn new(server: &http::Uri) -> Self {
        let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
        let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let known = watch::Sender::new(Known { addresses: HashMap::new(), looked: None });
        Self { host: host.to_owned(), port, known }
    }

    /// Returns whether an address is the API server's; fails with the cause while that cannot be told.
    pub(super) fn is_at(&self, address: SocketAddr) -> Result<bool, String> {
        let known = self.known.borrow();
        // Everything on its machine, but on loopback, which a developer's prerequisites share with it.
        let is_it = known.addresses.contains_key(&address.ip())
            && (address.port() == self.port || !address.ip().is_loopback());
        if is_it {
            return Ok(true);
        }
        let looked = known.looked.clone().unwrap_or_else(|| Err("nobody has looked yet".to_owned()));
        looked.map(|()| false)
    }

    /// Waits until somebody has looked in this term, whatever came of it.
    pub(super) async fn looked(&self) {
        let mut known = self.known.subscribe();
        // The sender lives in `self`, so this ends only with what is waited for.
        drop(known.wait_for(|known| known.looked.is_some()).await);
    }

    /// Ends a term: what there is beside the addresses that are known has to be found out again.
    pub(super) fn end_term(&self) {
        self.known.send_modify(|known| known.looked = None);
    }

    /// Keeps looking until it is dropped.
    pub(super) async fn follow(&self, context: &Context) {
        self.repeat(|| self.look(context)).await;
    }

    async fn repeat<F>(&self, look: impl Fn() -> F)
    where
        F: Future<Output = Result<Vec<IpAddr>, String>>,
    {
        let (mut pause, mut failed) = (FIRST_PAUSE, None);
        loop {
            let found = tokio::time::timeout(PATIENCE, look()).await;
            let found = found.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")));
            let cause = found.as_ref().err().cloned();
            if let Some(cause) = cause.as_ref().filter(|_| failed != cause) {
                // Once: where the manager may not look, it stays so.
                tracing::warn!(%cause, "the addresses of the API server cannot be looked up");
            }
            failed = cause;
            self.learn(found);
            let is_known = matches!(self.known.borrow().looked, Some(Ok(())));
            tokio::time::sleep(if is_known { PERIOD } else { pause }).await;
            pause = (pause * 2).min(PERIOD);
        }
    }

    fn learn(&self, found: Result<Vec<IpAddr>, String>) {
        let now = Instant::now();
        match found {
            Ok(found) => self.known.send_modify(|known| {
                known.addresses.extend(found.into_iter().map(|ip| (ip.to_canonical(), now)));
                known.addresses.retain(|_, seen| now.duration_since(*seen) < SEEN);
                known.looked = Some(Ok(()));
            }),
            // Those that were found go on counting.
            Err(cause) => self.known.send_modify(|known| {
                if known.looked != Some(Ok(())) {
                    known.looked = Some(Err(cause));
                }
            }),
        }
    }

    /// Finds all addresses. The name is looked up as the manager's own connections look it up.
    async fn look(&self, context: &Context) -> Result<Vec<IpAddr>, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|error| format!("{}: {error}", self.host))?;
        let mut ips: Vec<IpAddr> = found.map(|address| address.ip()).collect();

        let (namespace, name) = SERVICE;
        // Asked for and not cached: the cache may be of other namespaces only.
        let services = Api::<Service>::namespaced(context.client().clone(), namespace);
        let slices = Api::<EndpointSlice>::namespaced(context.client().clone(), namespace);
        let only_it = ListParams::default().fields(&format!("metadata.name={name}"));
        let of_it = ListParams::default().labels(&format!("{SERVICE_NAME_LABEL}={name}"));
        let unread = |error: kube::Error| format!("Service {namespace}/{name}: {error}");
        let services = services.list(&only_it).await.map_err(unread)?;
        let slices = slices.list(&of_it).await.map_err(unread)?;
        let specs = services.into_iter().filter_map(|service| service.spec);
        let of_services =
            specs.flat_map(|spec| spec.cluster_ips.unwrap_or_else(|| Vec::from_iter(spec.cluster_ip)));
        let endpoints = slices.into_iter().filter_map(|slice| slice.endpoints).flatten();
        let of_slices = endpoints.flat_map(|endpoint| endpoint.addresses);
        ips.extend(of_services.chain(of_slices).filter_map(|text| text.parse::<IpAddr>().ok()));
        Ok(ips)
    }
}

#[cfg(test)]
mod tests;
