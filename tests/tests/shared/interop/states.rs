//! The states of the Lease that both sides wrote, checked against the rules and against the logs.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use mainstay::election::Record;
use mainstay_tests::audit::Write;
use mainstay_tests::report::figure;

use super::{CLIENT_GO_DURATION, Gone, MAINSTAY_WRITES, Side, Way};

/// A state of the Lease that a replica wrote, with the time at which the server received the request.
pub(super) struct State {
    user: String,
    received: Timestamp,
    record: Record,
}

// === impl State ===

impl State {
    pub(super) fn of(write: &Write) -> Option<Self> {
        let lease: Lease = serde_json::from_value(write.body.clone()).ok()?;
        (write.is_of_lease() && write.is_accepted()).then(|| Self {
            user: write.user.clone(),
            received: write.received,
            record: Record::of(&lease),
        })
    }
}

/// Checks that each change of the Lease is a valid renewal, release or take-over.
pub(super) fn check_changes(states: &[State]) {
    let (mut earliest_mainstay, mut earliest_client_go) = (Duration::MAX, Duration::MAX);
    for pair in states.windows(2) {
        let [old, new] = pair else { continue };
        let (before, after) = (&old.record, &new.record);
        let change = format!(
            "{before:?} by {} at {}, then {after:?} by {} at {}",
            old.user, old.received, new.user, new.received
        );
        if after.holder.is_some() && after.holder == before.holder {
            assert_eq!(
                (&new.user, after.transitions),
                (&old.user, before.transitions),
                "a renewal: {change}"
            );
            assert_eq!(after.acquired, before.acquired, "a renewal: {change}");
            assert_ne!(after.renewed, before.renewed, "a renewal: {change}");
        } else if after.holder.is_none() {
            assert!(after.is_release() && new.user == old.user, "a release by the holder: {change}");
            assert_eq!(after.transitions, before.transitions, "a release is no transition: {change}");
        } else {
            assert_eq!(after.transitions, before.transitions + 1, "a take-over: {change}");
            assert_eq!(after.acquired, after.renewed, "a take-over: {change}");
            let waited = new.received.duration_since(old.received).unsigned_abs();
            match (Side::of(&new.user), before.holder.is_some()) {
                (_, false) => assert!(before.is_release(), "{change}"),
                (Side::Mainstay, true) => {
                    assert!(
                        waited >= CLIENT_GO_DURATION,
                        "the manager took it after {waited:?}, before client-go's duration was over: {change}"
                    );
                    earliest_mainstay = earliest_mainstay.min(waited);
                }
                (Side::ClientGo, true) => {
                    assert!(
                        waited >= MAINSTAY_WRITES,
                        "client-go took it after {waited:?}, while the manager could still write: {change}"
                    );
                    earliest_client_go = earliest_client_go.min(waited);
                }
            }
        }
        let until = match after.holder {
            Some(_) => Side::of(&new.user).holds(),
            None => Duration::from_secs(1),
        };
        assert_eq!(after.duration(Duration::ZERO), until, "{change}");
    }
    figure("interop.ours_took_after_last_renewal_min", earliest_mainstay.as_secs_f64(), "s");
    figure("interop.client_go_took_after_last_renewal_min", earliest_client_go.as_secs_f64(), "s");
}

/// Checks the log of a replica: its lines about records of the other side match the Lease, and those about
/// itself match its writes. Returns the number of the manager's records that client-go has read.
pub(super) fn check_log(gone: &Gone, states: &[State]) -> usize {
    let mut read = 0;
    let term = |holder: &str| {
        let mut of = states.iter().filter(|state| state.record.holder.as_deref() == Some(holder));
        let first = of.next().unwrap_or_else(|| panic!("{holder} never held the Lease"));
        (first, of.next_back().unwrap_or(first))
    };
    for line in &gone.log {
        let at: Option<Timestamp> = line["ts"].as_str().and_then(|at| at.parse().ok());
        match line["msg"].as_str() {
            // The record of a manager, as client-go read it. client-go reads the Lease again for this line,
            // and may find a later record.
            Some("new leader")
                if gone.side == Side::ClientGo && line["record"]["holderIdentity"] == line["identity"] =>
            {
                let Some(holder) = line["identity"].as_str().filter(|holder| !holder.is_empty()) else {
                    continue;
                };
                let (first, _) = term(holder);
                let record = &line["record"];
                assert_eq!(record["leaseDurationSeconds"], Side::of(&first.user).holds().as_secs(), "{line}");
                assert_eq!(record["leaderTransitions"], first.record.transitions, "{line}");
                let acquired: Option<Timestamp> =
                    record["acquireTime"].as_str().and_then(|at| at.parse().ok());
                let seconds = |at: Option<Timestamp>| at.map(Timestamp::as_second);
                assert_eq!(seconds(acquired), seconds(first.record.acquired), "{line}");
                read += usize::from(Side::of(&first.user) == Side::Mainstay);
            }
            Some("became leader") => {
                let (first, _) = term(&gone.identity);
                assert_eq!(line["transitions"], first.record.transitions, "{line}");
                assert!(
                    at.is_some_and(|at| at >= first.received),
                    "logged before its request for the Lease: {line}"
                );
            }
            Some("stopped leading") if gone.side == Side::Mainstay && gone.way == Way::Release => {
                let (_, last) = term(&gone.identity);
                let release = states.iter().find(|state| state.received > last.received);
                let release = release.expect("a state after its last renewal");
                assert!(at.is_some_and(|at| at <= release.received), "logged after the release: {line}");
            }
            _ => {}
        }
    }
    read
}

/// Checks that a thawed replica did not take the Lease back. Of a manager, at most the one request it was
/// frozen in arrives late.
pub(super) fn check_late_writes(gone: &Gone, writes: &[Write]) {
    let Some(thawed) = gone.thawed else { return };
    let late: Vec<_> = writes
        .iter()
        .filter(|write| write.is_of_lease() && write.holder() == gone.identity && write.received >= thawed)
        .collect();
    assert!(late.iter().all(|write| !write.is_accepted()), "thawed at {thawed}: {late:#?}");
    assert!(gone.side == Side::ClientGo || late.len() <= 1, "thawed at {thawed}: {late:#?}");
}
