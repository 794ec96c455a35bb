//! The cases of client-go's `leaderelection_test.go`, and those it lacks.

mod by_hand;
mod model;

use super::*;
use crate::election::OnLost;
use k8s_openapi::api::coordination::v1::Lease;

/// One replica, driven by hand: time passes when told, and what it sends is looked at.
struct Driven {
    rules: ElectionSettings,
    state: State,
    time: Duration,
    actions: Vec<Action>,
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn stamp(time: Duration) -> Timestamp {
    Timestamp::from_microsecond(i64::try_from(time.as_micros()).unwrap()).unwrap()
}

fn version(number: u64) -> Version {
    let mut lease = Lease::default();
    lease.metadata.resource_version = Some(number.to_string());
    Version::of(lease)
}

fn held_by(holder: &str, renewed: Duration) -> Record {
    Record::held(holder.into(), secs(15), stamp(renewed), stamp(renewed), 4)
}

fn nobody() -> Record {
    Record { holder: None, duration_seconds: None, acquired: None, renewed: None, transitions: 0 }
}

impl Driven {
    fn new() -> Self {
        let rules = ElectionSettings::new("default", "mainstay", "me");
        let state = State::new(BootInstant::from_boot(secs(1000)));
        let mut driven = Self { rules, state, time: secs(1000), actions: Vec::new() };
        driven.event(Event::Tick);
        driven
    }

    /// A leader since second 1000 under version 10, with its watch up.
    fn leading() -> Self {
        let mut driven = Self::new();
        driven.answer(Answer::Absent);
        driven.succeed(10);
        driven.event(Event::WatchUp);
        driven.actions.clear();
        driven
    }

    fn now(&self) -> Now {
        Now { boot: BootInstant::from_boot(self.time), wall: stamp(self.time), random: 0.0 }
    }

    fn event(&mut self, event: Event) {
        let (state, actions) = decide(&self.rules, self.state.clone(), self.now(), event);
        self.state = state;
        self.actions.extend(actions);
    }

    fn answer(&mut self, answer: Answer) {
        self.event(Event::Answered(answer));
    }

    fn pass(&mut self, time: Duration) {
        self.time += time;
        self.event(Event::Tick);
    }

    fn sent(&self) -> Option<&Call> {
        self.state.in_flight.as_ref().map(|request| &request.call)
    }

    #[track_caller]
    fn writes(&self) -> Record {
        match self.sent() {
            Some(Call::Create(record) | Call::Update { record, .. }) => record.clone(),
            other => panic!("expected a write under way, found {other:?}"),
        }
    }

    /// What a leader has written last.
    #[track_caller]
    fn mine(&self) -> Record {
        match &self.state.phase {
            Phase::Leading { mine, .. } => mine.clone(),
            other => panic!("expected a leader, found {other:?}"),
        }
    }

    /// The write under way is stored under this version.
    #[track_caller]
    fn succeed(&mut self, number: u64) {
        let record = self.writes();
        self.answer(Answer::Is(record, version(number)));
    }

    fn leads(&self) -> bool {
        self.state.is_leading()
    }

    /// Counts the requests sent so far.
    fn calls(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Send(_))).count()
    }

    fn did(&self, action: &Action) -> bool {
        self.actions.contains(action)
    }
}

// Upstream: TestTryAcquireOrRenewLeases.

#[test]
fn acquires_where_no_lease_exists() {
    let mut me = Driven::new();
    assert_eq!(me.sent(), Some(&Call::Get));
    me.answer(Answer::Absent);
    let written = me.writes();
    assert!(matches!(me.sent(), Some(Call::Create(_))));
    assert_eq!((written.holder.as_deref(), written.transitions), (Some("me"), 0));
    assert_eq!(written.duration_seconds, Some(15));
    assert_eq!((written.acquired, written.renewed), (Some(stamp(me.time)), Some(stamp(me.time))));
    me.succeed(1);
    assert!(me.leads() && me.calls() == 2);
    let until = BootInstant::from_boot(secs(1000) + Duration::from_millis(13_500));
    assert!(me.did(&Action::Lead { until, transitions: 0 }));
    assert!(me.did(&Action::NewHolder(Some("me".into()))));
}

