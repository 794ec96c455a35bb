//! One probe: policy, lookup, connections, the exchange over one of them, result.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use mainstay_api::{Address, ProbeCheck};
use tokio::time::Instant;

use super::dial::Connection;
use super::kinds::{Failure, PreparedCheck, resolve_records, unresolved};
use super::policy::{Authorizer, Detail, Route};
use super::reachability::Reachability;
use super::{ProbeResult, Seams, Target};
use crate::reasons::probe;
use crate::settings::ProbePolicy;

/// Maximum number of addresses of one name that a probe tries, at the same time: two of each family would do,
/// and a Service with a hundred endpoints must not cost a hundred sockets.
const MAX_ADDRESSES: usize = 4;

/// The outcome of one attempt to probe a target.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) result: ProbeResult,
    /// Whether the network answered the attempt; `None` if the target was not contacted.
    pub(super) reachability: Option<Reachability>,
}

/// The progress of an attempt to probe a target, from which the result is made if its time ends now.
struct Progress {
    /// How much detail of the result may be published; known before the first step that could take all the
    /// time.
    detail: Detail,
    /// The result of the attempt if its time ends during a request to another server than the target, such as
    /// a name server: its silence is no evidence against the target.
    pending: Option<ProbeResult>,
    /// The failure of this attempt so far that got furthest; `None` before the first failure.
    failure: Option<Failure>,
    reachability: Option<Reachability>,
}

/// Probes a target once, within `timeout`, and returns the outcome.
pub(super) async fn attempt(
    target: &Target,
    timeout: Duration,
    policy: &ProbePolicy,
    seams: &Seams,
) -> Attempt {
    let mut progress = Progress { detail: Detail::Full, pending: None, failure: None, reachability: None };
    let probe = probe(target, timeout, policy, seams, &mut progress);
    let result = match tokio::time::timeout(timeout, probe).await {
        Ok(Ok(())) => ProbeResult::good(target.check()),
        Ok(Err(result)) => result,
        Err(_) => progress.pending.unwrap_or_else(|| {
            progress.failure.unwrap_or_else(|| Failure::timeout(timeout)).at(progress.detail)
        }),
    };
    Attempt { result, reachability: progress.reachability }
}

/// Probes a target once and records how far it got in `progress`. Fails with the result of an unsuccessful
/// probe.
async fn probe(
    target: &Target,
    timeout: Duration,
    policy: &ProbePolicy,
    seams: &Seams,
    progress: &mut Progress,
) -> Result<(), ProbeResult> {
    let authorizer = Authorizer {
        policy,
        namespace: target.namespace(),
        restricted: None,
        services: &*seams.services,
        cluster: &*seams.cluster,
    };
    if let ProbeCheck::Dns(check) = target.check() {
        authorizer.check_lookup(&check.name)?;
        progress.pending = Some(unresolved(&io::ErrorKind::TimedOut.into()).at(Detail::Full));
        let outcome = resolve_records(check, &*seams.resolve, &mut progress.reachability).await;
        return outcome.map_err(|failure| failure.at(Detail::Full));
    }
    let Some(address) = target.address() else {
        return Err(ProbeResult::not_ready(probe::FAILED, "the check has no address to connect to"));
    };
    let addresses = pick(addresses(authorizer, address, seams, progress).await?);
    // A failure to prepare concerns the user's own objects, so full detail reveals nothing about others.
    progress.pending = PreparedCheck::prepare_timeout(target.check()).map(|failure| failure.at(Detail::Full));
    let check = PreparedCheck::prepare(target.check(), target.namespace(), &*seams.cluster).await;
    let check = check.map_err(|failure| failure.at(Detail::Full))?;
    progress.pending = None;
    let outcome = first_success(&addresses, timeout, &check, seams, progress).await;
    outcome.map_err(|failure| failure.at(progress.detail))
}

