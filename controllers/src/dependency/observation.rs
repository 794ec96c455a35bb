//! What is known of one dependency at this moment.

#[cfg(test)]
mod tests;

use mainstay_api::ProbeCheck;

use super::probe::{ProbeResult, Verdict, VerdictState};
use crate::reasons;

/// What is known of one dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whether it holds.
    pub state: State,
    /// Why, in one CamelCase word.
    pub reason: &'static str,
    /// Why, for people. Never anything that came from the other side.
    pub message: String,
}

/// Whether a dependency holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has looked yet.
    Unknown,
    /// It holds.
    Ready,
    /// It does not.
    NotReady,
    /// It cannot be looked at for now, whether it holds or not: that is no news of it.
    Blind,
    /// The operator's policy forbids to look.
    Denied,
    /// It cannot be looked at as it is written, whatever happens elsewhere.
    Invalid,
}

// === impl Observation ===

impl Observation {
    /// What is said before anybody has looked.
    pub fn unknown() -> Self {
        Self { state: State::Unknown, reason: reasons::UNKNOWN, message: "not tried yet".to_owned() }
    }

    /// What is judged by more than the last result keeps the same words for as long as the judgement lasts.
    pub(super) fn probed(check: &ProbeCheck, verdict: Verdict) -> Self {
        let Some(result) = verdict.result else { return Self::unknown() };
        let state = match verdict.state {
            VerdictState::Pending if reasons::is_blind(result.reason()) => State::Blind,
            VerdictState::Pending => return Self::unknown(),
            VerdictState::Ready => State::Ready,
            VerdictState::NotReady => State::NotReady,
            VerdictState::Denied => State::Denied,
        };
        let (reason, message) = match state {
            State::Ready => {
                let good = ProbeResult::good(check);
                (good.reason(), good.message().to_owned())
            }
            State::NotReady if result.is_good() => {
                let message = "it answers, not often enough in a row yet";
                (reasons::probe::TOO_FEW_SUCCESSES, message.to_owned())
            }
            _ => (result.reason(), result.message().to_owned()),
        };
        Self { state, reason, message }
    }
}
