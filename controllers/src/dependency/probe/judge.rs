//! The verdict that follows from a streak of results: thresholds with a memory, as those of a kubelet's
//! probes.
//!
//! The streak belongs to the target and is shared; the thresholds and the verdict before belong to each
//! object.
//!
//! # Invariants
//! 1. Judging twice by the same streak changes nothing.
//! 2. A streak that is too short for a threshold neither makes a target ready nor takes its readiness away.
//! 3. An inconclusive probe is neither a failure nor a success: it cannot make a target unready.

use super::{ProbeResult, VerdictState, Want};
use crate::reasons;

/// The latest results of a target: a run of equal results and the inconclusive probes after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Streak {
    run: Run,
    /// Number of inconclusive probes since the last result of the run. They neither lengthen the run nor end
    /// it.
    inconclusive: u32,
}

/// Results of a target of one kind in a row, the latest included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Run {
    /// The target has no conclusive result yet.
    #[default]
    Empty,
    /// The number of successful probes in a row, at least 1.
    Successes(u32),
    /// The number of failed probes in a row, at least 1.
    Failures(u32),
    /// The policy forbade the last probe; earlier results no longer count.
    Denials,
}

// === impl Streak ===

impl Streak {
    /// Returns the streak with the result of one more probe.
    pub(super) fn and(self, result: &ProbeResult) -> Self {
        let run = match result {
            ProbeResult::NotReady { reason, .. } if reasons::is_blind(reason) => {
                // The denial is over, and earlier results do not count.
                let run = if self.run == Run::Denials { Run::Empty } else { self.run };
                return Self { run, inconclusive: self.inconclusive.saturating_add(1) };
            }
            ProbeResult::Connected | ProbeResult::Answered => {
                Run::Successes(self.successes().saturating_add(1))
            }
            ProbeResult::NotReady { .. } => Run::Failures(self.failures().saturating_add(1)),
            ProbeResult::Denied { .. } => Run::Denials,
        };
        Self { run, inconclusive: 0 }
    }

    /// Returns whether the last probe of the target was a success.
    pub(super) fn is_good(self) -> bool {
        self.successes() > 0 && self.inconclusive == 0
    }

    /// Returns whether the policy forbade the last probe of the target.
    pub(super) fn is_denied(self) -> bool {
        self.run == Run::Denials
    }

    pub(super) fn successes(self) -> u32 {
        if let Run::Successes(count) = self.run { count } else { 0 }
    }

    pub(super) fn failures(self) -> u32 {
        if let Run::Failures(count) = self.run { count } else { 0 }
    }
}

/// Returns the verdict on a target after the verdict `before`, by the streak of its results and the
/// thresholds of `want`.
pub(super) fn judge(before: VerdictState, streak: Streak, want: &Want) -> VerdictState {
    use VerdictState::{Denied, NotReady, Pending, Ready};
    let without_success = streak.failures().saturating_add(streak.inconclusive);
    match (streak.run, before) {
        (Run::Empty, _) => Pending,
        (Run::Denials, _) => Denied,
        (_, Ready) if streak.inconclusive > 0 && without_success < want.failure_threshold => Ready,
        _ if streak.inconclusive > 0 => Pending,
        (Run::Successes(count), _) if count >= want.success_threshold => Ready,
        (Run::Failures(count), _) if count >= want.failure_threshold => NotReady,
        (_, Ready) => Ready,
        (_, Pending) if want.was_ready => Pending,
        (_, Pending | NotReady | Denied) => NotReady,
    }
}

#[cfg(test)]
mod tests;
