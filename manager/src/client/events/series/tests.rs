use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn regarding(name: &str, version: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some("shop".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        resource_version: Some(version.to_owned()),
        ..ObjectReference::default()
    }
}

fn occurrence(name: &str, reason: &str, second: i64) -> Occurrence {
    Occurrence {
        regarding: regarding(name, &second.to_string()),
        kind: EventType::Normal,
        reason: reason.to_owned(),
        action: "Wait".to_owned(),
        note: format!("note {second}"),
        controller: "mainstay.dev/test".into(),
        at: at(second),
    }
}

fn event_of(operation: &Operation) -> &Event {
    match &operation.action {
        ServerAction::Create(event) => event,
        ServerAction::Count { .. } => panic!("expected a create: {operation:?}"),
    }
}

fn count_of(operation: &Operation) -> i32 {
    match &operation.action {
        ServerAction::Count { series, .. } => series.count,
        ServerAction::Create(_) => panic!("expected a count: {operation:?}"),
    }
}

/// A ledger in which one event was created at `now`.
fn with_one(now: Instant) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.observe(&occurrence("web", "Waiting", 0), "replica-1", now);
    let create = ledger.take_due(now).unwrap();
    assert!(!ledger.answered(&create, Answer::Done, now));
    ledger
}

#[tokio::test(start_paused = true)]
async fn the_first_occurrence_is_created_at_once() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    assert_eq!(ledger.observe(&occurrence("web", "Waiting", 5), "replica-1", now), Observed::New);
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
async fn repetitions_raise_the_count_within_seconds_and_ever_more_rarely() {
    let start = Instant::now();
    let mut ledger = with_one(start);
    for second in 1..4 {
        // Another resourceVersion and another note: still the same event.
        assert_eq!(
            ledger.observe(&occurrence("web", "Waiting", second), "replica-1", start),
            Observed::Repeated
        );
    }
    assert_eq!(ledger.next_due(), Some(start + FIRST_UPDATE));
    assert_eq!(ledger.take_due(start + FIRST_UPDATE - Duration::from_millis(1)), None);
    let update = ledger.take_due(start + FIRST_UPDATE).unwrap();
    assert_eq!(count_of(&update), 4);
    ledger.answered(&update, Answer::Done, start + FIRST_UPDATE);
    assert_eq!(ledger.next_due(), None);

    let later = start + Duration::from_secs(30);
    ledger.observe(&occurrence("web", "Waiting", 30), "replica-1", later);
    assert_eq!(ledger.next_due(), Some(later + FIRST_UPDATE * 2));
}

#[tokio::test(start_paused = true)]
async fn what_happens_during_a_write_is_sent_next() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.observe(&occurrence("web", "Waiting", 0), "replica-1", now);
    let create = ledger.take_due(now).unwrap();
    ledger.observe(&occurrence("web", "Waiting", 1), "replica-1", now);
    assert_eq!(ledger.take_due(now + SERIES_IDLE), None, "one operation at a time");
    ledger.answered(&create, Answer::Done, now);
    assert_eq!(count_of(&ledger.take_due(now + FIRST_UPDATE).unwrap()), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_created_again_with_its_count() {
    let now = Instant::now();
    let mut ledger = with_one(now);
    ledger.observe(&occurrence("web", "Waiting", 1), "replica-1", now);
    let update = ledger.take_due(now + FIRST_UPDATE).unwrap();
    ledger.answered(&update, Answer::Gone, now);
    let create = ledger.take_due(now).unwrap();
    assert_eq!(event_of(&create).series.as_ref().map(|series| series.count), Some(2));
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_backoff_and_then_given_up() {
    let mut now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.observe(&occurrence("web", "Waiting", 0), "replica-1", now);
    let mut waits = Vec::new();
    loop {
        let create = ledger.take_due(now).unwrap();
        if ledger.answered(&create, Answer::Again(None), now) {
            break;
        }
        let due = ledger.next_due().unwrap();
        waits.push((due - now).as_millis());
        now = due;
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000]);
    assert_eq!(ledger.pending(), 0);
    assert_eq!(ledger.observe(&occurrence("web", "Waiting", 9), "replica-1", now), Observed::New);
}

#[tokio::test(start_paused = true)]
async fn the_server_may_ask_for_a_longer_wait() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    ledger.observe(&occurrence("web", "Waiting", 0), "replica-1", now);
    let create = ledger.take_due(now).unwrap();
    ledger.answered(&create, Answer::Again(Some(Duration::from_secs(7))), now);
    assert_eq!(ledger.next_due(), Some(now + Duration::from_secs(7)));
}

#[tokio::test(start_paused = true)]
async fn a_series_ends_after_six_quiet_minutes() {
    let now = Instant::now();
    let mut ledger = with_one(now);
    ledger.sweep(now + SERIES_IDLE - Duration::from_millis(1));
    assert_eq!(ledger.observe(&occurrence("web", "Waiting", 1), "replica-1", now), Observed::Repeated);
    let update = ledger.take_due(now + FIRST_UPDATE).unwrap();
    ledger.answered(&update, Answer::Done, now);
    ledger.sweep(now + SERIES_IDLE);
    assert_eq!(ledger.observe(&occurrence("web", "Waiting", 2), "replica-1", now), Observed::New);
}

#[tokio::test(start_paused = true)]
async fn a_flooding_object_is_limited_and_others_are_not() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    let mut observe = |name: &str, number: i64, now| {
        ledger.observe(&occurrence(name, &format!("Reason{number}"), number), "replica-1", now)
    };
    for number in 0..25 {
        assert_eq!(observe("web", number, now), Observed::New, "event {number}");
    }
    assert_eq!(observe("web", 25, now), Observed::Limited);
    assert_eq!(observe("db", 0, now), Observed::New);
    assert_eq!(observe("web", 3, now), Observed::Repeated, "a known event goes on counting");
    assert_eq!(observe("web", 26, now + Duration::from_mins(1)), Observed::New);
    assert_eq!(observe("web", 27, now + Duration::from_mins(1)), Observed::Limited);
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded() {
    let now = Instant::now();
    let mut ledger = Ledger::default();
    for number in 0..MAX_SERIES + 100 {
        ledger.observe(&occurrence(&format!("pod-{number}"), "Waiting", 0), "replica-1", now);
    }
    assert_eq!(ledger.entries.len(), MAX_SERIES);
    assert_eq!((ledger.by_key.len(), ledger.due.len()), (MAX_SERIES, MAX_SERIES));
}

#[test]
fn names_that_cannot_stand_in_front_are_replaced() {
    for (name, stem) in [("web-1", "web-1."), ("system:node", "event."), ("", "event."), ("Web", "event.")] {
        assert!(event_name(name, at(0)).starts_with(stem), "{name}");
    }
    assert!(event_name(&"x".repeat(253), at(0)).len() < 253);
}
