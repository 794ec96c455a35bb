//! What the manager serves by itself: probes, metrics, inspection.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::candidate::Candidate;
use super::control::Job;
use super::guard::{Reviews, reviewed, token_required};
use super::{BuildError, Shared};
use crate::client::connect::Role;
use crate::config;
use crate::health::{Checks, Group};
use crate::inspect::{self, Inspect, Leader};
use crate::metrics::{Answers, Format, Registry};
use crate::serve::{Bound, Certificates, Handler, Reads, blocking};

/// Probes of one group that are answered at the same time: those of a kubelet, and of a few people.
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
        let probe = probe(&self.checks);
        let answers = Answers::new(self.registry.clone());
        // Collectors may be users' own, and block.
        let scrape = blocking(1, move |request| scrape(&answers, request));
        let (inspect, inspection) = inspect
            .map(|(bound, leader)| {
                let cache = self.clusters.own().cache().clone();
                let inspect = Inspect::new(self.directory.clone(), cache, leader);
                let reloads = self.reloads.clone();
                let controllers = move |loaded: &_| reloads.controllers(loaded);
                let inspect = inspect.with_own(self.pages.clone());
                let mut inspect = inspect.with_configuration(self.reloads.standing(), controllers);
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

/// Answers each group by turns of its own. Checks may be users' own, and block: where one of readiness hangs, a kubelet
/// still has to hear that the process lives, or it would kill what a restart does not mend.
fn probe(checks: &Checks) -> Handler {
    let turns = Group::ALL.map(|group| {
        let checks = checks.clone();
        (group, blocking(PROBES_AT_ONCE, move |request| checks.respond(request)))
    });
    let checks = checks.clone();
    Arc::new(move |request| {
        let asked = Group::at(request.uri().path());
        match turns.iter().find(|(group, _)| Some(*group) == asked) {
            Some((_, answer)) => answer(request),
            // There is nothing to run.
            None => std::future::ready(checks.respond(&request)).boxed(),
        }
    })
}

fn scrape<B>(answers: &Answers, request: &http::Request<B>) -> http::Response<bytes::Bytes> {
    let status = |code: http::StatusCode| {
        let mut response = http::Response::new(bytes::Bytes::from_static(b""));
        *response.status_mut() = code;
        response
    };
    if request.uri().path().trim_end_matches('/') != "/metrics" {
        return status(http::StatusCode::NOT_FOUND);
    }
    if !matches!(*request.method(), http::Method::GET | http::Method::HEAD) {
        let mut refusal = status(http::StatusCode::METHOD_NOT_ALLOWED);
        refusal.headers_mut().insert(http::header::ALLOW, http::HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    // Several lines of it are one list, RFC 9110 5.3.
    let accept = request.headers().get_all(http::header::ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|accept| accept.to_str().ok()).collect();
    let format = Format::negotiate(Some(&*accept.join(", ")).filter(|accept| !accept.is_empty()));
    let Ok(text) = answers.answer(format) else {
        error!("a collector could not write its metrics");
        return status(http::StatusCode::INTERNAL_SERVER_ERROR);
    };
    let mut response = http::Response::new(text);
    let content_type = http::HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests;
