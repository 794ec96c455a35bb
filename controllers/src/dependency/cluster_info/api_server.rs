//! The addresses of the API server: of its host name, and of the Service `default/kubernetes`.
//!
//! # Invariants
//! 1. `is_at` returns `Ok(false)` only after a complete lookup in this term of leadership.
//! 2. Failed lookups remove no address. An address that successful lookups no longer return stays for
//!    [`ADDRESS_TTL`], since the name of a load balancer resolves to other machines each time.

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

/// Time from the end of one lookup of the API server's addresses to the next, once a lookup has succeeded.
const PERIOD: Duration = Duration::from_secs(30);
/// Time from the first failed lookup of the API server's addresses in a term of leadership to the next
/// lookup; doubled after each further failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest duration of one lookup of the API server's addresses.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long an address of the API server is kept after the last lookup that returned it, although later
/// lookups do not.
const ADDRESS_TTL: Duration = Duration::from_hours(1);
/// Namespace and name of the Service through which Pods reach the API server.
const SERVICE: (&str, &str) = ("default", "kubernetes");

/// The known addresses of the API server, from repeated lookups.
#[derive(Debug)]
pub(super) struct ApiServer {
    /// Host name or IP address by which the manager reaches the API server; an IPv6 address has no brackets.
    host: String,
    port: u16,
    known: watch::Sender<Known>,
}

#[derive(Debug)]
struct Known {
    /// Each known address of the API server, with the time of the last lookup that returned it.
    addresses: HashMap<IpAddr, Instant>,
    /// The outcome of the lookups of the API server's addresses in this term of leadership; `None` before the
    /// end of the first one. An error is the reason why other addresses may exist. Once `Ok`, it stays `Ok`
    /// to the end of the term.
    lookup: Option<Result<(), String>>,
}

// === impl ApiServer ===

impl ApiServer {
    /// Makes a list without known addresses; `server` is the address by which the manager reaches the API
    /// server.
    pub(super) fn new(server: &http::Uri) -> Self {
        let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
        let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let known = watch::Sender::new(Known { addresses: HashMap::new(), lookup: None });
        Self { host: host.to_owned(), port, known }
    }

    /// Returns whether an address belongs to the API server. For an unknown address it fails until a lookup
    /// has succeeded in this term of leadership.
    pub(super) fn is_at(&self, address: SocketAddr) -> Result<bool, String> {
        let known = self.known.borrow();
        // All ports of the machine count. On loopback only the port of the API server does, since there other
        // servers of a developer run on the same address.
        let is_it = known.addresses.contains_key(&address.ip())
            && (address.port() == self.port || !address.ip().is_loopback());
        if is_it {
            return Ok(true);
        }
        let lookup = known.lookup.clone().unwrap_or_else(|| Err("they were not looked up yet".to_owned()));
        lookup.map(|()| false)
    }

    /// Waits for the end of the first lookup of the API server's addresses in this term of leadership,
    /// successful or not.
    pub(super) async fn first_lookup(&self) {
        let mut known = self.known.subscribe();
        // The sender lives in `self`, so the channel cannot close meanwhile.
        drop(known.wait_for(|known| known.lookup.is_some()).await);
    }

    /// Ends a term of leadership. The known addresses of the API server stay, and the next term looks them up
    /// again.
    pub(super) fn end_term(&self) {
        self.known.send_modify(|known| known.lookup = None);
    }

    /// Looks up the addresses of the API server periodically, for as long as the future is polled.
    pub(super) async fn follow(&self, context: &Context) {
        self.repeat(|| self.look_up(context)).await;
    }

    async fn repeat<F>(&self, look_up: impl Fn() -> F)
    where
        F: Future<Output = Result<Vec<IpAddr>, String>>,
    {
        let (mut retry, mut failed) = (FIRST_RETRY, None);
        loop {
            let found = tokio::time::timeout(TIMEOUT, look_up()).await;
            let found = found.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")));
            let cause = found.as_ref().err().cloned();
            if let Some(cause) = cause.as_ref().filter(|_| failed != cause) {
                // Logged once per cause: a missing right mostly stays missing.
                tracing::warn!(%cause, "looking up the addresses of the API server failed");
            }
            failed = cause;
            self.store(found);
            let is_known = matches!(self.known.borrow().lookup, Some(Ok(())));
            tokio::time::sleep(if is_known { PERIOD } else { retry }).await;
            retry = (retry * 2).min(PERIOD);
        }
    }

    fn store(&self, found: Result<Vec<IpAddr>, String>) {
        let now = Instant::now();
        self.known.send_modify(|known| match found {
            Ok(found) => {
                known.addresses.extend(found.into_iter().map(|ip| (ip.to_canonical(), now)));
                known.addresses.retain(|_, seen| now.duration_since(*seen) < ADDRESS_TTL);
                known.lookup = Some(Ok(()));
            }
            // The addresses of earlier lookups stay.
            Err(cause) if known.lookup != Some(Ok(())) => known.lookup = Some(Err(cause)),
            Err(_) => {}
        });
    }

    /// Looks up all addresses of the API server: those of its host name, resolved as for the manager's own
    /// connections, and those of the Service `default/kubernetes` and its endpoints.
    async fn look_up(&self, context: &Context) -> Result<Vec<IpAddr>, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found = found.map_err(|error| format!("{}: {error}", self.host))?;
        let mut ips: Vec<IpAddr> = found.map(|address| address.ip()).collect();

        let (namespace, name) = SERVICE;
        // Read from the API server: the cache may be limited to other namespaces.
        let services = Api::<Service>::namespaced(context.client().clone(), namespace);
        let slices = Api::<EndpointSlice>::namespaced(context.client().clone(), namespace);
        let by_name = ListParams::default().fields(&format!("metadata.name={name}"));
        let by_label = ListParams::default().labels(&format!("{SERVICE_NAME_LABEL}={name}"));
        let unread = |error: kube::Error| format!("Service {namespace}/{name}: {error}");
        let services = services.list(&by_name).await.map_err(unread)?;
        let slices = slices.list(&by_label).await.map_err(unread)?;
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
