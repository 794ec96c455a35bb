use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn problems(settings: &QueueSettings) -> Vec<String> {
    settings.problems().iter().map(ToString::to_string).collect()
}

fn problems_of(retry: RetryPolicy) -> Vec<String> {
    problems(&QueueSettings { retry, ..QueueSettings::default() })
}

#[test]
fn the_defaults_and_the_common_policies_are_valid() {
    assert_eq!(QueueSettings::default().problems(), []);
    for retry in [
        RetryPolicy::exponential(SECOND, SECOND),
        RetryPolicy::fast_slow(Duration::ZERO, SECOND, 3),
        RetryPolicy::fixed(SECOND),
        RetryPolicy::fixed(SECOND).with_rate(10.0, 100),
        RetryPolicy::fixed(Duration::ZERO).with_rate(0.5, 1),
    ] {
        assert_eq!(problems_of(retry), [""; 0]);
    }
}

#[test]
fn every_problem_is_named_at_once_with_field_value_and_remedy() {
    let delay = Delay::Exponential { base: 9 * SECOND, factor: 0.5, max: 3 * SECOND };
    let rate = Some(Rate { per_second: -1.0, burst: 0 });
    let settings = QueueSettings {
        retry: RetryPolicy { delay, rate, jitter_percent: 101, max_attempts: 0 },
        retry_share: 0,
        max_wait: Duration::ZERO,
        max_depth: 0,
    };
    let expected = [
        "retry.baseDelay 9s is longer than retry.maxDelay 3s; raise maxDelay or lower baseDelay",
        "retry.factor 0.5 does not make delays longer; give a number from 1 on",
        "retry.jitter 101 takes away more than the whole delay; give a percentage from 0 to 100",
        "retryRate.perSecond -1 is no rate; give a number above 0, or no retryRate",
        "retryRate.burst 0 holds no token; give a number from 1 on, or no retryRate",
        "retryShare 0 is no share of the workers; give a percentage from 1 to 100",
        "maxWait 0ns makes every key the most urgent one; give a duration above 0",
    ];
    assert_eq!(problems(&settings), expected);
}

#[test]
fn numbers_that_are_not_finite_or_positive_are_refused() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.5] {
        let delay = Delay::Exponential { base: SECOND, factor: number, max: SECOND };
        let retry = RetryPolicy { delay, ..RetryPolicy::default() }.with_rate(number, 1);
        let fields: Vec<String> = QueueSettings { retry, ..QueueSettings::default() }
            .problems()
            .into_iter()
            .map(|problem| problem.field)
            .collect();
        assert_eq!(fields, ["retry.factor", "retryRate.perSecond"], "{number}");
    }
}

#[test]
fn a_share_is_a_percentage_from_one_to_a_hundred() {
    for (retry_share, refused) in [(0, true), (1, false), (100, false), (101, true), (255, true)] {
        let settings = QueueSettings { retry_share, ..QueueSettings::default() };
        assert_eq!(!settings.problems().is_empty(), refused, "{retry_share}");
    }
}

#[test]
fn delays_without_a_pause_or_a_rate_and_delays_that_shrink_are_refused() {
    let zero = Duration::ZERO;
    let pause = "lets a failing key run again without a pause; give a duration above 0";
    for (policy, problem) in [
        (RetryPolicy::exponential(zero, SECOND), format!("retry.baseDelay 0ns {pause}")),
        (RetryPolicy::fast_slow(zero, zero, 3), format!("retry.fastSlow.slow 0ns {pause}")),
        (RetryPolicy::fixed(zero), format!("retry.fixed 0ns {pause}")),
        (
            RetryPolicy::fast_slow(2 * SECOND, SECOND, 3),
            "retry.fastSlow.fast 2s is longer than retry.fastSlow.slow 1s; raise slow or lower fast"
                .to_owned(),
        ),
    ] {
        assert_eq!(problems_of(policy), [problem]);
    }
}
