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
