use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn at(seconds: i64) -> MicroTime {
    MicroTime(Timestamp::from_second(1_700_000_000 + seconds).unwrap())
}

fn pod(namespace: &str, name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        ..ObjectReference::default()
    }
}

fn occurrence(namespace: &str, name: &str, reason: &str, second: i64) -> Event {
    Event {
        metadata: ObjectMeta { namespace: Some(namespace.to_owned()), ..ObjectMeta::default() },
        event_time: Some(at(second)),
        type_: Some("Normal".to_owned()),
        reason: Some(reason.to_owned()),
        action: Some("Wait".to_owned()),
        note: Some(format!("note {second}")),
        regarding: Some(pod(namespace, name)),
        reporting_controller: Some("mainstay.dev/test".to_owned()),
        ..Event::default()
    }
}

/// Records an occurrence for a Pod of the namespace `shop`.
fn observe(
    table: &mut SeriesTable,
    name: &str,
    reason: &str,
    second: i64,
    now: Instant,
) -> Result<Observed, &'static str> {
    table.observe(occurrence("shop", name, reason, second), now)
}

const NEW: Result<Observed, &str> = Ok(Observed::New(None));

fn count_of(write: &EventWrite) -> i32 {
    assert!(!write.create, "expected a count: {write:?}");
    write.event.series.as_ref().unwrap().count
}

fn busy() -> WriteResult {
    WriteResult::Retry(None, "busy".to_owned())
}

fn done(table: &mut SeriesTable, write: &EventWrite, now: Instant) {
    assert_eq!(table.finish_write(write, WriteResult::Written(write.count), now), None);
}

/// Completes all writes that may start by `now`, and returns their number.
fn write_due(table: &mut SeriesTable, now: Instant) -> usize {
    let mut writes = 0;
    while let Some(write) = table.take_due(now) {
        done(table, &write, now);
        writes += 1;
    }
    writes
}

/// A table with one Event that was created at `now`.
fn with_one(now: Instant) -> SeriesTable {
    let mut table = SeriesTable::new();
    observe(&mut table, "web", "Waiting", 0, now).unwrap();
    assert_eq!(write_due(&mut table, now), 1);
    table
}

#[tokio::test(start_paused = true)]
async fn the_first_occurrence_is_written_at_once() {
    let now = Instant::now();
    let mut table = SeriesTable::new();
    assert_eq!(observe(&mut table, "web", "Waiting", 5, now), NEW);
    let create = table.take_due(now).unwrap();
    assert_eq!((create.create, &create.event), (true, &occurrence("shop", "web", "Waiting", 5)));
    assert_eq!(table.take_due(now), None);
}

#[tokio::test(start_paused = true)]
async fn repetitions_raise_the_count_within_seconds() {
    let start = Instant::now();
    let mut table = with_one(start);
    assert_eq!(observe(&mut table, "web", "Waiting", 1, start), Ok(Observed::WriteDue));
    for second in 2..4 {
        // With another note it is still the same Event.
        assert_eq!(observe(&mut table, "web", "Waiting", second, start), Ok(Observed::Repeated));
    }
    let due = start + FIRST_UPDATE;
    assert_eq!(table.next_due(start), Some(due));
    assert_eq!(table.take_due(due - Duration::from_millis(1)), None);
    let update = table.take_due(due).unwrap();
    assert_eq!(count_of(&update), 4);
    done(&mut table, &update, due);
    assert_eq!(table.next_due(due), None);
}

