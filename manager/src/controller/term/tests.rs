use super::*;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls by hand, so that no test waits for time.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn nobody_enters_before_the_beginning_or_after_the_end() {
    let term = Term::new();
    assert!(term.enter("web").is_none(), "not begun");
    term.begin();
    assert!(term.enter("web").is_some(), "begun");
    term.end();
    assert!(term.enter("web").is_none(), "ended");
}

#[test]
fn a_term_that_is_over_before_it_has_begun_does_not_begin() {
    let term = Term::new();
    for over in [Term::end, Term::lose] {
        term.grant();
        over(&term);
        assert!(!term.begin_granted());
        assert!(term.enter("web").is_none());
    }
    term.grant();
    assert!(term.begin_granted(), "the next one");
    let work = term.enter("web").unwrap();
    assert!(!term.begin_granted(), "it has begun");
    assert!(poll_once(work.lost()).is_pending());
    assert_eq!(term.enter("web").unwrap().term(), work.term(), "it goes on");
}

#[test]
fn a_term_has_ended_when_the_last_work_has() {
    let term = Term::begun();
    let first = term.enter("web").unwrap();
    let second = term.enter("web").unwrap();
    term.end();
    drop(first);
    assert_eq!(term.late(), ["web".into()]);
    assert!(poll_once(term.ended()).is_pending());
    drop(second);
    assert!(poll_once(term.ended()).is_ready());
    assert!(term.late().is_empty());
}

#[test]
fn only_a_lost_term_interrupts_its_work() {
    let term = Term::begun();
    let work = term.enter("web").unwrap();
    term.end();
    assert!(poll_once(work.lost()).is_pending(), "an orderly end lets work finish");
    term.lose();
    assert!(poll_once(work.lost()).is_ready());
    term.begin();
    let next = term.enter("web").unwrap();
    assert!(poll_once(next.lost()).is_pending(), "a new term is not lost");
}
