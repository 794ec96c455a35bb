use tracing::callsite::Callsite as _;

use super::*;

/// Returns how many lines of one controller are logged.
fn logged(inner: &mut Inner, controller: &str, lines: usize, now: Instant) -> usize {
    let event = tracing::callsite! { name: "line", kind: tracing::metadata::Kind::EVENT, fields: };
    let names = KeyFields { controller: Some(controller.to_owned()), kind: None };
    let key = (event.metadata().callsite(), names);
    let logged = |_: &usize| inner.suppress(key.clone(), Level::WARN, "line".to_owned(), now).is_none();
    (0..lines).filter(logged).count()
}

fn inner() -> Inner {
    Inner { buckets: BoundedMap::new(MAX_KEYS), suppressed: HashMap::new(), reported: false }
}

#[test]
fn repeated_lines_are_limited_per_controller() {
    let (mut inner, start) = (inner(), Instant::now());
    let later = start + RATE.interval;
    assert_eq!(logged(&mut inner, "noisy", 5_000, start), 100);
    assert_eq!(logged(&mut inner, "quiet", 1, start), 1, "another controller");
    assert_eq!(logged(&mut inner, "noisy", 10, start + RATE.interval / 2), 0);
    assert_eq!(logged(&mut inner, "noisy", 10, later), 1);
    assert_eq!(logged(&mut inner, "noisy", 50, later + Duration::from_secs(1)), 10, "ten a second");
    assert_eq!(logged(&mut inner, "noisy", 200, later + RATE.interval * 300), 100, "after a rest");
    let counts: Vec<_> = inner.suppressed.values().map(|suppressed| suppressed.count).collect();
    assert_eq!(counts, [4_900 + 10 + 9 + 40 + 100]);
}

#[test]
fn one_thread_reports_until_no_line_is_left_out() {
    let (mut inner, start) = (inner(), Instant::now());
    assert!(!inner.reported);
    logged(&mut inner, "one", 101, start);
    logged(&mut inner, "two", 103, start);
    assert!(inner.reported);
    assert_eq!((inner.take().len(), inner.reported), (2, true), "the thread continues");
    assert_eq!((inner.take().len(), inner.reported), (0, false), "the thread has ended");
}

#[test]
fn memory_is_bounded_and_no_count_is_lost() {
    let (mut inner, start) = (inner(), Instant::now());
    logged(&mut inner, "noisy", 103, start);
    for controller in 0..10_000 {
        assert_eq!(logged(&mut inner, &controller.to_string(), 1, start), 1);
    }
    assert_eq!(inner.buckets.len(), MAX_KEYS);
    assert_eq!(inner.take().into_values().map(|suppressed| suppressed.count).collect::<Vec<_>>(), [3]);
}