#[tokio::test(start_paused = true)]
async fn a_growing_count_lags_by_at_most_ten_seconds() {
    let start = Instant::now();
    let mut table = with_one(start);
    let (mut written, mut writes) = (start, 0);
    for second in 1..600 {
        let now = start + Duration::from_secs(second);
        observe(&mut table, "web", "Waiting", 0, now).unwrap();
        if write_due(&mut table, now) > 0 {
            written = now;
            writes += 1;
        }
        assert!(now - written <= MAX_UPDATE, "{:?} after {second} s", now - written);
    }
    assert!((55..=70).contains(&writes), "{writes} writes in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn the_rate_limit_holds_for_all_events_and_none_starves() {
    let start = Instant::now();
    let mut table = SeriesTable::new();
    for number in 0..1000 {
        observe(&mut table, &format!("pod-{number}"), "Waiting", 0, start).unwrap();
    }
    assert_eq!(write_due(&mut table, start), 100, "the burst");
    assert_eq!(table.next_due(start), Some(start + WRITES.interval));
    let mut writes = 100;
    let mut now = start;
    while let Some(due) = table.next_due(now) {
        now = due;
        writes += write_due(&mut table, now);
        // An Event that was written before occurs again.
        observe(&mut table, "pod-0", "Waiting", 0, now).unwrap();
        if writes >= 1000 + 18 {
            break;
        }
    }
    let series = table.namespaces.values().flat_map(|namespace| namespace.series.values());
    assert!(series.into_iter().all(|series| series.created), "some were never written");
    assert!(now - start >= WRITES.interval * 900, "{:?}", now - start);
}

#[tokio::test(start_paused = true)]
async fn occurrences_during_a_write_are_written_next() {
    let now = Instant::now();
    let mut table = SeriesTable::new();
    observe(&mut table, "web", "Waiting", 0, now).unwrap();
    let create = table.take_due(now).unwrap();
    observe(&mut table, "web", "Waiting", 1, now).unwrap();
    assert_eq!(table.take_due(now + SERIES_IDLE), None, "one write at a time");
    done(&mut table, &create, now);
    assert_eq!(count_of(&table.take_due(now + FIRST_UPDATE).unwrap()), 2);
}

#[tokio::test(start_paused = true)]
async fn another_action_container_or_related_object_is_another_event() {
    let now = Instant::now();
    let mut table = SeriesTable::new();
    let plain = occurrence("shop", "web", "Waiting", 0);
    let mut others = vec![plain.clone(); 5];
    others[0].action = Some("Probe".to_owned());
    others[1].regarding.as_mut().unwrap().field_path = Some("spec.containers{main}".to_owned());
    others[2].related = Some(pod("shop", "other"));
    others[3].type_ = Some("Warning".to_owned());
    others[4].reporting_controller = Some("mainstay.dev/other".to_owned());
    assert_eq!(table.observe(plain, now), NEW);
    for other in others {
        assert_eq!(table.observe(other.clone(), now), NEW, "{other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_created_again_with_its_count() {
    let now = Instant::now();
    let mut table = with_one(now);
    observe(&mut table, "web", "Waiting", 1, now).unwrap();
    let update = table.take_due(now + FIRST_UPDATE).unwrap();
    assert!(table.finish_write(&update, WriteResult::NotFound, now).is_none());
    let create = table.take_due(now).unwrap();
    assert_eq!(create.event.series.as_ref().map(|series| series.count), Some(2));
    assert_eq!(create.event.metadata.resource_version, None);
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_response_no_second_event_is_created_and_the_count_follows() {
    let now = Instant::now();
    let mut table = SeriesTable::new();
    observe(&mut table, "web", "Waiting", 0, now).unwrap();
    let create = table.take_due(now).unwrap();
    table.finish_write(&create, busy(), now);
    observe(&mut table, "web", "Waiting", 1, now).unwrap();
    let now = now + FIRST_RETRY;
    let second = table.take_due(now).unwrap();
    assert_eq!((second.create, second.count), (true, 2));
    // The server has the Event from the first attempt.
    table.finish_write(&second, WriteResult::Written(1), now);
    assert_eq!(count_of(&table.take_due(now + FIRST_UPDATE).unwrap()), 2);
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_backoff_a_limited_number_of_times() {
    let mut now = Instant::now();
    let mut table = SeriesTable::new();
    observe(&mut table, "web", "Waiting", 0, now).unwrap();
    observe(&mut table, "web", "Waiting", 1, now).unwrap();
    let mut waits = Vec::new();
    let lost = loop {
        let create = table.take_due(now).unwrap();
        if let Some(lost) = table.finish_write(&create, busy(), now) {
            break lost;
        }
        let due = table.next_due(now).unwrap();
        waits.push((due - now).as_millis());
        now = due;
    };
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000]);
    assert_eq!((lost.cause, lost.count, lost.why.as_str()), (cause::GAVE_UP, 2, "busy"));
    assert_eq!(table.next_due(now), None);
    assert_eq!(observe(&mut table, "web", "Waiting", 9, now), NEW);
}

#[tokio::test(start_paused = true)]
async fn a_count_goes_on_after_a_failed_write() {
    let now = Instant::now();
    let mut table = with_one(now);
    observe(&mut table, "web", "Waiting", 1, now).unwrap();
    let now = now + FIRST_UPDATE;
    let update = table.take_due(now).unwrap();
    assert!(table.finish_write(&update, busy(), now).is_none());
    assert_eq!(observe(&mut table, "web", "Waiting", 2, now), Ok(Observed::Repeated));
    assert_eq!(count_of(&table.take_due(now + FIRST_RETRY).unwrap()), 3);
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_the_server_demands_is_kept_up_to_a_maximum() {
    for (demanded, kept) in [(7, 7), (0, 0), (120, 120), (u64::MAX, MAX_RETRY_AFTER.as_secs())] {
        let now = Instant::now();
        let mut table = SeriesTable::new();
        observe(&mut table, "web", "Waiting", 0, now).unwrap();
        let create = table.take_due(now).unwrap();
        let demanded = Duration::from_secs(demanded);
        table.finish_write(&create, WriteResult::Retry(Some(demanded), String::new()), now);
        let kept = Duration::from_secs(kept).max(FIRST_RETRY);
        assert_eq!(table.next_due(now), Some(now + kept), "{demanded:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_events_that_fail_four_times_each_are_all_written() {
    let mut now = Instant::now();
    let mut table = SeriesTable::new();
    for number in 0..1000 {
        observe(&mut table, &format!("pod-{number}"), "Waiting", 0, now).unwrap();
    }
    let mut attempts = HashMap::new();
    while let Some(due) = table.next_due(now) {
        now = now.max(due);
        while let Some(create) = table.take_due(now) {
            let tried = attempts.entry(create.key.clone()).or_insert(0);
            *tried += 1;
            let answer = if *tried > 4 { WriteResult::Written(create.count) } else { busy() };
            assert!(table.finish_write(&create, answer, now).is_none());
        }
    }
    assert_eq!((table.unconfirmed(), attempts.len()), (0, 1000));
    assert!(attempts.values().all(|tried| *tried == 5));
}

#[tokio::test(start_paused = true)]
async fn a_series_ends_after_six_quiet_minutes() {
    let now = Instant::now();
    let mut table = with_one(now);
    assert!(table.sweep(now + SERIES_IDLE - Duration::from_millis(1)).is_empty());
    assert_eq!(observe(&mut table, "web", "Waiting", 1, now), Ok(Observed::WriteDue));
    assert!(table.sweep(now + SERIES_IDLE).is_empty(), "its count is not written yet");
    assert_eq!(write_due(&mut table, now + FIRST_UPDATE), 1);
    assert_eq!((table.sweep(now + SERIES_IDLE).len(), table.stored, table.namespaces.len()), (1, 0, 0));
    assert_eq!(observe(&mut table, "web", "Waiting", 2, now), NEW);
}

#[tokio::test(start_paused = true)]
async fn a_flush_ignores_the_rate_limit_and_refuses_new_events() {
    let now = Instant::now();
    let mut table = SeriesTable::new();
    for number in 0..1000 {
        observe(&mut table, &format!("pod-{number}"), "Waiting", 0, now).unwrap();
    }
    table.start_flush(now);
    assert_eq!(observe(&mut table, "web", "Waiting", 0, now), Err(cause::STOPPED));
    assert_eq!(write_due(&mut table, now), 1000);
    assert_eq!(table.unconfirmed(), 0);
}

mod fairness;
