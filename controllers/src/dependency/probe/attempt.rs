//! One probe: policy, look-up, connections, the check over one of them, result.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use mainstay_api::{Address, ProbeCheck};
use tokio::time::Instant;

use super::dial::Connection;
use super::kinds::{Failure, Talk, look_up, unresolved};
use super::policy::{Detail, Judge, Route};
use super::reachability::Reachability;
use super::{ProbeResult, Seams, Target};
use crate::reasons::probe;
use crate::settings::ProbePolicy;

/// Most addresses of one name that are tried, at the same time: two of each family would do, and a Service
/// with a hundred endpoints must not cost a hundred sockets.
const MAX_ADDRESSES: usize = 4;

/// How one attempt ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) result: ProbeResult,
    /// `None`: the target was not asked.
    pub(super) reachability: Option<Reachability>,
}

/// How far an attempt has got, should its time end now.
struct Progress {
    /// How much may be published; known before the first step that could take all the time.
    detail: Detail,
    /// The result while another party than the target is asked: its silence proves nothing about the target.
    pending: Option<ProbeResult>,
    reachability: Option<Reachability>,
}

/// How long an attempt may take.
#[derive(Clone, Copy)]
struct Time {
    timeout: Duration,
    deadline: Instant,
}

/// Probes a target once; ends within `timeout`.
pub(super) async fn attempt(
    target: &Target,
    timeout: Duration,
    policy: &ProbePolicy,
    seams: &Seams,
) -> Attempt {
    let mut progress = Progress { detail: Detail::Full, pending: None, reachability: None };
    let time = Time { timeout, deadline: Instant::now() + timeout };
    let probe = probe(target, time, policy, seams, &mut progress);
    let result = match tokio::time::timeout_at(time.deadline, probe).await {
        Ok(result) => result,
        Err(_) => progress.pending.unwrap_or_else(|| Failure::timeout(timeout).at(progress.detail)),
    };
    Attempt { result, reachability: progress.reachability }
}

async fn probe(
    target: &Target,
    time: Time,
    policy: &ProbePolicy,
    seams: &Seams,
    progress: &mut Progress,
) -> ProbeResult {
    let judge = Judge {
        policy,
        namespace: target.namespace(),
        restricted: None,
        services: &*seams.services,
        surroundings: &*seams.surroundings,
    };
    if let ProbeCheck::Dns(check) = target.check() {
        if let Some(denied) = judge.refuses_look_up(&check.name) {
            return denied;
        }
        progress.pending = Some(unresolved(&io::ErrorKind::TimedOut.into()).at(Detail::Full));
        let outcome = look_up(check, &*seams.resolve, &mut progress.reachability).await;
        return result(target, outcome, Detail::Full);
    }
    let Some(address) = target.address() else {
        return Failure::before(probe::FAILED, "there is nothing to connect to").at(Detail::Full);
    };
    let addresses = match addresses(judge, address, seams, progress).await {
        Ok(addresses) => pick(addresses),
        Err(result) => return result,
    };
    // A mistake here is one of the user's own objects, so it reveals nothing about others.
    progress.pending = Talk::unprepared(target.check()).map(|failure| failure.at(Detail::Full));
    let talk = match Talk::prepare(target.check(), target.namespace(), &*seams.surroundings).await {
        Ok(talk) => talk,
        Err(failure) => return failure.at(Detail::Full),
    };
    progress.pending = None;
    let outcome = first_that_holds(&addresses, time, &talk, seams, &mut progress.reachability).await;
    result(target, outcome, progress.detail)
}

fn result(target: &Target, outcome: Result<(), Failure>, detail: Detail) -> ProbeResult {
    outcome.map_or_else(|failure| failure.at(detail), |()| ProbeResult::good(target.check()))
}