/// Returns the addresses that a probe of `address` may dial, or the result of the probe if it may dial none.
async fn addresses(
    mut authorizer: Authorizer<'_>,
    address: &Address,
    seams: &Seams,
    progress: &mut Progress,
) -> Result<Vec<SocketAddr>, ProbeResult> {
    loop {
        match authorizer.route(address)? {
            Route::Dial(addresses, found) => {
                progress.detail = found;
                return Ok(addresses);
            }
            Route::NeedsNamespace => {
                let unknown = |cause: &str| {
                    let message = format!("namespace {} cannot be read: {cause}", authorizer.namespace);
                    ProbeResult::not_ready(probe::NAMESPACE_UNKNOWN, message)
                };
                progress.pending = Some(unknown("no answer in time"));
                let restricted = seams.cluster.is_restricted(authorizer.namespace).await;
                authorizer.restricted = Some(restricted.map_err(|cause| unknown(&cause))?);
            }
            Route::Resolve(name) => {
                progress.detail = Detail::Coarse;
                progress.pending = Some(unresolved(&io::ErrorKind::TimedOut.into()).at(Detail::Coarse));
                progress.reachability = Some(Reachability::Silent);
                let found = seams.resolve.resolve(&name).await;
                // An answer of the name server does not show that the host is reachable.
                let reached = Some(Reachability::of(&found));
                progress.reachability = reached.filter(|reached| *reached != Reachability::Answered);
                let found = found.map_err(|error| unresolved(&error).at(Detail::Coarse))?;
                return authorizer.check_resolved(&name, &found, address.port);
            }
        }
    }
}

/// Picks the addresses to dial, at most [`MAX_ADDRESSES`]; both IPv4 and IPv6 addresses if the host has both.
fn pick(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (mut v4, mut v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv4);
    v4.truncate(MAX_ADDRESSES - v6.len().min(MAX_ADDRESSES / 2));
    v6.truncate(MAX_ADDRESSES - v4.len());
    v4.extend(v6);
    v4
}

/// Connects to all addresses and runs the check over the first connection; over the next connection as soon
/// as a check fails or takes more than its share of the time. So mostly one request is sent, and a hanging
/// endpoint does not hide the others. If no check succeeds, the result is the failure that got furthest.
async fn first_success(
    addresses: &[SocketAddr],
    timeout: Duration,
    check: &PreparedCheck<'_>,
    seams: &Seams,
    progress: &mut Progress,
) -> Result<(), Failure> {
    progress.reachability = Some(Reachability::Silent).filter(|_| !addresses.is_empty());
    let share = timeout / u32::try_from(addresses.len() + 1).unwrap_or(u32::MAX);
    let mut dials: FuturesUnordered<_> = addresses.iter().map(|address| seams.dial.dial(*address)).collect();
    let mut connected: VecDeque<Connection> = VecDeque::new();
    let mut checks = FuturesUnordered::new();
    let mut next_at = Instant::now();
    loop {
        let impatient = Instant::now() >= next_at;
        if (checks.is_empty() || impatient)
            && let Some(connection) = connected.pop_front()
        {
            checks.push(check.run(connection));
            next_at = Instant::now() + share;
        }
        if dials.is_empty() && checks.is_empty() {
            let none = || Failure::before(probe::FAILED, "the name has no address to connect to");
            return Err(progress.failure.take().unwrap_or_else(none));
        }
        // Biased: the end of a check may end the attempt, so it goes before further connections.
        let outcome = tokio::select! {
            biased;
            Some(outcome) = checks.next(), if !checks.is_empty() => outcome,
            Some(dialled) = dials.next(), if !dials.is_empty() => {
                progress.reachability = progress.reachability.max(Some(Reachability::of(&dialled)));
                match dialled {
                    Ok(connection) => {
                        connected.push_back(connection);
                        continue;
                    }
                    Err(error) => Err(Failure::of_dial(&error)),
                }
            }
            () = tokio::time::sleep_until(next_at), if !connected.is_empty() => continue,
        };
        let Err(failure) = outcome else { return Ok(()) };
        progress.failure = progress.failure.take().into_iter().chain([failure]).reduce(Failure::or_further);
    }
}

#[cfg(test)]
mod tests;
