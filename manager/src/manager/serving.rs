//! The servers of a manager: probes, metrics, debug pages.

use std::path::Path;
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
use super::{BuildError, ManagerOptions, Shared, own_namespace};
use crate::client::connect::{Connections, Role};
use crate::election::Notice;
use crate::health::{Checks, Group};
use crate::inspect::{self, Address, Configuration, Inspect, Leader, Peers};
use crate::metrics::{Format, Registry, ScrapeCache};
use crate::serve::{BlockingSlots, Bound, Certificates, Reads};

/// The audience that tokens for the debug pages must have; no API server accepts such a token.
const INSPECT_AUDIENCE: &str = "mainstay-inspect";

/// The most health probes of one group that are answered at the same time: enough for a kubelet and a few
/// people.
const PROBES_AT_ONCE: usize = 8;

// === impl Shared ===

impl Shared {
    /// Returns the leadership that the debug pages show; `candidate` is `None` without an election.
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

    /// Returns the jobs for the control thread that serve health probes, metrics and debug pages until
    /// `stop`.
    pub(super) fn servers(
        &self,
        probes: Option<Bound>,
        metrics: Option<Bound>,
        inspect: Option<(Bound, Leader)>,
        stop: &CancellationToken,
    ) -> Vec<Job> {
        let configuration = self.members.configuration();
        let mut jobs = Vec::new();
        let mut serve = |name, bound: Bound, router: Router, reviewers: Option<(Connections, _)>| {
            info!(server = name, address = %bound.local_addr(), "serving");
            let stop = stop.clone();
            jobs.push(Job::new(name, move || async move {
                let router = match reviewers {
                    // Reviews are neither leader-only work nor writes that the cache has to observe.
                    Some((connections, audience)) => {
                        reviewed(router, Reviews::new(connections.client(Role::Watches)?, audience))
                    }
                    None => router,
                };
                Ok(bound.run(router, stop).await?)
            }));
        };
        let reviewers = || self.clusters.own().connections().clone();
        if let Some(bound) = probes {
            serve("probes", bound, self::probes(&self.checks), None);
        }
        if let Some(bound) = metrics {
            let reviewers = configuration.metrics.auth.then(|| (reviewers(), None));
            serve("metrics", bound, scrapes(ScrapeCache::new(self.registry.clone())), reviewers);
        }
        if let Some((bound, leader)) = inspect {
            let peers = Peers::new(leader.clone(), self.notice.clone());
            let (pages, token) = (self.debug_pages(leader), self.inspect_token.clone());
            let pages = if configuration.inspect.peers { peers.before(pages) } else { pages };
            let Some(token) = token else {
                let reviewers = configuration.inspect.auth.then(|| (reviewers(), Some(INSPECT_AUDIENCE)));
                serve("inspect", bound, pages, reviewers);
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
            Configuration { status: self.reloads.reload_status(), controllers: Box::new(controllers) };
        let mut inspect = Inspect::new(self.directory.clone(), cache, leader);
        inspect.configuration = Some(configuration);
        inspect.set_log_level = self.reloads.log_level();
        inspect.own = self.pages.clone();
        inspect.router()
    }
}

/// Sets up TLS for the server of a bound port if `directory`, the value of the key `key`, is configured.
/// Returns the port, and the certificates if TLS is used.
pub(super) fn secured(
    bound: Option<Bound>,
    key: &'static str,
    directory: Option<&Path>,
) -> Result<(Option<Bound>, Option<Certificates>), BuildError> {
    let Some(directory) = directory else { return Ok((bound, None)) };
    let Some(bound) = bound else { return Ok((None, None)) };
    let certificates = Certificates::load(directory);
    let certificates = certificates.map_err(|source| BuildError::Certificates { key, source })?;
    Ok((Some(bound.with_certificates(certificates.clone())), Some(certificates)))
}

/// Returns the notice that this replica publishes on the Lease while it holds it: the address for requests of
/// other replicas, and its certificate.
pub(super) fn notice(
    options: &ManagerOptions,
    bound: &Bound,
    certificates: Certificates,
) -> Result<Notice, BuildError> {
    let (mut address, holder) = (bound.local_addr(), options.identity.clone());
    if address.ip().is_unspecified() {
        address.set_ip(options.pod_ip.ok_or(BuildError::NoPeerAddress)?);
    }
    Ok(Notice::new(move || {
        let own = Address { holder: holder.clone(), address, sha256: certificates.sha256() };
        serde_json::to_string(&own).ok()
    }))
}

/// Registers the counters of reads of the certificate of the metrics server.
pub(super) fn count_reads(certificates: &Certificates, registry: &Registry) {
    let Reads { total, errors } = certificates.reads();
    registry.register("certwatcher_read_certificate", "Number of certificate reads", total);
    registry.register("certwatcher_read_certificate_errors", "Number of certificate read errors", errors);
}

/// Returns the router of the health probes, which runs each group of checks on threads of its own. Checks may
/// be user code and block: while a readiness check hangs, the kubelet has to get the answer of the liveness
/// check, or it would restart the process in vain.
pub(super) fn probes(checks: &Checks) -> Router {
    let turns = Group::ALL.map(|group| (group, BlockingSlots::new(PROBES_AT_ONCE)));
    let checks = checks.clone();
    Router::new().fallback(async move |head: Parts| {
        let request = Request::from_parts(head, ());
        let asked = Group::at(request.uri().path());
        match turns.into_iter().find(|(group, _)| Some(*group) == asked) {
            Some((_, turns)) => turns.answer(move || checks.respond(&request).map(Body::from)).await,
            // An unknown path, for which no check runs.
            None => checks.respond(&request).map(Body::from),
        }
    })
}

pub(super) fn scrapes(answers: ScrapeCache) -> Router {
    // Collectors may be user code, and block.
    let (answers, turns) = (Arc::new(answers), BlockingSlots::new(1));
    let scrape = get(async move |headers: HeaderMap| turns.answer(move || scrape(&answers, &headers)).await)
        .fallback(async || (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")]));
    Router::new().route("/metrics", scrape.clone()).route("/metrics/", scrape)
}

fn scrape(answers: &ScrapeCache, headers: &HeaderMap) -> Response {
    // Several lines of it are one list, RFC 9110 5.3.
    let accept: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).collect();
    let format = Format::negotiate(Some(&*accept.join(", ")).filter(|accept| !accept.is_empty()));
    let Ok(text) = answers.encode(format) else {
        error!("a collector could not write its metrics");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    ([(CONTENT_TYPE, format.content_type())], text).into_response()
}

#[cfg(test)]
mod tests;
