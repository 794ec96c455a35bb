//! Why a check does not hold.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::dependency::probe::ProbeResult;
use crate::dependency::probe::policy::Detail;
use crate::reasons::probe;

/// Why a check does not hold, as far as anybody may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::dependency::probe) struct Failure {
    /// Of several addresses the furthest is told, so that it does not depend on which came last.
    reached: Reached,
    reason: &'static str,
    message: String,
}

/// How far an attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    /// Nobody said anything.
    Nothing,
    /// The way there failed.
    Network,
    /// A machine that said that nobody listens.
    Machine,
    /// A program that answered otherwise than was asked for.
    Program,
}

// === impl Failure ===

impl Failure {
    /// Somebody answered, and not as was asked for.
    pub(super) fn answered(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reached: Reached::Program, reason, message: message.into() }
    }

    /// The attempt did not get as far as an answer.
    pub(in crate::dependency::probe) fn before(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reached: Reached::Network, reason, message: message.into() }
    }

    /// There was no answer within the time for it.
    pub(in crate::dependency::probe) fn timeout(within: Duration) -> Self {
        let message = format!("no answer within {within:?}");
        Self { reached: Reached::Nothing, reason: probe::TIMEOUT, message }
    }

    /// No connection was made.
    pub(in crate::dependency::probe) fn of_dial(error: &io::Error) -> Self {
        let (reached, reason, message) = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                (Reached::Machine, probe::REFUSED, "connection refused".to_owned())
            }
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                (Reached::Network, probe::UNREACHABLE, "no route to it".to_owned())
            }
            io::ErrorKind::TimedOut => (Reached::Nothing, probe::TIMEOUT, "no answer".to_owned()),
            kind => (Reached::Network, probe::FAILED, format!("connecting failed: {kind}")),
        };
        Self { reached, reason, message }
    }

    /// The connection ended before there was an answer, or what came was not `protocol`.
    pub(super) fn of_talk(error: &(dyn Error + 'static), protocol: &str) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let io = error.downcast_ref::<io::Error>();
            let is_end = |io: &io::Error| {
                matches!(
                    io.kind(),
                    io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::BrokenPipe
                        | io::ErrorKind::NotConnected
                        | io::ErrorKind::UnexpectedEof
                )
            };
            if io.is_some_and(is_end) {
                return Self::closed();
            }
            cause = error.source();
        }
        Self::not_protocol(protocol)
    }

    /// What came is not `protocol`, or more than is read of it.
    pub(super) fn not_protocol(protocol: &str) -> Self {
        let message = format!("what it answers is not {protocol}, or is more than a probe reads");
        Self::answered(probe::PROTOCOL_ERROR, message)
    }

    /// The other side ended the connection before it had answered.
    pub(super) fn closed() -> Self {
        Self::answered(probe::CONNECTION_CLOSED, "it closed the connection before it had answered")
    }

    /// Returns the one of two that says more.
    pub(in crate::dependency::probe) fn or_more_telling(self, other: Self) -> Self {
        if other.reached > self.reached { other } else { self }
    }

    /// Returns what is said of it at this detail.
    pub(in crate::dependency::probe) fn at(self, detail: Detail) -> ProbeResult {
        let Self { reason, message, .. } = self;
        match detail {
            // The look-up of a name tells nothing of what it leads to; and that nobody could look must not read as a loss.
            _ if reason == probe::LOOK_UP_FAILED => ProbeResult::NotReady { reason, message },
            Detail::Full => ProbeResult::NotReady { reason, message },
            Detail::Coarse => ProbeResult::NotReady {
                reason: probe::NOT_READY,
                message: "it does not answer as it should".to_owned(),
            },
        }
    }
}
