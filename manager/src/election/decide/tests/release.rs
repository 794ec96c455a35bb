//! Stop, release and loss: client-go's `TestReleaseLeaseLeases`, `TestReleaseRetriesOnConflict` and
//! `TestReleaseOnCancellation`, and cases that it lacks.

use super::*;

#[test]
fn renews_until_work_has_ended_and_then_releases() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    assert_eq!(me.actions, [Action::EndWork]);
    me.pass(secs(2));
    me.succeed(11);
    assert!(me.leads());
    me.event(Event::WorkEnded(true));
    let released = me.writes();
    assert!(released.is_release());
    assert_eq!(released.transitions, 0);
    let closed =
        me.actions.iter().position(|action| *action == Action::StopLeading(Ending::Stopped)).unwrap();
    let sent = me.actions.iter().rposition(|action| matches!(action, Action::Send(_))).unwrap();
    assert!(closed < sent, "the fence is closed before the release is sent");
    me.succeed(12);
    assert_eq!(
        me.actions[sent + 1..],
        [Action::NewHolder(None), Action::Finish { released: true }],
        "the release is reported",
    );
}

#[test]
fn a_release_waits_for_the_renewal_in_flight() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    me.pass(secs(2));
    me.event(Event::WorkEnded(true));
    assert!(!me.writes().is_release());
    me.succeed(11);
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(11)));
    assert!(me.writes().is_release());
}

#[test]
fn a_release_is_retried_after_a_conflict_but_never_over_another_holder() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    me.event(Event::WorkEnded(true));
    me.answer(Answer::Conflict);
    assert_eq!(me.sent(), Some(&Call::Get));
    me.answer(Answer::Stored(held_by("me", secs(1000)), version(14)));
    assert!(me.writes().is_release());
    me.answer(Answer::Conflict);
    me.pass(Duration::from_millis(10));
    me.answer(Answer::Stored(held_by("other", secs(1000)), version(15)));
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
}

#[test]
fn a_release_without_an_answer_ends_at_its_deadline() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    me.event(Event::WorkEnded(true));
    me.pass(Duration::from_millis(4_999));
    assert!(me.sent().is_some());
    me.pass(Duration::from_millis(1));
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
}

#[test]
fn the_lease_is_not_released_while_work_may_still_run() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    me.event(Event::WorkEnded(false));
    assert_eq!(me.calls(), 0);
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
}

#[test]
fn a_stopped_candidate_ends_at_once_unless_a_write_may_have_made_it_holder() {
    let mut me = Driven::new();
    me.event(Event::Stop);
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
    let mut me = Driven::new();
    me.answer(Answer::Absent);
    me.event(Event::Stop);
    me.succeed(1);
    assert!(
        !me.actions.iter().any(|action| matches!(action, Action::Lead { .. })),
        "no term starts after a stop"
    );
    assert!(me.writes().is_release());
    let mut me = Driven::new();
    me.answer(Answer::Absent);
    me.event(Event::Stop);
    me.answer(Answer::Failed);
    assert_eq!(me.sent(), Some(&Call::Get), "the failed write may have been stored");
}

#[test]
fn after_a_loss_a_replica_releases_and_exits_or_campaigns_again() {
    for on_lost in [OnLost::Exit, OnLost::Campaign] {
        let mut me = Driven::leading();
        me.rules.on_lost = on_lost;
        me.pass(secs(12));
        assert!(me.did(&Action::StopLeading(Ending::Expired)));
        me.pass(secs(60));
        assert_eq!(me.sent(), None, "no request before work has ended");
        me.event(Event::WorkEnded(true));
        assert_eq!(me.sent(), Some(&Call::Get));
        me.answer(Answer::Stored(held_by("me", secs(1000)), version(11)));
        assert_eq!(me.writes().is_release(), on_lost == OnLost::Exit, "{on_lost:?}");
        me.succeed(12);
        assert_eq!(me.leads(), on_lost == OnLost::Campaign, "{on_lost:?}");
    }
}
