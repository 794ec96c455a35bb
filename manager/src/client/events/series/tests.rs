use k8s_openapi::api::core::v1::ObjectReference;

use super::*;
use crate::client::events::EventType;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some("shop".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        ..ObjectReference::default()
    }
}

fn occurrence(name: &str, reason: &str, second: i64) -> Occurrence {
    Occurrence {
        regarding: pod(name),
        related: None,
        kind: EventType::Normal,
        reason: reason.to_owned(),
        action: "Wait".to_owned(),
        note: format!("note {second}"),
        controller: "mainstay.dev/test".into(),
        at: at(second),
    }
}

fn new_ledger() -> Ledger {
    Ledger::new("replica-1".to_owned(), Instant::now())
}

fn put_in(ledger: &mut Ledger, occurrence: &Occurrence, now: Instant) -> Result<Taken, Cause> {
    ledger.observe(SeriesKey::of(occurrence), occurrence, now)
}

fn observe(ledger: &mut Ledger, name: &str, reason: &str, second: i64, now: Instant) -> Result<Taken, Cause> {
    put_in(ledger, &occurrence(name, reason, second), now)
}

fn event_of(operation: &Operation) -> &Event {
    match &operation.action {
        ServerAction::Create(event) => event,
        other => panic!("expected a create: {other:?}"),
    }
}

fn count_of(operation: &Operation) -> i32 {
    match &operation.action {
        ServerAction::Count { series, .. } => series.count,
        other => panic!("expected a count: {other:?}"),
    }
}

fn again() -> Answer {
    Answer::Again(None, "busy".to_owned())
}

/// Answers `Done` to everything that is due by `now`, and returns how many operations that were.
fn settle_due(ledger: &mut Ledger, now: Instant) -> usize {
    let mut operations = 0;
    while let Some(operation) = ledger.take_due(now) {
        assert!(ledger.answered(&operation, Answer::Done, now).is_none());
        operations += 1;
    }
    operations
}

/// A ledger in which one event was created at `now`.
fn with_one(now: Instant) -> Ledger {
    let mut ledger = new_ledger();
    observe(&mut ledger, "web", "Waiting", 0, now).unwrap();
    assert_eq!(settle_due(&mut ledger, now), 1);
    ledger
}

#[tokio::test(start_paused = true)]
async fn the_first_occurrence_is_created_at_once() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    assert_eq!(observe(&mut ledger, "web", "Waiting", 5, now), Ok(Taken::New));
    let create = ledger.take_due(now).unwrap();
    let event = event_of(&create);
    assert_eq!(event.event_time, Some(MicroTime(at(5))));
    assert_eq!(event.note.as_deref(), Some("note 5"));
    assert_eq!(event.reporting_instance.as_deref(), Some("replica-1"));
    assert_eq!(event.metadata.namespace.as_deref(), Some("shop"));
    assert!(event.metadata.name.as_deref().unwrap().starts_with("web."), "{:?}", event.metadata.name);
    assert_eq!(event.series, None);
    assert_eq!(ledger.take_due(now), None);
}

#[tokio::test(start_paused = true)]
async fn repetitions_raise_the_count_within_seconds() {
    let start = Instant::now();
    let mut ledger = with_one(start);
    assert_eq!(observe(&mut ledger, "web", "Waiting", 1, start), Ok(Taken::Raised));
    for second in 2..4 {
        // Another note: still the same event.
        assert_eq!(observe(&mut ledger, "web", "Waiting", second, start), Ok(Taken::Repeated));
    }
    let due = start + FIRST_UPDATE;
    assert_eq!(ledger.next_due(start), Some(due));
    assert_eq!(ledger.take_due(due - Duration::from_millis(1)), None);
    let update = ledger.take_due(due).unwrap();
    assert_eq!(count_of(&update), 4);
    ledger.answered(&update, Answer::Done, due);
    assert_eq!(ledger.next_due(due), None);
}

