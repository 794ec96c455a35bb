//! The observation of one dependency at one moment.

#[cfg(test)]
mod tests;

use mainstay_api::ProbeCheck;

use super::probe::{ProbeResult, Verdict, VerdictState};
use crate::reasons;

/// The observed state of one dependency, with reason and message for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The observed state of the dependency: ready, not ready, or not known.
    pub state: State,
    /// Reason for the state, for the status of the WaitDeployment: one of the CamelCase words in [`reasons`].
    pub reason: &'static str,
    /// Text for people that explains the state of the dependency. It never quotes an answer of the probed
    /// server.
    pub message: String,
}

/// Whether a dependency is ready, by its last observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The dependency was not observed yet, or not often enough for a verdict.
    Unknown,
    /// The check of the dependency succeeded.
    Ready,
    /// The check of the dependency failed.
    NotReady,
    /// The check of the dependency cannot be made at present, for example because the API server does not
    /// answer. Proves neither readiness nor a loss.
    Blind,
    /// The operator's probe policy forbids the check of the dependency.
    Denied,
    /// The check of the dependency is invalid as written; only an edit of the spec helps.
    Invalid,
}

// === impl Observation ===

impl Observation {
    /// Returns the observation of a dependency that was not checked yet.
    pub fn unknown() -> Self {
        Self::new(State::Unknown, reasons::UNKNOWN, "not tried yet")
    }

    pub(super) fn new(state: State, reason: &'static str, message: impl Into<String>) -> Self {
        Self { state, reason, message: message.into() }
    }

    pub(super) fn not_ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(State::NotReady, reason, message)
    }

    pub(super) fn blind(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(State::Blind, reason, message)
    }

    pub(super) fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(State::Invalid, reason, message)
    }

    /// Returns the observation of a probed dependency by the verdict on its target. While a threshold keeps
    /// the state against the last result, reason and message stay those of the state, so the status does not
    /// change.
    pub(super) fn probed(check: &ProbeCheck, verdict: Verdict) -> Self {
        let Some(result) = verdict.result else { return Self::unknown() };
        let state = match verdict.state {
            VerdictState::Pending if reasons::is_blind(result.reason()) => State::Blind,
            VerdictState::Pending => return Self::unknown(),
            VerdictState::Ready => State::Ready,
            VerdictState::NotReady => State::NotReady,
            VerdictState::Denied => State::Denied,
        };
        let result = if state == State::Ready { ProbeResult::good(check) } else { result };
        if state == State::NotReady && result.is_good() {
            let message = "too few successful probes in a row yet";
            return Self::not_ready(reasons::probe::TOO_FEW_SUCCESSES, message);
        }
        Self::new(state, result.reason(), result.message())
    }
}
