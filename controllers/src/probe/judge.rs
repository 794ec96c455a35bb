//! What a row of results means to one who waits: thresholds with a memory, as those of a kubelet's probes.
//!
//! The row is the target's and shared; the thresholds, and what was judged before, are of each who waits.
//!
//! # Invariants
//! 1. Judging twice by the same row changes nothing.
//! 2. A row that is too short for a threshold leaves what is ready ready, and makes nothing ready.
//! 3. A look that could see nothing is no failure of the target, and no success: nothing is not ready for it.

use super::{ProbeResult, VerdictState, Want};
use crate::reasons;

/// What came last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    run: Run,
    /// How many looks have come since that could see nothing. They neither lengthen the run nor end it.
    unseen: u32,
}

/// Results of one kind in a row, the latest included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Run {
    /// No result yet.
    #[default]
    Empty,
    /// So many successes, at least 1.
    Successes(u32),
    /// So many failures, at least 1.
    Failures(u32),
    /// The policy forbade the last one; what was before does not count any more.
    Denials,
}

// === impl Row ===

impl Row {
    /// Returns the row once this result has come.
    pub(super) fn and(self, result: &ProbeResult) -> Self {
        let run = match (result, self.run) {
            (ProbeResult::NotReady { reason, .. }, run) if reasons::is_blind(reason) => {
                // What was denied is not any more, and nothing else is known.
                let run = if run == Run::Denials { Run::Empty } else { run };
                return Self { run, unseen: self.unseen.saturating_add(1) };
            }
            (ProbeResult::Connected | ProbeResult::Answered, Run::Successes(count)) => {
                Run::Successes(count.saturating_add(1))
            }
            (ProbeResult::Connected | ProbeResult::Answered, _) => Run::Successes(1),
            (ProbeResult::NotReady { .. }, Run::Failures(count)) => Run::Failures(count.saturating_add(1)),
            (ProbeResult::NotReady { .. }, _) => Run::Failures(1),
            (ProbeResult::Denied { .. }, _) => Run::Denials,
        };
        Self { run, unseen: 0 }
    }

    /// Returns whether the last one was a success.
    pub(super) fn is_good(self) -> bool {
        self.successes() > 0 && self.unseen == 0
    }

    /// Returns whether the policy forbade the last one.
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

/// Judges what was judged `before` anew by a row.
pub(super) fn judge(before: VerdictState, row: Row, want: &Want) -> VerdictState {
    use VerdictState::{Denied, NotReady, Pending, Ready};
    let without_success = row.failures().saturating_add(row.unseen);
    match (row.run, before) {
        (Run::Empty, _) => Pending,
        (Run::Denials, _) => Denied,
        (_, Ready) if row.unseen > 0 && without_success < want.failure_threshold => Ready,
        _ if row.unseen > 0 => Pending,
        (Run::Successes(count), _) if count >= want.success_threshold => Ready,
        (Run::Failures(count), _) if count >= want.failure_threshold => NotReady,
        (_, Ready) => Ready,
        (_, Pending) if want.held => Pending,
        (_, Pending | NotReady | Denied) => NotReady,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mainstay_api::{Address, ProbeCheck};
    use proptest::prelude::*;

    use super::*;
    use crate::probe::Target;

    fn want(successes: u32, failures: u32, held: bool) -> Want {
        let address = Address::parse("a", "10.0.0.1:80").unwrap();
        Want {
            target: Target::new("shop", ProbeCheck::Tcp(address)),
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(3),
            initial_delay: Duration::ZERO,
            success_threshold: successes,
            failure_threshold: failures,
            held,
        }
    }

    /// The judgements after each result: `+` a success, `-` a failure, `u` one that saw nothing, `x` a denial; `?`, `r`, `n` and `d` are said.
    fn judged(want: &Want, results: &str) -> String {
        let (mut row, mut state) = (Row::default(), VerdictState::Pending);
        let mut said = String::new();
        for result in results.chars() {
            let result = match result {
                '+' => ProbeResult::Connected,
                '-' => ProbeResult::NotReady { reason: "Refused", message: String::new() },
                'u' => ProbeResult::NotReady { reason: "LookUpFailed", message: String::new() },
                _ => ProbeResult::Denied { rule: "mode", message: String::new() },
            };
            row = row.and(&result);
            state = judge(state, row, want);
            assert_eq!(judge(state, row, want), state, "judged twice after {said}{result:?}");
            said.push(match state {
                VerdictState::Pending => '?',
                VerdictState::Ready => 'r',
                VerdictState::NotReady => 'n',
                VerdictState::Denied => 'd',
            });
        }
        said
    }

    #[test]
    fn thresholds_are_counted_in_a_row() {
        assert_eq!(judged(&want(1, 3, false), "-+--+---+"), "nrrrrrrnr");
        assert_eq!(judged(&want(2, 1, false), "+-+++-++"), "nnnrrnnr");
        assert_eq!(judged(&want(3, 2, false), "+++-+--"), "nnrrrrn");
        assert_eq!(judged(&want(0, 0, false), "+-"), "rn", "a threshold of 0 counts as 1");
    }

    #[test]
    fn what_held_is_lost_by_enough_failures_only() {
        assert_eq!(judged(&want(1, 3, true), "--+"), "??r");
        assert_eq!(judged(&want(1, 3, true), "---+-"), "??nrr");
        assert_eq!(judged(&want(2, 3, true), "+-+"), "???");
        assert_eq!(judged(&want(1, 1, true), "-"), "n");
    }

    #[test]
    fn what_saw_nothing_is_neither_a_failure_nor_a_success() {
        assert_eq!(judged(&want(1, 3, true), "+uu-uuu---"), "rrrrr???nn");
        assert_eq!(judged(&want(1, 3, true), "+-u-u-u-"), "rrrr?n?n", "nor does it begin the count anew");
        assert_eq!(judged(&want(1, 3, true), "uuu-u--"), "??????n");
        assert_eq!(judged(&want(1, 3, false), "u-u+uuu+"), "?n?rrr?r");
        assert_eq!(judged(&want(2, 1, false), "+u+u+-xu"), "n?r?rnd?");
    }

    #[test]
    fn a_denial_is_no_failure_and_ends_every_row() {
        assert_eq!(judged(&want(1, 2, false), "+x-x+"), "rdndr");
        assert_eq!(judged(&want(2, 2, true), "+x+-+"), "?dnnn");
    }

    proptest! {
        #[test]
        fn ready_takes_the_successes_and_is_lost_by_the_failures(
            results in "[-+u]{1,40}", successes in 1..5u32, failures in 1..5u32, held: bool,
        ) {
            let said = judged(&want(successes, failures, held), &results);
            let mut ready = false;
            for (at, state) in said.chars().enumerate() {
                let (so_far, seen) = (&results[..=at], results[..=at].replace('u', ""));
                let at_end = |of: &str, with: char| of.chars().rev().take_while(|result| *result == with).count();
                let unseen = at_end(so_far, 'u');
                let failed = at_end(&seen, '-');
                ready = match unseen {
                    0 => at_end(&seen, '+') >= successes as usize || (ready && failed < failures as usize),
                    _ => ready && failed + unseen < failures as usize,
                };
                prop_assert_eq!(state == 'r', ready, "{} at {}: {}", results, at, said);
                prop_assert!(state != 'n' || (unseen == 0 && failed > 0) || seen.ends_with('+'), "{} at {}: {}", results, at, said);
            }
        }
    }
}