#[tokio::test(start_paused = true)]
async fn a_count_that_grows_all_the_time_never_lags_more_than_ten_seconds() {
    let start = Instant::now();
    let mut ledger = with_one(start);
    let (mut written, mut writes) = (start, 0);
    for second in 1..600 {
        let now = start + Duration::from_secs(second);
        observe(&mut ledger, "web", "Waiting", 0, now).unwrap();
        if settle_due(&mut ledger, now) > 0 {
            written = now;
            writes += 1;
        }
        assert!(now - written <= MAX_UPDATE, "{:?} after {second} s", now - written);
    }
    assert!((55..=70).contains(&writes), "{writes} writes in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn all_events_together_stay_below_one_rate_and_none_starves() {
    let start = Instant::now();
    let mut ledger = new_ledger();
    for number in 0..1000 {
        observe(&mut ledger, &format!("pod-{number}"), "Waiting", 0, start).unwrap();
    }
    assert_eq!(settle_due(&mut ledger, start), 100, "the burst");
    assert_eq!(ledger.next_due(start), Some(start + WRITES.every));
    let mut writes = 100;
    let mut now = start;
    while let Some(due) = ledger.next_due(now) {
        now = due;
        writes += settle_due(&mut ledger, now);
        // Those already there go on happening.
        observe(&mut ledger, "pod-0", "Waiting", 0, now).unwrap();
        if writes >= 1000 + 18 {
            break;
        }
    }
    assert_eq!(ledger.entries.values().filter(|entry| entry.stage == Stage::Absent).count(), 0);
    assert!(now - start >= WRITES.every * 900, "{:?}", now - start);
}

#[tokio::test(start_paused = true)]
async fn what_happens_during_a_write_is_sent_next() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    observe(&mut ledger, "web", "Waiting", 0, now).unwrap();
    let create = ledger.take_due(now).unwrap();
    observe(&mut ledger, "web", "Waiting", 1, now).unwrap();
    assert_eq!(ledger.take_due(now + SERIES_IDLE), None, "one operation at a time");
    ledger.answered(&create, Answer::Done, now);
    assert_eq!(count_of(&ledger.take_due(now + FIRST_UPDATE).unwrap()), 2);
}