#[test]
fn acquires_a_lease_without_a_record_and_counts_a_transition() {
    let mut me = Driven::new();
    me.answer(Answer::Is(nobody(), version(3)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(3)));
    assert_eq!(me.writes().transitions, 1);
    me.succeed(4);
    assert!(me.leads() && me.calls() == 2);
}

#[test]
fn acquires_a_held_lease_after_the_duration_it_states() {
    let mut me = Driven::new();
    let short = Record { duration_seconds: Some(3), ..held_by("other", secs(1)) };
    me.answer(Answer::Is(short, version(3)));
    me.event(Event::WatchUp);
    me.answer(Answer::Is(held_by("other", secs(1)), version(3)));
    me.pass(Duration::from_millis(2_999));
    assert_eq!(me.sent(), None);
    me.pass(Duration::from_millis(1));
    let written = me.writes();
    assert_eq!((written.transitions, written.acquired), (5, Some(stamp(me.time))));
    me.succeed(4);
    assert!(me.leads());
}

#[test]
fn does_not_acquire_a_held_lease_however_old_its_times_are() {
    let mut me = Driven::new();
    me.answer(Answer::Is(held_by("other", secs(1)), version(3)));
    assert_eq!((me.sent(), me.leads(), me.calls()), (None, false, 1));
    assert!(me.did(&Action::NewHolder(Some("other".into()))));
}

#[test]
fn acquires_a_released_lease_at_once_although_its_holder_was_seen() {
    let mut me = Driven::new();
    me.event(Event::WatchUp);
    me.answer(Answer::Is(held_by("other", secs(999)), version(3)));
    me.event(Event::Seen(held_by("other", secs(999)).released(stamp(secs(1000))), version(4)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(4)));
    assert_eq!(me.writes().transitions, 5);
    me.succeed(5);
    assert!(me.leads());
}

#[test]
fn goes_on_with_a_lease_of_its_own_name() {
    let mut me = Driven::new();
    me.answer(Answer::Is(held_by("me", secs(900)), version(3)));
    let written = me.writes();
    assert_eq!((written.transitions, written.acquired), (4, Some(stamp(secs(900)))));
    me.succeed(4);
    assert!(me.leads());
}

// Upstream: TestFastPathLeaderElection.

#[test]
fn renews_with_one_request_and_looks_only_after_a_conflict() {
    let mut me = Driven::leading();
    for number in 11..14 {
        me.pass(secs(2));
        assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(number - 1)));
        assert_eq!(me.writes().acquired, Some(stamp(secs(1000))), "kept over renewals");
        me.succeed(number);
    }
    me.pass(secs(2));
    me.answer(Answer::Conflict);
    assert_eq!(me.sent(), Some(&Call::Get), "at once");
    me.answer(Answer::Is(held_by("me", secs(1006)), version(20)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(20)));
    me.succeed(21);
    assert!(me.leads() && me.calls() == 6);
}

#[test]
fn a_change_the_watch_told_costs_a_leader_no_look() {
    let mut me = Driven::leading();
    me.event(Event::Seen(held_by("me", secs(1000)), version(15)));
    me.pass(secs(2));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(15)));
}

#[test]
fn conflicts_in_a_row_slow_down() {
    let mut me = Driven::leading();
    me.pass(secs(2));
    let mut waits = Vec::new();
    for number in 20..26 {
        me.answer(Answer::Conflict);
        let from = me.time;
        if me.sent().is_none() {
            let wake = me.state.wake_at(&me.rules).unwrap();
            me.pass(wake.saturating_since(me.now().boot));
        }
        waits.push(me.time.saturating_sub(from).as_millis());
        me.answer(Answer::Is(held_by("me", secs(1000)), version(number)));
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160]);
}

