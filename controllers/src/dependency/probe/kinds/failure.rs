//! The failure of a check.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::dependency::probe::ProbeResult;
use crate::dependency::probe::policy::Detail;
use crate::reasons::probe;

/// The failure of a check, with as much detail as a user may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dependency::probe) struct Failure {
    /// How far the attempt got. Of several addresses the failure that got furthest is the result, so their
    /// order does not matter.
    reached: Reached,
    reason: &'static str,
    message: String,
}

/// How far an attempt to run a check got before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    /// The attempt got no answer at all.
    Nowhere,
    /// The attempt got to the network, which reported an error.
    Network,
    /// The attempt got to the machine, which refused the connection.
    Machine,
    /// The attempt got to a server with another answer than the expected one.
    Server,
}

// === impl Failure ===

impl Failure {
    /// Makes the failure of a check after an answer of the server that is not the expected one.
    pub(super) fn answered(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reached: Reached::Server, reason, message: message.into() }
    }

    /// Makes the failure of a check that failed before an answer of the server.
    pub(in crate::dependency::probe) fn before(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reached: Reached::Network, reason, message: message.into() }
    }

    /// Makes the failure of a check without an answer within the timeout.
    pub(in crate::dependency::probe) fn timeout(within: Duration) -> Self {
        let message = format!("no answer within {within:?}");
        Self { reached: Reached::Nowhere, reason: probe::TIMEOUT, message }
    }

    /// Makes the failure of a check that could not connect to the server.
    pub(in crate::dependency::probe) fn of_dial(error: &io::Error) -> Self {
        let (reached, reason, message) = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                (Reached::Machine, probe::REFUSED, "connection refused".to_owned())
            }
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                (Reached::Network, probe::UNREACHABLE, "no route to host".to_owned())
            }
            io::ErrorKind::TimedOut => (Reached::Nowhere, probe::TIMEOUT, "no answer".to_owned()),
            kind => (Reached::Network, probe::FAILED, format!("connecting failed: {kind}")),
        };
        Self { reached, reason, message }
    }

    /// Makes the failure of a check over an open connection: the connection ended before an answer, or the
    /// answer does not follow `protocol`.
    pub(super) fn of_exchange(error: &(dyn Error + 'static), protocol: &str) -> Self {
        let is_end = |error: &(dyn Error + 'static)| {
            error.downcast_ref::<io::Error>().is_some_and(|io| {
                matches!(
                    io.kind(),
                    io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::BrokenPipe
                        | io::ErrorKind::NotConnected
                        | io::ErrorKind::UnexpectedEof
                )
            })
        };
        if std::iter::successors(Some(error), |&error| error.source()).any(is_end) {
            return Self::closed();
        }
        Self::not_protocol(protocol)
    }

    /// Makes the failure of a check after an answer that does not follow `protocol`, or is longer than a
    /// probe reads.
    pub(super) fn not_protocol(protocol: &str) -> Self {
        let message = format!("its answer is not {protocol}, or is longer than a probe reads");
        Self::answered(probe::PROTOCOL_ERROR, message)
    }

    /// Makes the failure of a check after the server closed the connection without an answer.
    pub(super) fn closed() -> Self {
        Self::answered(probe::CONNECTION_CLOSED, "it closed the connection without an answer")
    }

    /// Returns the one of two failures that got further; `self` if both got equally far.
    pub(in crate::dependency::probe) fn or_further(self, other: Self) -> Self {
        if other.reached > self.reached { other } else { self }
    }

    /// Returns the failure as the result of a probe, with this much detail.
    pub(in crate::dependency::probe) fn at(self, detail: Detail) -> ProbeResult {
        let Self { reason, message, .. } = self;
        match detail {
            // A failed lookup reveals nothing about the target, and must not be taken for the loss of it.
            Detail::Coarse if reason != probe::LOOK_UP_FAILED => {
                ProbeResult::not_ready(probe::NOT_READY, "it does not answer as expected")
            }
            Detail::Full | Detail::Coarse => ProbeResult::NotReady { reason, message },
        }
    }
}
