//! Namespaces share the table and the writes.

use super::*;

/// A table that is full of Events of one namespace.
fn flooded(now: Instant) -> SeriesTable {
    let mut table = SeriesTable::new();
    for number in 0..=MAX_SERIES {
        let outcome = table.observe(occurrence("noisy", &format!("pod-{number}"), "Waiting", 0), now);
        assert_eq!(outcome, if number < MAX_SERIES { NEW } else { Err(cause::FULL) }, "{number}");
    }
    table
}

#[tokio::test(start_paused = true)]
async fn a_quiet_namespace_is_next_however_many_events_another_one_has() {
    let now = Instant::now();
    let mut table = flooded(now);
    // After writes of the noisy namespace the quiet one is next, although it came last.
    write_due(&mut table, now);
    let now = now + WRITES.interval;
    let quiet = table.observe(occurrence("quiet", "web", "Waiting", 0), now);
    assert!(matches!(quiet, Ok(Observed::New(_))), "{quiet:?}");
    assert_eq!(&*table.take_due(now).unwrap().namespace, "quiet");
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns() {
    let now = Instant::now();
    let mut table = SeriesTable::new();
    for (namespace, series) in [("a", 50), ("b", 50), ("c", 3)] {
        for number in 0..series {
            table.observe(occurrence(namespace, &number.to_string(), "Waiting", 0), now).unwrap();
        }
    }
    let mut order = Vec::new();
    while let Some(write) = table.take_due(now).filter(|_| order.len() < 12) {
        done(&mut table, &write, now);
        order.push(write.namespace.to_string());
    }
    for round in order[..9].chunks(3) {
        let mut round = round.to_vec();
        round.sort_unstable();
        assert_eq!(round, ["a", "b", "c"], "{order:?}");
    }
    assert!(!order[9..].contains(&"c".to_owned()), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_namespace_does_not_use_all_writes_in_flight() {
    let now = Instant::now();
    let mut table = flooded(now);
    for _ in 0..MAX_IN_FLIGHT_EACH {
        assert!(table.take_due(now).is_some());
    }
    assert_eq!((table.take_due(now), table.next_due(now)), (None, None));
    table.observe(occurrence("quiet", "web", "Waiting", 0), now).unwrap();
    assert_eq!(&*table.take_due(now).unwrap().namespace, "quiet");
}

#[tokio::test(start_paused = true)]
async fn a_full_table_evicts_from_the_largest_namespace_up_to_a_fair_share() {
    let now = Instant::now();
    let mut table = flooded(now);
    let share = MAX_SERIES / 2;
    for number in 0..=share {
        let outcome = table.observe(occurrence("quiet", &number.to_string(), "Waiting", 0), now);
        if number == share {
            assert_eq!(outcome, Err(cause::FULL), "more than its share");
        } else {
            let Ok(Observed::New(Some(lost))) = outcome else { panic!("{number}: {outcome:?}") };
            assert_eq!((lost.cause, lost.count), (cause::FULL, 1));
            assert_eq!(lost.event.metadata.namespace.as_deref(), Some("noisy"));
        }
        assert_eq!(table.stored, MAX_SERIES);
    }
    assert_eq!(table.observe(occurrence("noisy", "late", "Waiting", 0), now), Err(cause::FULL));
}

#[tokio::test(start_paused = true)]
async fn a_crowded_table_drops_written_series_of_the_largest_namespace_only() {
    let mut now = Instant::now();
    let mut table = SeriesTable::new();
    table.observe(occurrence("quiet", "web", "Waiting", 0), now).unwrap();
    write_due(&mut table, now);
    for number in 1..MAX_SERIES {
        let outcome = table.observe(occurrence("noisy", &format!("pod-{number}"), "Waiting", 0), now);
        assert_eq!(outcome, NEW, "{number}");
    }
    while let Some(due) = table.next_due(now) {
        now = due;
        write_due(&mut table, now);
    }
    assert_eq!(table.stored, CROWDED - 1);
    assert_eq!(table.observe(occurrence("quiet", "web", "Waiting", 1), now), Ok(Observed::WriteDue));
    assert_eq!(table.observe(occurrence("noisy", "late", "Waiting", 0), now), NEW, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn when_no_write_succeeds_new_events_are_dropped_and_known_ones_are_counted() {
    let now = Instant::now();
    let mut table = flooded(now);
    assert_eq!(table.observe(occurrence("noisy", "late", "Waiting", 0), now), Err(cause::FULL));
    assert_eq!(table.observe(occurrence("noisy", "pod-0", "Waiting", 0), now), Ok(Observed::Repeated));
    assert_eq!((table.stored, table.unconfirmed()), (MAX_SERIES, MAX_SERIES as u64 + 1));
}
