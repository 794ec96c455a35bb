use super::*;

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn a_repeated_failure_is_logged_at_once_and_then_once_a_minute_with_its_number() {
    let (mut failures, start) = (LogEvery::default(), Instant::now());
    assert_eq!(failures.add(1, start), Some(1), "the first at once");
    for _ in 0..20_000 {
        assert_eq!(failures.add(2, start + MINUTE - Duration::from_nanos(1)), None);
    }
    assert_eq!(failures.add(1, start + MINUTE), Some(40_001));
    assert_eq!((failures.add(1, start + MINUTE), failures.count()), (None, 40_003));
}

#[test]
fn a_line_is_logged_once_while_it_is_remembered() {
    let (mut lines, now) = (LogOnce::new(2), Instant::now());
    assert!(lines.is_first("a", now) && lines.is_first("b", now));
    assert!(!lines.is_first("a", now) && !lines.is_first("b", now));
    assert!(lines.is_first("c", now) && lines.is_first("a", now), "evicted by another line");
    assert!(!lines.is_first("c", now));
}

#[test]
fn a_line_is_logged_again_once_it_has_not_occurred_for_a_while() {
    let (mut lines, start) = (LogOnce::new(9).again_after(MINUTE), Instant::now());
    assert!(lines.is_first("late", start) && lines.is_first("refused", start), "each line once");
    for turn in 1..100 {
        assert!(!lines.is_first("late", start + turn * MINUTE / 2));
    }
    assert!(lines.is_first("late", start + 101 * MINUTE / 2 + MINUTE / 2));
}