// What upstream gets wrong or does not test.

#[test]
fn the_end_is_counted_from_sending_and_not_from_the_answer() {
    let mut me = Driven::leading();
    me.pass(secs(2));
    me.time += secs(4);
    me.succeed(11);
    let until = BootInstant::from_boot(secs(1002) + Duration::from_millis(13_500));
    assert!(me.did(&Action::Extend { until }));
    assert!(matches!(me.sent(), Some(Call::Update { .. })), "the next renewal is due since two seconds");
}

#[test]
fn gives_up_before_the_fence_ends_when_nothing_gets_through() {
    let mut me = Driven::leading();
    me.pass(secs(2));
    me.answer(Answer::Failed);
    me.pass(secs(9));
    assert!(me.leads());
    me.pass(Duration::from_millis(999));
    assert!(me.leads());
    me.pass(Duration::from_millis(1));
    assert!(!me.leads() && me.did(&Action::StopLeading(Ending::Expired)) && me.did(&Action::EndWork));
    assert!(me.did(&Action::Abandon), "the look under way is forgotten");
}

#[test]
fn another_holder_ends_the_term_at_once() {
    let mut me = Driven::leading();
    me.event(Event::Seen(held_by("other", secs(1000)), version(11)));
    assert_eq!(
        me.actions,
        [
            Action::NewHolder(Some("other".into())),
            Action::StopLeading(Ending::Taken("other".into())),
            Action::EndWork,
        ],
    );
    me.event(Event::WorkEnded(true));
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }), "nothing of ours to give up");
}

#[test]
fn old_news_is_no_news() {
    let mut me = Driven::leading();
    me.event(Event::Seen(held_by("other", secs(1)), version(9)));
    me.event(Event::Gone(held_by("other", secs(1)), version(10)));
    assert_eq!(me.actions, []);
    assert!(me.leads());
}

#[test]
fn a_renewal_one_microsecond_later_is_one() {
    let mut me = Driven::new();
    me.event(Event::WatchUp);
    me.answer(Answer::Is(held_by("other", secs(999)), version(3)));
    me.pass(secs(14));
    me.event(Event::Seen(held_by("other", secs(999) + Duration::from_micros(1)), version(4)));
    me.pass(secs(14));
    assert_eq!(me.sent(), None);
}

#[test]
fn a_wall_clock_that_stands_still_or_goes_back_writes_no_time_twice() {
    let mut me = Driven::leading();
    let mut written = vec![stamp(secs(1000))];
    for (number, back) in [(11, 0), (12, 0), (13, 1), (14, 5), (15, 0)] {
        me.time += secs(2);
        let now = Now { wall: stamp(secs(1000 - back)), ..me.now() };
        let (state, _) = decide(&me.rules, me.state.clone(), now, Event::Tick);
        me.state = state;
        let renewed = me.writes().renewed.unwrap();
        assert!(!written.contains(&renewed), "{renewed} again, after {written:?}");
        written.push(renewed);
        me.succeed(number);
    }
    me.time += secs(2);
    let corrected = stamp(secs(100));
    let now = Now { wall: corrected, ..me.now() };
    let (state, _) = decide(&me.rules, me.state.clone(), now, Event::Tick);
    me.state = state;
    assert_eq!(me.writes().renewed, Some(corrected), "a clock that was wrong by more is right now");
}

#[test]
fn without_a_watch_a_candidate_looks_from_time_to_time() {
    let mut me = Driven::new();
    me.answer(Answer::Is(held_by("other", secs(999)), version(3)));
    for number in 4..8 {
        me.pass(Duration::from_millis(1_999));
        assert_eq!(me.sent(), None);
        me.pass(Duration::from_millis(1));
        assert_eq!(me.sent(), Some(&Call::Get));
        me.answer(Answer::Is(held_by("other", me.time), version(number)));
    }
}

