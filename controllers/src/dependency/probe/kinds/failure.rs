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
    /// Of several addresses the failure that got furthest is the result, so their order does not matter.
    reached: Reached,
    reason: &'static str,
    message: String,
}

/// How far an attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    /// Nowhere: no answer at all.
    Nowhere,
    /// To the network, which reported an error.
    Network,
    /// To the machine, which refused the connection.
    Machine,
    /// To a server, whose answer is not the expected one.
    Server,
}

// === impl Failure ===

impl Failure {
    /// A server answered, but not as expected.
    pub(super) fn answered(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reached: Reached::Server, reason, message: message.into() }
    }

    /// The attempt failed before an answer.
    pub(in crate::dependency::probe) fn before(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reached: Reached::Network, reason, message: message.into() }
    }

    /// No answer within the timeout.
    pub(in crate::dependency::probe) fn timeout(within: Duration) -> Self {
        let message = format!("no answer within {within:?}");
        Self { reached: Reached::Nowhere, reason: probe::TIMEOUT, message }
    }

    /// Connecting failed.
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

    /// The exchange failed: the connection ended before an answer, or the answer does not follow `protocol`.
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

    /// The answer does not follow `protocol`, or is longer than a probe reads.
    pub(super) fn not_protocol(protocol: &str) -> Self {
        let message = format!("its answer is not {protocol}, or is longer than a probe reads");
        Self::answered(probe::PROTOCOL_ERROR, message)
    }

    /// The server closed the connection before its answer.
    pub(super) fn closed() -> Self {
        Self::answered(probe::CONNECTION_CLOSED, "it closed the connection without an answer")
    }

    /// Returns the failure that got further; `self` if both got equally far.
    pub(in crate::dependency::probe) fn or_further(self, other: Self) -> Self {
        if other.reached > self.reached { other } else { self }
    }

    /// Returns the result with this detail.
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
