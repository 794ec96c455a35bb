//! Whether the network answered a probe.
//!
//! The result does not always show it, since results of raw addresses have no details. The [outage
//! guard](super::outage_guard) needs it for every target.

use std::io;

use tokio::time::Instant;

/// The error codes `ENFILE` and `EMFILE`, the same on every architecture of Linux and on the BSDs: too many
/// open files.
const TOO_MANY_FILES: [i32; 2] = [23, 24];

/// Whether the network answered a probe. Of several connections the greatest value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reachability {
    /// The probe got no answer, or no route to the other side.
    Silent,
    /// The probe failed by an error of the manager's machine: no network, no address, no descriptor.
    LocalFault,
    /// The probe got an answer of any kind, also a refusal.
    Answered,
}

/// When a probed target or host answered last, and since when it has been silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contact {
    /// Whether a probe that contacted the target has ended.
    is_known: bool,
    pub(super) answered: Option<Instant>,
    /// When the target or host fell silent, and whether by an error of the manager's machine; `None` if it
    /// answers, or never did.
    pub(super) silent: Option<(Instant, bool)>,
}

// === impl Reachability ===

impl Reachability {
    /// Returns whether the outcome of a connection or a DNS lookup shows an answer of the network.
    pub(super) fn of<T>(outcome: &io::Result<T>) -> Self {
        use io::ErrorKind as Kind;
        let Err(error) = outcome else { return Self::Answered };
        match error.kind() {
            Kind::ConnectionRefused | Kind::ConnectionReset | Kind::ConnectionAborted | Kind::NotFound => {
                Self::Answered
            }
            Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::AddrNotAvailable
            | Kind::PermissionDenied
            | Kind::OutOfMemory => Self::LocalFault,
            _ if error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) => Self::LocalFault,
            _ => Self::Silent,
        }
    }
}

// === impl Contact ===

impl Contact {
    /// Records whether the network answered a probe. Returns whether the target fell silent with it.
    /// `was_ready`: the target was ready before this process started, so silence at the first probe is a loss
    /// too.
    pub(super) fn record(&mut self, reachability: Reachability, was_ready: bool, now: Instant) -> bool {
        let is_first = !std::mem::replace(&mut self.is_known, true);
        if reachability == Reachability::Answered {
            (self.answered, self.silent) = (Some(now), None);
            return false;
        }
        let is_loss = self.silent.is_none() && (self.answered.is_some() || (is_first && was_ready));
        if is_loss {
            self.silent = Some((now, reachability == Reachability::LocalFault));
        }
        is_loss
    }

    /// Forgets the silence of a target that is no longer contacted. The record of a target that answered last
    /// time is kept.
    pub(super) fn forget_silence(&mut self) {
        if self.silent.is_some() || self.answered.is_none() {
            *self = Self::default();
        }
    }

    /// Combines the contacts of two targets of the same host: the latest answer and the latest silence count.
    pub(super) fn merge(&mut self, other: &Self) {
        self.answered = self.answered.max(other.answered);
        self.silent = self.silent.max(other.silent);
    }
}

#[cfg(test)]
mod tests;