#[test]
fn failures_of_a_candidate_are_spaced() {
    let mut me = Driven::new();
    for _ in 0..5 {
        me.answer(Answer::Failed);
        assert_eq!(me.sent(), None);
        me.pass(secs(2));
        assert_eq!(me.sent(), Some(&Call::Get));
    }
    me.answer(Answer::Absent);
    me.answer(Answer::Absent);
    assert_eq!(me.sent(), None, "not found on create is a missing namespace, not a reason to hurry");
}

#[test]
fn a_server_restored_from_a_backup_is_believed() {
    let mut me = Driven::leading();
    me.pass(secs(2));
    me.answer(Answer::Conflict);
    me.answer(Answer::Is(held_by("me", secs(900)), version(5)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(5)));
}

// Upstream: TestReleaseLeaseLeases, TestReleaseRetriesOnConflict, TestReleaseOnCancellation.

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
    assert!(closed < sent, "the fence is closed before the release leaves");
    me.succeed(12);
    assert_eq!(
        me.actions[sent + 1..],
        [Action::NewHolder(None), Action::Finish { released: true }],
        "the release is reported",
    );
}

#[test]
fn a_release_waits_for_the_renewal_under_way() {
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
fn a_release_is_tried_again_after_a_conflict_but_never_over_another_holder() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    me.event(Event::WorkEnded(true));
    me.answer(Answer::Conflict);
    assert_eq!(me.sent(), Some(&Call::Get));
    me.answer(Answer::Is(held_by("me", secs(1000)), version(14)));
    assert!(me.writes().is_release());
    me.answer(Answer::Conflict);
    me.pass(Duration::from_millis(10));
    me.answer(Answer::Is(held_by("other", secs(1000)), version(15)));
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
}

#[test]
fn a_release_that_gets_no_answer_is_given_up() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    me.event(Event::WorkEnded(true));
    me.pass(Duration::from_millis(4_999));
    assert!(me.sent().is_some());
    me.pass(Duration::from_millis(1));
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
}

#[test]
fn work_that_was_given_up_on_leaves_the_lease_to_run_out() {
    let mut me = Driven::leading();
    me.event(Event::Stop);
    me.event(Event::WorkEnded(false));
    assert_eq!(me.calls(), 0);
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
}

#[test]
fn a_candidate_that_stops_ends_at_once_unless_a_write_may_have_made_it_holder() {
    let mut me = Driven::new();
    me.event(Event::Stop);
    assert_eq!(me.actions.last(), Some(&Action::Finish { released: false }));
    let mut me = Driven::new();
    me.answer(Answer::Absent);
    me.event(Event::Stop);
    me.succeed(1);
    assert!(
        !me.actions.iter().any(|action| matches!(action, Action::Lead { .. })),
        "no work begins any more"
    );
    assert!(me.writes().is_release());
    let mut me = Driven::new();
    me.answer(Answer::Absent);
    me.event(Event::Stop);
    me.answer(Answer::Failed);
    assert_eq!(me.sent(), Some(&Call::Get), "it may have been stored");
}

#[test]
fn a_loss_is_final_or_the_start_of_a_new_campaign() {
    for on_lost in [OnLost::Exit, OnLost::Campaign] {
        let mut me = Driven::leading();
        me.rules.on_lost = on_lost;
        me.pass(secs(12));
        assert!(me.did(&Action::StopLeading(Ending::Expired)));
        me.pass(secs(60));
        assert_eq!(me.sent(), None, "nothing before work has ended");
        me.event(Event::WorkEnded(true));
        assert_eq!(me.sent(), Some(&Call::Get));
        me.answer(Answer::Is(held_by("me", secs(1000)), version(11)));
        assert_eq!(me.writes().is_release(), on_lost == OnLost::Exit, "{on_lost:?}");
        me.succeed(12);
        assert_eq!(me.leads(), on_lost == OnLost::Campaign, "{on_lost:?}");
    }
}