/// Finds the addresses that may be dialled, or the result that there is without dialling.
async fn addresses(
    mut judge: Judge<'_>,
    address: &Address,
    seams: &Seams,
    progress: &mut Progress,
) -> Result<Vec<SocketAddr>, ProbeResult> {
    loop {
        match judge.route(address) {
            Route::Known(result) => return Err(result),
            Route::Dial(addresses, found) => {
                progress.detail = found;
                return Ok(addresses);
            }
            Route::AskNamespace => {
                let unknown = |cause: &str| {
                    let message = format!("namespace {} cannot be read: {cause}", judge.namespace);
                    Failure::before(probe::NAMESPACE_UNKNOWN, message)
                };
                progress.pending = Some(unknown("no answer in time").at(Detail::Full));
                let restricted = seams.surroundings.is_restricted(judge.namespace).await;
                judge.restricted = Some(restricted.map_err(|cause| unknown(&cause).at(Detail::Full))?);
            }
            Route::Resolve(name) => {
                progress.detail = Detail::Coarse;
                progress.pending = Some(unresolved(&io::ErrorKind::TimedOut.into()).at(Detail::Coarse));
                progress.reachability = Some(Reachability::Silent);
                let found = seams.resolve.resolve(&name).await;
                // An answer of the name server is no answer of the host.
                let heard = Some(Reachability::of(&found));
                progress.reachability = heard.filter(|heard| *heard != Reachability::Answered);
                let found = found.map_err(|error| unresolved(&error).at(Detail::Coarse))?;
                return judge.check_resolved(&name, found, address.port);
            }
        }
    }
}

/// Takes turns between the families, so that a host with many addresses of one is also tried by the other.
fn pick(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (mut v4, mut v6): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv4);
    v4.truncate(MAX_ADDRESSES - v6.len().min(MAX_ADDRESSES / 2));
    v6.truncate(MAX_ADDRESSES - v4.len());
    v4.extend(v6);
    v4
}

/// Connects to all and talks to the first that is there, to the next if that one fails or takes more than its
/// share of the time. So a request is mostly sent once, and one endpoint that hangs hides no other. If none
/// holds in time, the most telling failure is the result, of which silence is the least.
async fn first_that_holds(
    addresses: &[SocketAddr],
    time: Time,
    talk: &Talk<'_>,
    seams: &Seams,
    reachability: &mut Option<Reachability>,
) -> Result<(), Failure> {
    *reachability = Some(Reachability::Silent).filter(|_| !addresses.is_empty());
    let share = time.timeout / u32::try_from(addresses.len() + 1).unwrap_or(u32::MAX);
    let mut dials: FuturesUnordered<_> = addresses.iter().map(|address| seams.dial.dial(*address)).collect();
    let mut connected: VecDeque<Connection> = VecDeque::new();
    let mut talks = FuturesUnordered::new();
    let mut patience = Instant::now();
    let mut failures: Vec<Failure> = Vec::new();
    loop {
        let impatient = Instant::now() >= patience;
        if (talks.is_empty() || impatient)
            && let Some(connection) = connected.pop_front()
        {
            talks.push(talk.over(connection));
            patience = Instant::now() + share;
        }
        if dials.is_empty() && talks.is_empty() {
            break;
        }
        // Biased: the end of a check may end the attempt, so it goes before further connections.
        tokio::select! {
            biased;
            Some(said) = talks.next(), if !talks.is_empty() => match said {
                Ok(()) => return Ok(()),
                Err(failure) => failures.push(failure),
            },
            Some(dialled) = dials.next(), if !dials.is_empty() => {
                *reachability = (*reachability).max(Some(Reachability::of(&dialled)));
                match dialled {
                    Ok(connection) => connected.push_back(connection),
                    Err(error) => failures.push(Failure::of_dial(&error)),
                }
            }
            () = tokio::time::sleep_until(patience), if !connected.is_empty() => {}
            () = tokio::time::sleep_until(time.deadline) => {
                failures.push(Failure::timeout(time.timeout));
                break;
            }
        }
    }
    let most_telling = failures.into_iter().reduce(Failure::or_more_telling);
    Err(most_telling.unwrap_or_else(|| Failure::before(probe::FAILED, "there is no address to connect to")))
}

#[cfg(test)]
mod tests;
