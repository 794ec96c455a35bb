//! The cases of client-go's `leaderelection_test.go`, and cases that it lacks.

mod by_hand;
mod model;
mod release;

use super::*;
use crate::election::OnLost;
use k8s_openapi::api::coordination::v1::Lease;

/// One replica, driven by hand: a test passes its time, sends its events and reads its requests.
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
            other => panic!("expected a write in flight, found {other:?}"),
        }
    }

    /// Returns the record that the leader last wrote.
    #[track_caller]
    fn written(&self) -> Record {
        match &self.state.phase {
            Phase::Leading { written, .. } => written.clone(),
            other => panic!("expected a leader, found {other:?}"),
        }
    }

    /// Stores the write in flight as this version.
    #[track_caller]
    fn succeed(&mut self, number: u64) {
        let record = self.writes();
        self.answer(Answer::Stored(record, version(number)));
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
    me.answer(Answer::Stored(nobody(), version(3)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(3)));
    assert_eq!(me.writes().transitions, 1);
    me.succeed(4);
    assert!(me.leads() && me.calls() == 2);
}

#[test]
fn acquires_a_held_lease_after_the_duration_it_states() {
    let mut me = Driven::new();
    let short = Record { duration_seconds: Some(3), ..held_by("other", secs(1)) };
    me.answer(Answer::Stored(short, version(3)));
    me.event(Event::WatchUp);
    me.answer(Answer::Stored(held_by("other", secs(1)), version(3)));
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
    me.answer(Answer::Stored(held_by("other", secs(1)), version(3)));
    assert_eq!((me.sent(), me.leads(), me.calls()), (None, false, 1));
    assert!(me.did(&Action::NewHolder(Some("other".into()))));
}

#[test]
fn acquires_a_released_lease_at_once_although_its_holder_was_seen() {
    let mut me = Driven::new();
    me.event(Event::WatchUp);
    me.answer(Answer::Stored(held_by("other", secs(999)), version(3)));
    me.event(Event::Seen(held_by("other", secs(999)).released(stamp(secs(1000))), version(4)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(4)));
    assert_eq!(me.writes().transitions, 5);
    me.succeed(5);
    assert!(me.leads());
}

#[test]
fn a_lease_of_its_own_name_continues_its_term() {
    let mut me = Driven::new();
    me.answer(Answer::Stored(held_by("me", secs(900)), version(3)));
    let written = me.writes();
    assert_eq!((written.transitions, written.acquired), (4, Some(stamp(secs(900)))));
    me.succeed(4);
    assert!(me.leads());
}

// Upstream: TestFastPathLeaderElection.

#[test]
fn renews_with_one_request_and_gets_the_lease_only_after_a_conflict() {
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
    me.answer(Answer::Stored(held_by("me", secs(1006)), version(20)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(20)));
    me.succeed(21);
    assert!(me.leads() && me.calls() == 6);
}

#[test]
fn a_leader_sends_no_get_after_a_change_that_the_watch_delivered() {
    let mut me = Driven::leading();
    me.event(Event::Seen(held_by("me", secs(1000)), version(15)));
    me.pass(secs(2));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(15)));
}

#[test]
fn consecutive_conflicts_double_the_wait() {
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
        me.answer(Answer::Stored(held_by("me", secs(1000)), version(number)));
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160]);
}

// Cases that upstream gets wrong or does not test.

#[test]
fn the_fence_ends_a_fixed_time_after_sending_not_after_the_answer() {
    let mut me = Driven::leading();
    me.pass(secs(2));
    me.time += secs(4);
    me.succeed(11);
    let until = BootInstant::from_boot(secs(1002) + Duration::from_millis(13_500));
    assert!(me.did(&Action::Extend { until }));
    assert!(matches!(me.sent(), Some(Call::Update { .. })), "the next renewal is due since two seconds");
}

#[test]
fn a_leader_gives_up_before_its_fence_ends_if_no_renewal_succeeds() {
    let mut me = Driven::leading();
    me.pass(secs(2));
    me.answer(Answer::Failed);
    me.pass(secs(9));
    assert!(me.leads());
    me.pass(Duration::from_millis(999));
    assert!(me.leads());
    me.pass(Duration::from_millis(1));
    assert!(!me.leads() && me.did(&Action::StopLeading(Ending::Expired)) && me.did(&Action::EndWork));
    assert!(me.did(&Action::Abandon), "the get in flight is abandoned");
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
    assert_eq!(
        me.actions.last(),
        Some(&Action::Finish { released: false }),
        "the Lease names another holder"
    );
}

#[test]
fn an_event_of_an_older_version_is_ignored() {
    let mut me = Driven::leading();
    me.event(Event::Seen(held_by("other", secs(1)), version(9)));
    me.event(Event::Gone(held_by("other", secs(1)), version(10)));
    assert_eq!(me.actions, []);
    assert!(me.leads());
}

#[test]
fn a_renew_time_one_microsecond_later_is_a_renewal() {
    let mut me = Driven::new();
    me.event(Event::WatchUp);
    me.answer(Answer::Stored(held_by("other", secs(999)), version(3)));
    me.pass(secs(14));
    me.event(Event::Seen(held_by("other", secs(999) + Duration::from_micros(1)), version(4)));
    me.pass(secs(14));
    assert_eq!(me.sent(), None);
}

#[test]
fn a_wall_clock_that_stops_or_goes_back_writes_no_time_twice() {
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
    assert_eq!(
        me.writes().renewed,
        Some(corrected),
        "a clock set back by more than a lease duration is used"
    );
}

#[test]
fn without_a_watch_a_candidate_polls_the_lease() {
    let mut me = Driven::new();
    me.answer(Answer::Stored(held_by("other", secs(999)), version(3)));
    for number in 4..8 {
        me.pass(Duration::from_millis(1_999));
        assert_eq!(me.sent(), None);
        me.pass(Duration::from_millis(1));
        assert_eq!(me.sent(), Some(&Call::Get));
        me.answer(Answer::Stored(held_by("other", me.time), version(number)));
    }
}

#[test]
fn a_candidate_waits_between_failed_requests() {
    let mut me = Driven::new();
    for _ in 0..5 {
        me.answer(Answer::Failed);
        assert_eq!(me.sent(), None);
        me.pass(secs(2));
        assert_eq!(me.sent(), Some(&Call::Get));
    }
    me.answer(Answer::Absent);
    me.answer(Answer::Absent);
    assert_eq!(me.sent(), None, "not found on create is a missing namespace: an ordinary failure");
}

#[test]
fn a_lower_version_of_a_server_restored_from_a_backup_is_accepted() {
    let mut me = Driven::leading();
    me.pass(secs(2));
    me.answer(Answer::Conflict);
    me.answer(Answer::Stored(held_by("me", secs(900)), version(5)));
    assert!(matches!(me.sent(), Some(Call::Update { over, .. }) if *over == version(5)));
}