#[tokio::test(start_paused = true)]
async fn another_action_container_or_related_object_is_another_event() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    let plain = occurrence("web", "Waiting", 0);
    let mut others = vec![plain.clone(); 5];
    others[0].action = "Probe".to_owned();
    others[1].regarding.field_path = Some("spec.containers{main}".to_owned());
    others[2].related = Some(pod("other"));
    others[3].kind = EventType::Warning;
    others[4].controller = "mainstay.dev/other".into();
    assert_eq!(put_in(&mut ledger, &plain, now), Ok(Taken::New));
    for other in &others {
        assert_eq!(put_in(&mut ledger, other, now), Ok(Taken::New), "{other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_created_again_with_its_count() {
    let now = Instant::now();
    let mut ledger = with_one(now);
    observe(&mut ledger, "web", "Waiting", 1, now).unwrap();
    let update = ledger.take_due(now + FIRST_UPDATE).unwrap();
    assert!(ledger.answered(&update, Answer::Gone, now).is_none());
    let create = ledger.take_due(now).unwrap();
    assert_eq!(event_of(&create).series.as_ref().map(|series| series.count), Some(2));
    assert_eq!(event_of(&create).metadata.resource_version, None);
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_was_lost_is_adopted() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    observe(&mut ledger, "web", "Waiting", 0, now).unwrap();
    let create = ledger.take_due(now).unwrap();
    ledger.answered(&create, again(), now);
    let now = now + FIRST_RETRY;
    let create = ledger.take_due(now).unwrap();
    ledger.answered(&create, Answer::Exists, now);
    observe(&mut ledger, "web", "Waiting", 1, now).unwrap();
    let adopt = ledger.take_due(now).unwrap();
    let ServerAction::Adopt(event) = &adopt.action else { panic!("expected an adoption: {adopt:?}") };
    assert_eq!(event.metadata.name, event_of(&create).metadata.name);
    ledger.answered(&adopt, Answer::Done, now);
    assert_eq!((ledger.unconfirmed(), ledger.next_due(now)), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_another_events_is_left_alone() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    observe(&mut ledger, "web", "Waiting", 0, now).unwrap();
    let create = ledger.take_due(now).unwrap();
    ledger.answered(&create, Answer::Exists, now);
    let adopt = ledger.take_due(now).unwrap();
    ledger.answered(&adopt, Answer::Foreign, now);
    let second = ledger.take_due(now).unwrap();
    assert_ne!(event_of(&second).metadata.name, event_of(&create).metadata.name);
    ledger.answered(&second, Answer::Done, now);
    assert_eq!(ledger.unconfirmed(), 0);
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_backoff_and_then_given_up() {
    let mut now = Instant::now();
    let mut ledger = new_ledger();
    observe(&mut ledger, "web", "Waiting", 0, now).unwrap();
    observe(&mut ledger, "web", "Waiting", 1, now).unwrap();
    let mut waits = Vec::new();
    let lost = loop {
        let create = ledger.take_due(now).unwrap();
        if let Some(lost) = ledger.answered(&create, again(), now) {
            break lost;
        }
        let due = ledger.next_due(now).unwrap();
        waits.push((due - now).as_millis());
        now = due;
    };
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000]);
    assert_eq!((lost.cause, lost.count, lost.why.as_str()), (Cause::GaveUp, 2, "busy"));
    assert_eq!(ledger.next_due(now), None);
    assert_eq!(observe(&mut ledger, "web", "Waiting", 9, now), Ok(Taken::New));
}

#[tokio::test(start_paused = true)]
async fn a_count_that_could_not_be_written_once_goes_on_counting() {
    let now = Instant::now();
    let mut ledger = with_one(now);
    observe(&mut ledger, "web", "Waiting", 1, now).unwrap();
    let now = now + FIRST_UPDATE;
    let update = ledger.take_due(now).unwrap();
    assert!(ledger.answered(&update, again(), now).is_none());
    assert_eq!(observe(&mut ledger, "web", "Waiting", 2, now), Ok(Taken::Repeated));
    assert_eq!(count_of(&ledger.take_due(now + FIRST_RETRY).unwrap()), 3);
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_the_server_asks_for_is_kept_whole_within_reason() {
    for (asked, kept) in [(7, 7), (0, 0), (120, 120), (u64::MAX, MAX_RETRY_AFTER.as_secs())] {
        let now = Instant::now();
        let mut ledger = new_ledger();
        observe(&mut ledger, "web", "Waiting", 0, now).unwrap();
        let create = ledger.take_due(now).unwrap();
        let asked = Duration::from_secs(asked);
        ledger.answered(&create, Answer::Again(Some(asked), String::new()), now);
        let kept = Duration::from_secs(kept).max(FIRST_RETRY);
        assert_eq!(ledger.next_due(now), Some(now + kept), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_events_that_fail_four_times_each_are_all_written() {
    let mut now = Instant::now();
    let mut ledger = new_ledger();
    for number in 0..1000 {
        observe(&mut ledger, &format!("pod-{number}"), "Waiting", 0, now).unwrap();
    }
    let mut attempts = HashMap::new();
    while let Some(due) = ledger.next_due(now) {
        now = now.max(due);
        while let Some(create) = ledger.take_due(now) {
            let tried = attempts.entry(create.id).or_insert(0);
            *tried += 1;
            let answer = if *tried > 4 { Answer::Done } else { again() };
            assert!(ledger.answered(&create, answer, now).is_none());
        }
    }
    assert_eq!((ledger.unconfirmed(), attempts.len()), (0, 1000));
    assert!(attempts.values().all(|tried| *tried == 5));
}

#[tokio::test(start_paused = true)]
async fn a_series_ends_after_six_quiet_minutes() {
    let now = Instant::now();
    let mut ledger = with_one(now);
    assert!(!ledger.end_idle(now + SERIES_IDLE - Duration::from_millis(1)));
    assert_eq!(observe(&mut ledger, "web", "Waiting", 1, now), Ok(Taken::Raised));
    assert!(!ledger.end_idle(now + SERIES_IDLE), "its count is not written yet");
    assert_eq!(settle_due(&mut ledger, now + FIRST_UPDATE), 1);
    assert!(ledger.end_idle(now + SERIES_IDLE));
    assert_eq!(observe(&mut ledger, "web", "Waiting", 2, now), Ok(Taken::New));
}

#[tokio::test(start_paused = true)]
async fn a_flooding_object_is_limited_and_others_are_not() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    let mut observe =
        |name: &str, number: i64, now| observe(&mut ledger, name, &format!("Reason{number}"), number, now);
    for number in 0..25 {
        assert_eq!(observe("web", number, now), Ok(Taken::New), "event {number}");
    }
    assert_eq!(observe("web", 25, now), Err(Cause::Limited));
    assert_eq!(observe("db", 0, now), Ok(Taken::New));
    assert_eq!(observe("web", 3, now), Ok(Taken::Repeated), "a known event goes on counting");
    let later = now + TOPIC_LIMIT.every;
    assert_eq!(observe("web", 26, later), Ok(Taken::New));
    assert_eq!(observe("web", 27, later), Err(Cause::Limited));
}

#[tokio::test(start_paused = true)]
async fn no_number_of_other_objects_gives_a_flooding_one_a_new_budget() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    let mut taken = 0;
    for number in 0..3 * MAX_SERIES {
        settle_due(&mut ledger, now + WRITES.every * u32::try_from(number).unwrap());
        let noise = format!("Reason{number}");
        taken += usize::from(observe(&mut ledger, "web", &noise, 0, now) == Ok(Taken::New));
        assert_eq!(observe(&mut ledger, &format!("pod-{number}"), "Waiting", 0, now), Ok(Taken::New));
    }
    assert_eq!(taken, 25);
}

#[tokio::test(start_paused = true)]
async fn a_noisy_object_pushes_out_its_own_series_only() {
    let mut now = Instant::now();
    let mut ledger = with_one(now);
    for number in 0..10 * TOPIC_SERIES {
        now += TOPIC_LIMIT.every;
        assert_eq!(observe(&mut ledger, "noisy", &format!("Reason{number}"), 0, now), Ok(Taken::New));
        settle_due(&mut ledger, now);
    }
    assert_eq!(ledger.entries.len(), TOPIC_SERIES + 1);
    assert_eq!(observe(&mut ledger, "web", "Waiting", 1, now), Ok(Taken::Raised));
}

#[tokio::test(start_paused = true)]
async fn a_noisy_object_at_a_dead_server_has_its_share_and_no_more() {
    let mut now = Instant::now();
    let mut ledger = new_ledger();
    let mut outcomes = Vec::new();
    for number in 0..2 * TOPIC_SERIES {
        now += TOPIC_LIMIT.every;
        outcomes.push(observe(&mut ledger, "noisy", &format!("Reason{number}"), 0, now));
    }
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), TOPIC_SERIES);
    assert_eq!(outcomes.last(), Some(&Err(Cause::Limited)));
    assert_eq!(observe(&mut ledger, "web", "Waiting", 1, now), Ok(Taken::New));
}

#[tokio::test(start_paused = true)]
async fn when_nothing_can_be_written_the_newest_are_dropped_and_memory_is_bounded() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    for number in 0..MAX_SERIES {
        assert_eq!(observe(&mut ledger, &format!("pod-{number}"), "Waiting", 0, now), Ok(Taken::New));
    }
    assert_eq!(observe(&mut ledger, "late", "Waiting", 0, now), Err(Cause::Full));
    assert_eq!(observe(&mut ledger, "pod-0", "Waiting", 0, now), Ok(Taken::Repeated));
    assert_eq!(
        (ledger.entries.len(), ledger.by_key.len(), ledger.due.len()),
        (MAX_SERIES, MAX_SERIES, MAX_SERIES)
    );
    assert_eq!(ledger.by_topic.len(), MAX_SERIES);
    // What the server knows makes room.
    settle_due(&mut ledger, now);
    assert_eq!(observe(&mut ledger, "late", "Waiting", 0, now), Ok(Taken::New));
    assert_eq!(ledger.entries.len(), MAX_SERIES);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_no_turn_and_takes_nothing_new() {
    let now = Instant::now();
    let mut ledger = new_ledger();
    for number in 0..1000 {
        observe(&mut ledger, &format!("pod-{number}"), "Waiting", 0, now).unwrap();
    }
    ledger.hurry(now);
    assert_eq!(observe(&mut ledger, "web", "Waiting", 0, now), Err(Cause::Stopped));
    assert_eq!(settle_due(&mut ledger, now), 1000);
    assert_eq!(ledger.unconfirmed(), 0);
}
