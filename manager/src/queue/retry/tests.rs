use super::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn without_jitter() -> RetryPolicy {
    RetryPolicy::default().with_jitter(0)
}

/// Returns the delays after the first `N` failures, without jitter.
fn first<const N: usize>(policy: &RetryPolicy) -> [Duration; N] {
    std::array::from_fn(|earlier| policy.delay(u32::try_from(earlier).unwrap(), 0.0))
}

#[test]
fn delays_double_from_five_milliseconds_to_a_thousand_seconds() {
    let policy = without_jitter();
    for n in 0..18 {
        assert_eq!(policy.delay(n, 0.5), Duration::from_millis(5 << n), "after {n} earlier failures");
    }
    for n in [18, 19, 40, 1000, 1 << 31, u32::MAX] {
        assert_eq!(policy.delay(n, 0.5), secs(1000), "after {n} earlier failures");
    }
}

#[test]
fn after_a_thousand_failures_the_delay_is_exactly_any_maximum() {
    for max in [secs(1000), Duration::from_hours(1000), Duration::MAX] {
        let policy = RetryPolicy::exponential(Duration::from_millis(1), max);
        assert_eq!(policy.delay(1000, 0.0), max);
    }
}

#[test]
fn fast_slow_waits_fast_for_the_first_failures_and_slow_after_them() {
    let policy = RetryPolicy::fast_slow(Duration::from_millis(5), secs(10), 3);
    let (fast, slow) = (Duration::from_millis(5), secs(10));
    assert_eq!(first(&policy), [fast, fast, fast, slow, slow]);
    assert_eq!(policy.delay(u32::MAX, 0.0), slow);
}

#[test]
fn fixed_waits_the_same_for_any_random_number() {
    let policy = RetryPolicy::fixed(secs(7));
    assert_eq!([0, 1, u32::MAX].map(|n| policy.delay(n, 0.9)), [secs(7); 3]);
}

#[test]
fn one_more_failure_never_waits_less_and_the_longest_delay_is_never_exceeded() {
    let slow_growth = Delay::Exponential { base: Duration::from_millis(3), factor: 1.37, max: secs(60) };
    let fast_slow = Delay::FastSlow { fast: secs(1), slow: secs(2), max_fast: 7 };
    for delay in [slow_growth, fast_slow, Delay::Fixed(secs(3))] {
        let policy = RetryPolicy { delay, ..without_jitter() };
        for n in 0..200 {
            assert!(policy.delay(n, 0.0) <= policy.delay(n + 1, 0.0), "{policy:?} after {n}");
            assert!(policy.delay(n, 0.0) <= policy.longest_delay(), "{policy:?} after {n}");
        }
    }
}

#[test]
fn jitter_only_shortens_and_by_its_percentage_at_most() {
    for policy in [RetryPolicy::default(), RetryPolicy::fast_slow(secs(1), secs(100), 3)] {
        assert_eq!(policy.delay(0, 0.0), policy.clone().with_jitter(0).delay(0, 0.7));
        for n in 0..40 {
            let (longest, shortest) = (policy.delay(n, 0.0), policy.delay(n, 0.999_999));
            assert!(shortest >= longest.mul_f64(0.9), "{shortest:?} of {longest:?}");
            assert!(shortest <= longest.mul_f64(0.91), "{shortest:?} of {longest:?}");
        }
    }
}

#[test]
fn a_wait_that_a_server_asks_for_is_cut_only_at_the_limit_and_jitter_only_lengthens_it() {
    let (minute, max) = (Duration::from_mins(1), Duration::MAX);
    for (policy, asked, least) in [
        (RetryPolicy::default(), secs(0), secs(0)),
        (RetryPolicy::default(), secs(7), secs(7)),
        (RetryPolicy::default(), max, secs(1000)),
        (RetryPolicy::exponential(secs(1), secs(5)), secs(7), secs(7)),
        (RetryPolicy::exponential(secs(1), secs(5)), max, minute),
        (RetryPolicy::fixed(secs(1)), max, minute),
        (RetryPolicy::exponential(secs(1), max), max, max),
    ] {
        assert_eq!(policy.asked(asked, 0.0), least, "{policy:?} when asked for {asked:?}");
        let most = policy.asked(asked, 0.999_999);
        assert!(least <= most && most <= least.saturating_add(least.mul_f64(0.1)), "{most:?} of {least:?}");
        let jitter = policy.jitter_percent > 0 && !least.is_zero() && least < max;
        assert_eq!(most > least, jitter, "{policy:?} when asked for {asked:?}");
    }
}

#[test]
fn ten_thousand_keys_after_ten_failures_spread_over_two_fifths_of_a_second() {
    let policy = RetryPolicy::default();
    let mut random = fastrand::Rng::with_seed(7);
    let delays: Vec<Duration> = (0..10_000).map(|_| policy.delay(10, random.f64())).collect();
    let spread = delays.iter().max().unwrap().saturating_sub(*delays.iter().min().unwrap());
    // 5 ms doubled ten times is 5.12 s; jitter takes away a tenth of it at most.
    assert!(spread >= Duration::from_millis(400), "{spread:?}");
    assert!(delays.iter().all(|delay| *delay <= Duration::from_millis(5120)));
    // Evenly, not at the two ends: each twentieth of the range gets about its 500.
    let buckets = delays.iter().fold([0_u32; 20], |mut buckets, delay| {
        let lead = Duration::from_millis(5120).saturating_sub(*delay);
        let at = usize::try_from(lead.as_micros() / 25_600).unwrap().min(19);
        buckets[at] += 1;
        buckets
    });
    assert!(buckets.iter().all(|keys| (400..600).contains(keys)), "{buckets:?}");
}

#[test]
fn invalid_policies_stay_within_the_maximum() {
    let max = secs(3);
    for (base, factor) in
        [(Duration::MAX, f64::MAX), (Duration::ZERO, f64::INFINITY), (secs(9), f64::NAN), (secs(1), -2.0)]
    {
        let delay = Delay::Exponential { base, factor, max };
        let policy = RetryPolicy { delay, jitter_percent: 255, ..RetryPolicy::default() };
        for (n, random) in [(0, 0.7), (1, f64::NAN), (2, -5.0), (3, f64::INFINITY)] {
            assert!(policy.delay(n, random) <= max, "{policy:?} after {n}");
        }
    }
}

#[test]
fn a_maximum_of_zero_attempts_is_no_maximum() {
    assert!(!without_jitter().is_spent(u32::MAX));
    let three = without_jitter().with_max_attempts(3);
    assert_eq!([2, 3, 4].map(|failures| three.is_spent(failures)), [false, true, true]);
}
