use super::*;

#[test]
fn a_retry_counts_in_the_first_bucket_with_a_bound_of_at_least_its_failures() {
    let bucket = |failures: u32| {
        let mut retries = Histogram::default();
        retries.count(failures);
        assert_eq!((retries.all(), retries.sum), (1, failures.into()));
        retries.buckets.iter().position(|count| *count == 1).unwrap()
    };
    for (at, bound) in ATTEMPTS.into_iter().enumerate() {
        let reached = (1..100).take_while(|failures| f64::from(*failures) <= bound).last().unwrap();
        assert_eq!((bucket(reached), bucket(reached + 1)), (at, at + 1), "{bound}");
    }
    assert_eq!(bucket(u32::MAX), ATTEMPTS.len());
}

#[test]
fn a_duration_counts_in_the_first_bucket_with_a_bound_of_at_least_its_length() {
    for (at, seconds) in BOUNDS.into_iter().enumerate() {
        let bound = Duration::from_nanos(10_u64.pow(u32::try_from(at).unwrap() + 1));
        assert!((bound.as_secs_f64() / seconds - 1.0).abs() < 1e-9, "the bounds are powers of ten");
        let mut histogram = Histogram::default();
        histogram.observe(bound.into());
        histogram.observe((bound + Duration::from_nanos(1)).into());
        assert_eq!((histogram.buckets[at], histogram.buckets[at + 1]), (1, 1), "{bound:?}");
    }
    let mut histogram = Histogram::default();
    histogram.observe(Span::default());
    histogram.observe(Duration::MAX.into());
    assert_eq!((histogram.buckets[0], histogram.buckets[BOUNDS.len()]), (1, 1));
}
