//! The servers of every manager: probes, metrics, debug pages.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderMap};
use http::request::Parts;
use http::{Request, StatusCode};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::candidate::Candidate;
use super::control::Job;
use super::guard::{Reviews, reviewed, token_required};
use super::{BuildError, Shared, own_namespace};
use crate::client::connect::{Connections, Role};
use crate::config;
use crate::health::{Checks, Group};
use crate::inspect::{self, Configuration, Inspect, Leader};
use crate::metrics::{Answers, Format, Registry};
use crate::serve::{Bound, Certificates, Reads, Turns};

/// Probes of one group that are answered at the same time: those of a kubelet, and of a few people.
const PROBES_AT_ONCE: usize = 8;

// === impl Shared ===

impl Shared {
    /// What the inspection may say about who leads.
    pub(super) fn leader(&self, candidate: Option<&Candidate>) -> Leader {
        let (election, pod) = (self.election.as_ref().zip(candidate), self.options.pod.as_ref());
        Leader {
            identity: self.options.identity.clone(),
            namespace: pod.and_then(|pod| pod.namespace.clone()).or_else(own_namespace),
            election: election.map(|(settings, candidate)| inspect::Election {
                namespace: settings.namespace.clone(),
                lease_name: settings.lease_name.clone(),
                leadership: candidate.leadership.clone(),
                history: candidate.history.clone(),
            }),
            term: self.term.clone(),
            fence: self.fence.clone(),
        }
    }

    /// Returns the servers of probes, metrics and debug pages, for the control thread.
    pub(super) fn servers(
        &self,
        probes: Option<Bound>,
        metrics: Option<Bound>,
        inspect: Option<(Bound, Leader)>,
        stop: &CancellationToken,
    ) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut serve = |name, bound: Bound, router: Router, reviewers: Option<Connections>| {
            info!(server = name, address = %bound.local_addr(), "serving");
            let stop = stop.clone();
            jobs.push(Job::new(name, move || async move {
                let router = match reviewers {
                    // Neither leader-only work nor writes that the cache has to learn of.
                    Some(connections) => reviewed(router, Reviews::new(connections.client(Role::Watches)?)),
                    None => router,
                };
                Ok(bound.run(router, stop).await?)
            }));
        };
        if let Some(bound) = probes {
            serve("probes", bound, self::probes(&self.checks), None);
        }
        if let Some(bound) = metrics {
            let reviewers = self.guards.reviewed.then(|| self.clusters.own().connections().clone());
            serve("metrics", bound, scrapes(Answers::new(self.registry.clone())), reviewers);
        }
        if let Some((bound, leader)) = inspect {
            let (pages, token) = (self.debug_pages(leader), self.guards.token.clone());
            let Some(token) = token else {
                serve("inspect", bound, pages, None);
                return jobs;
            };
            serve("inspect", bound, token_required(pages, token.clone()), None);
            let stop = stop.clone();
            jobs.push(Job::new("inspect token", move || async move {
                stop.run_until_cancelled(token.follow()).await;
                Ok(())
            }));
        }
        jobs
    }

    fn debug_pages(&self, leader: Leader) -> Router {
        let cache = self.clusters.own().cache().clone();
        let reloads = self.reloads.clone();
        let controllers = move |loaded: &_| reloads.controllers(loaded);
        let configuration =
            Configuration { standing: self.reloads.standing(), controllers: Box::new(controllers) };
        let mut inspect = Inspect::new(self.directory.clone(), cache, leader);
        inspect.configuration = Some(configuration);
        inspect.set_log_level = self.reloads.log_level();
        inspect.own = self.pages.clone();
        inspect.router()
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

/// Answers each group in turns of its own. Checks may be users' own, and block: while one of readiness hangs, a kubelet
/// still has to learn that the process lives, or it would kill a process that a restart does not mend.
pub(super) fn probes(checks: &Checks) -> Router {
    let turns = Group::ALL.map(|group| (group, Turns::new(PROBES_AT_ONCE)));
    let checks = checks.clone();
    Router::new().fallback(async move |head: Parts| {
        let request = Request::from_parts(head, ());
        let asked = Group::at(request.uri().path());
        match turns.into_iter().find(|(group, _)| Some(*group) == asked) {
            Some((_, turns)) => turns.answer(move || checks.respond(&request).map(Body::from)).await,
            // There is nothing to run.
            None => checks.respond(&request).map(Body::from),
        }
    })
}

pub(super) fn scrapes(answers: Answers) -> Router {
    // Collectors may be users' own, and block.
    let (answers, turns) = (Arc::new(answers), Turns::new(1));
    let scrape = get(async move |headers: HeaderMap| turns.answer(move || scrape(&answers, &headers)).await)
        .fallback(async || (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")]));
    Router::new().route("/metrics", scrape.clone()).route("/metrics/", scrape)
}

fn scrape(answers: &Answers, headers: &HeaderMap) -> Response {
    // Several lines of it are one list, RFC 9110 5.3.
    let accept: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).collect();
    let format = Format::negotiate(Some(&*accept.join(", ")).filter(|accept| !accept.is_empty()));
    let Ok(text) = answers.answer(format) else {
        error!("a collector could not write its metrics");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    ([(CONTENT_TYPE, format.content_type())], text).into_response()
}

#[cfg(test)]
mod tests;
