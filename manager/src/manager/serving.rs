//! What the manager serves by itself: probes, metrics, inspection.

use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::candidate::Candidate;
use super::control::Job;
use super::guard::{Reviews, reviewed, token_required};
use super::{BuildError, Shared};
use crate::client::connect::Role;
use crate::config;
use crate::inspect::{self, Inspect, Leader};
use crate::metrics::{Format, Registry};
use crate::serve::{Bound, Certificates, Reads, blocking};

/// Probes answered at the same time: liveness and readiness of a kubelet, and a few people.
const PROBES_AT_ONCE: usize = 8;

// === impl Shared ===

impl Shared {
    /// What the inspection may say about who leads.
    pub(super) fn leader(&self, candidate: Option<&Candidate>) -> Leader {
        let election = self.election.as_ref().zip(candidate);
        Leader {
            identity: self.options.identity.clone(),
            election: election.map(|(settings, candidate)| inspect::Election {
                namespace: settings.namespace.clone(),
                lease_name: settings.lease_name.clone(),
                leadership: candidate.leadership(),
                history: candidate.history(),
            }),
            term: self.term.clone(),
            fence: self.fence.clone(),
        }
    }

    /// What serves probes, metrics and inspection on the control thread.
    pub(super) fn servers(
        &self,
        probes: Option<Bound>,
        metrics: Option<Bound>,
        inspect: Option<(Bound, Leader)>,
        stop: &CancellationToken,
    ) -> Vec<Job> {
        let checks = self.checks.clone();
        let registry = self.registry.clone();
        // Checks and collectors may be users' own, and block. A probe must not wait behind another one that does.
        let probe = blocking(PROBES_AT_ONCE, move |request| checks.respond(request));
        let scrape = blocking(1, move |request| scrape(&registry, request));
        let (inspect, inspection) = inspect
            .map(|(bound, leader)| {
                let cache = self.clusters.own().cache().clone();
                let inspect = Inspect::new(self.directory.clone(), cache, leader);
                let mut inspect = inspect.with_configuration(self.reloads.standing());
                if let Some(set) = self.reloads.log_level() {
                    inspect = inspect.with_log_level(set);
                }
                (bound, inspect.handler())
            })
            .unzip();
        let inspection = inspection.map(|handler| match self.guards.token.clone() {
            Some(file) => token_required(handler, file),
            None => handler,
        });
        let reviewers = self.guards.reviewed.then(|| self.clusters.own().connections().clone());
        let servers = [
            ("probes", probes, Some(probe), None),
            ("metrics", metrics, Some(scrape), reviewers),
            ("inspect", inspect, inspection, None),
        ];
        servers
            .into_iter()
            .filter_map(|(name, bound, handler, reviewers)| {
                let (bound, handler, stop) = (bound?, handler?, stop.clone());
                info!(server = name, address = %bound.local_addr(), "serving");
                Some(Job::new(name, move || async move {
                    let handler = match reviewers {
                        // No leader-only work, and nobody's own write.
                        Some(connections) => {
                            reviewed(handler, Reviews::new(connections.client(Role::Watches)?))
                        }
                        None => handler,
                    };
                    Ok(bound.run(handler, stop).await?)
                }))
            })
            .collect()
    }
}

/// Has metrics served over TLS if the configuration says so, and the reads of the certificate counted.
pub(super) fn secured(
    bound: Option<Bound>,
    metrics: &config::Metrics,
    registry: &Registry,
) -> Result<Option<Bound>, BuildError> {
    let Some(directory) = &metrics.tls_dir else { return Ok(bound) };
    let Some(bound) = bound else { return Ok(None) };
    let certificates = Certificates::load(directory).map_err(BuildError::Certificates)?;
    let Reads { total, errors } = certificates.reads();
    registry.register("certwatcher_read_certificate", "Number of certificate reads", total);
    registry.register("certwatcher_read_certificate_errors", "Number of certificate read errors", errors);
    Ok(Some(bound.with_certificates(certificates)))
}

fn scrape<B>(registry: &Registry, request: &http::Request<B>) -> http::Response<bytes::Bytes> {
    let status = |code: http::StatusCode| {
        let mut response = http::Response::new(bytes::Bytes::from_static(b""));
        *response.status_mut() = code;
        response
    };
    if request.uri().path().trim_end_matches('/') != "/metrics" {
        return status(http::StatusCode::NOT_FOUND);
    }
    if !matches!(*request.method(), http::Method::GET | http::Method::HEAD) {
        return status(http::StatusCode::METHOD_NOT_ALLOWED);
    }
    let accept = request.headers().get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::negotiate(accept);
    let Ok(text) = registry.encode(format) else {
        error!("a collector could not write its metrics");
        return status(http::StatusCode::INTERNAL_SERVER_ERROR);
    };
    let mut response = http::Response::new(text.into());
    let content_type = http::HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests;
