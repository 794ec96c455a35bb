use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn a_full_bucket_gives_its_burst_at_once_and_then_one_token_per_interval() {
    let (start, every) = (Instant::now(), 10 * SECOND);
    let mut bucket = TokenBucket::new(Limit { interval: every, burst: 3 });
    assert!(bucket.is_full(start));
    for _ in 0..3 {
        assert_eq!(bucket.take(start), Ok(()));
    }
    let next = start + every;
    assert_eq!(bucket.take(start), Err(next));
    assert_eq!(bucket.take(next - Duration::from_nanos(1)), Err(next));
    assert_eq!(bucket.take(next), Ok(()));
    assert_eq!(bucket.ready_at(next), next + every);
    assert!(!bucket.is_full(next) && bucket.is_full(start + 4 * every));
}

#[test]
fn a_pause_refills_a_bucket_to_its_burst_and_no_further() {
    let mut bucket = TokenBucket::new(Limit::per_second(10.0, 2));
    assert_eq!(bucket.take(Duration::ZERO), Ok(()));
    let taken = (0..10).filter(|_| bucket.take(millis(60_000)).is_ok()).count();
    assert_eq!((taken, bucket.ready_at(millis(60_000))), (2, millis(60_100)));
}

#[test]
fn a_token_spent_in_advance_delays_the_later_ones() {
    let mut bucket = TokenBucket::new(Limit::per_second(10.0, 1));
    for _ in 0..3 {
        bucket.spend(Duration::ZERO);
    }
    assert_eq!(bucket.take(Duration::ZERO), Err(millis(300)));
}

#[test]
fn the_wait_of_an_old_rate_ends_within_one_interval_of_the_new_one() {
    let mut bucket = TokenBucket::new(Limit::per_second(0.001, 1));
    bucket.spend(Duration::ZERO);
    assert_eq!(bucket.ready_at(Duration::ZERO), 1000 * SECOND);
    bucket.set_limit(Limit::per_second(1.0, 5), Duration::ZERO);
    assert_eq!(bucket.ready_at(Duration::ZERO), SECOND);
}

#[test]
fn setting_a_limit_gives_no_tokens_back() {
    let mut bucket = TokenBucket::new(Limit::per_second(100.0, 10));
    let mut taken = 0;
    for turn in 0..50 {
        bucket.set_limit(Limit::per_second(100.0, if turn < 25 { 10 } else { 12 }), Duration::ZERO);
        taken += (0..100).take_while(|_| bucket.take(Duration::ZERO).is_ok()).count();
    }
    assert_eq!(taken, 12);
}

#[test]
fn a_rate_that_is_not_above_zero_allows_only_the_first_token() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY.recip()] {
        let mut bucket = TokenBucket::new(Limit::per_second(rate, 0));
        assert_eq!(bucket.take(SECOND), Ok(()));
        assert!(bucket.ready_at(SECOND) > 86_400 * SECOND, "{rate}");
    }
}

proptest! {
    /// The model fills up step by step, in milliseconds of tokens.
    #[test]
    fn a_bucket_equals_one_that_is_filled_step_by_step(
        interval in 1_u64..50,
        burst in 1_u32..6,
        steps in proptest::collection::vec((0_u64..60, any::<bool>()), 1..200),
    ) {
        let mut bucket = TokenBucket::new(Limit { interval: millis(interval), burst });
        let (mut now, full) = (0, interval * u64::from(burst));
        let mut level = full;
        for (wait, takes) in steps {
            now += wait;
            level = full.min(level + wait);
            prop_assert_eq!(bucket.ready_at(millis(now)), millis(now + interval.saturating_sub(level)));
            prop_assert_eq!(bucket.is_full(millis(now)), level == full);
            if takes && bucket.take(millis(now)).is_ok() {
                level -= interval;
            }
        }
    }
}
