//! One probe: policy, look-up, connection, result.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use mainstay::config::ProbePolicy;
use mainstay_api::ProbeCheck;

use super::policy::{Detail, Route, check_resolved, route};
use super::{ProbeResult, Seams, Target};
use crate::reasons::probe;

/// Most addresses of one name that are tried, at the same time: two of each family would do, and a Service with a
/// hundred endpoints must not cost a hundred sockets.
const MAX_ADDRESSES: usize = 4;

/// Probes a target once; ends within `timeout`.
pub(super) async fn attempt(
    target: &Target,
    timeout: Duration,
    policy: &ProbePolicy,
    seams: &Seams,
) -> ProbeResult {
    let ProbeCheck::Tcp(address) = target.check() else {
        return not_ready(probe::FAILED, format!("checks of kind {} are not made", target.check().kind()));
    };
    let (addresses, detail) = match route(policy, target, &*seams.services) {
        Route::Known(result) => return result,
        Route::Dial(addresses, detail) => (Ok(addresses), detail),
        Route::Resolve(name) => (Err(name), Detail::Coarse),
    };
    let connect = async {
        let addresses = match addresses {
            Ok(addresses) => addresses,
            Err(name) => match seams.resolve.resolve(&name).await {
                Err(error) => return failed(&error, detail),
                Ok(found) => match check_resolved(policy, found, address.port) {
                    Route::Dial(addresses, _) => addresses,
                    Route::Known(result) => return result,
                    Route::Resolve(_) => return coarse(),
                },
            },
        };
        connect_any(&pick(addresses), detail, seams).await
    };
    match tokio::time::timeout(timeout, connect).await {
        Ok(result) => result,
        Err(_) if detail == Detail::Coarse => coarse(),
        Err(_) => not_ready(probe::TIMEOUT, format!("no answer within {timeout:?}")),
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

/// The first that connects wins; if none does, the most telling failure is the result, so that it does not depend
/// on which came last.
async fn connect_any(addresses: &[SocketAddr], detail: Detail, seams: &Seams) -> ProbeResult {
    let mut dials: FuturesUnordered<_> = addresses.iter().map(|address| seams.dial.dial(*address)).collect();
    let mut worst: Option<io::Error> = None;
    while let Some(dialled) = dials.next().await {
        match dialled {
            Ok(_connection) => return ProbeResult::Ready,
            Err(error) => {
                if worst.as_ref().is_none_or(|worst| rank(&error) < rank(worst)) {
                    worst = Some(error);
                }
            }
        }
    }
    worst.map_or_else(coarse, |error| failed(&error, detail))
}

fn failed(error: &io::Error, detail: Detail) -> ProbeResult {
    if detail == Detail::Coarse {
        return coarse();
    }
    let (_, reason, message) = describe(error);
    not_ready(reason, message)
}

fn rank(error: &io::Error) -> u8 {
    describe(error).0
}

/// How telling a failure is (less is more), its reason, and words that stay the same while the failure does.
fn describe(error: &io::Error) -> (u8, &'static str, String) {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => (0, probe::REFUSED, "connection refused".to_owned()),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            (1, probe::UNREACHABLE, "no route to it".to_owned())
        }
        io::ErrorKind::TimedOut => (3, probe::TIMEOUT, "no answer".to_owned()),
        kind => (2, probe::FAILED, format!("connecting failed: {kind}")),
    }
}

fn coarse() -> ProbeResult {
    not_ready(probe::NOT_READY, "it does not answer".to_owned())
}

fn not_ready(reason: &'static str, message: String) -> ProbeResult {
    ProbeResult::NotReady { reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_tried_and_few_addresses() {
        let parse =
            |list: &[&str]| -> Vec<SocketAddr> { list.iter().map(|text| text.parse().unwrap()).collect() };
        let many_v4 = parse(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"]);
        let many_v6 = parse(&["[fd12::1]:1", "[fd12::2]:1", "[fd12::3]:1", "[fd12::4]:1", "[fd12::5]:1"]);
        assert_eq!(pick(many_v4.clone()), many_v4[..4]);
        assert_eq!(pick(many_v6.clone()), many_v6[..4]);
        assert_eq!(
            pick([many_v4.clone(), many_v6.clone()].concat()),
            [&many_v4[..2], &many_v6[..2]].concat()
        );
        assert_eq!(pick([&many_v4[..1], &many_v6[..]].concat()), [&many_v4[..1], &many_v6[..3]].concat());
    }
}
