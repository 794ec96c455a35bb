use std::time::Duration;

use mainstay_api::{Address, ProbeCheck};
use proptest::prelude::*;

use super::*;
use crate::dependency::probe::Target;

fn want(successes: u32, failures: u32, was_ready: bool) -> Want {
    let address = Address::parse("a", "10.0.0.1:80").unwrap();
    Want {
        target: Target::new("shop", ProbeCheck::Tcp(address)),
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(3),
        initial_delay: Duration::ZERO,
        success_threshold: successes,
        failure_threshold: failures,
        was_ready,
    }
}

/// Returns the verdict after each probe result: `?` pending, `r` ready, `n` not ready, `d` denied. Results
/// are `+` a success, `-` a failure, `u` an inconclusive probe and `x` a denial.
fn judged(want: &Want, results: &str) -> String {
    let (mut streak, mut state) = (Streak::default(), VerdictState::Pending);
    let mut states = String::new();
    for result in results.chars() {
        let result = match result {
            '+' => ProbeResult::Connected,
            '-' => ProbeResult::NotReady { reason: "Refused", message: String::new() },
            'u' => ProbeResult::NotReady { reason: "LookUpFailed", message: String::new() },
            _ => ProbeResult::Denied { rule: "mode", message: String::new() },
        };
        streak = streak.and(&result);
        state = judge(state, streak, want);
        assert_eq!(judge(state, streak, want), state, "judged twice after {states}{result:?}");
        states.push(match state {
            VerdictState::Pending => '?',
            VerdictState::Ready => 'r',
            VerdictState::NotReady => 'n',
            VerdictState::Denied => 'd',
        });
    }
    states
}

#[test]
fn thresholds_are_counted_in_a_row() {
    assert_eq!(judged(&want(1, 3, false), "-+--+---+"), "nrrrrrrnr");
    assert_eq!(judged(&want(2, 1, false), "+-+++-++"), "nnnrrnnr");
    assert_eq!(judged(&want(3, 2, false), "+++-+--"), "nnrrrrn");
    assert_eq!(judged(&want(0, 0, false), "+-"), "rn", "a threshold of 0 counts as 1");
}

#[test]
fn a_target_that_was_ready_is_lost_only_by_enough_failures() {
    assert_eq!(judged(&want(1, 3, true), "--+"), "??r");
    assert_eq!(judged(&want(1, 3, true), "---+-"), "??nrr");
    assert_eq!(judged(&want(2, 3, true), "+-+"), "???");
    assert_eq!(judged(&want(1, 1, true), "-"), "n");
}

#[test]
fn an_inconclusive_probe_is_neither_a_failure_nor_a_success() {
    assert_eq!(judged(&want(1, 3, true), "+uu-uuu---"), "rrrrr???nn");
    assert_eq!(judged(&want(1, 3, true), "+-u-u-u-"), "rrrr?n?n", "it does not reset the count");
    assert_eq!(judged(&want(1, 3, true), "uuu-u--"), "??????n");
    assert_eq!(judged(&want(1, 3, false), "u-u+uuu+"), "?n?rrr?r");
    assert_eq!(judged(&want(2, 1, false), "+u+u+-xu"), "n?r?rnd?");
}

#[test]
fn a_denial_is_not_a_failure_and_ends_every_streak() {
    assert_eq!(judged(&want(1, 2, false), "+x-x+"), "rdndr");
    assert_eq!(judged(&want(2, 2, true), "+x+-+"), "?dnnn");
}

proptest! {
    #[test]
    fn ready_needs_the_successes_and_is_lost_by_the_failures(
        results in "[-+u]{1,40}", successes in 1..5u32, failures in 1..5u32, was_ready: bool,
    ) {
        let states = judged(&want(successes, failures, was_ready), &results);
        let mut ready = false;
        for (at, state) in states.chars().enumerate() {
            let (so_far, conclusive) = (&results[..=at], results[..=at].replace('u', ""));
            let at_end = |of: &str, with: char| of.chars().rev().take_while(|result| *result == with).count();
            let inconclusive = at_end(so_far, 'u');
            let failed = at_end(&conclusive, '-');
            ready = match inconclusive {
                0 => at_end(&conclusive, '+') >= successes as usize || (ready && failed < failures as usize),
                _ => ready && failed + inconclusive < failures as usize,
            };
            prop_assert_eq!(state == 'r', ready, "{} at {}: {}", results, at, states);
            let may_be_unready = (inconclusive == 0 && failed > 0) || conclusive.ends_with('+');
            prop_assert!(state != 'n' || may_be_unready, "{} at {}: {}", results, at, states);
        }
    }
}
