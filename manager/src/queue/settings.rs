//! How a queue behaves, and which settings make no sense.
//!
//! The queue itself bends nonsense to the nearest value that has some, so a mistake never stops work; whoever takes
//! settings from a person asks [`QueueSettings::problems`] first and refuses them.

use std::fmt;
use std::time::Duration;

use super::{Delay, Rate, RetryPolicy};

/// Share of the workers that retries may hold unless configured, in percent.
pub const DEFAULT_RETRY_SHARE: u8 = 50;
/// How long a key may be ready before it goes first unless configured.
pub const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(30);

/// How a queue behaves. Every field can change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// When a failing key has its next attempt.
    pub retry: RetryPolicy,
    /// How many of the workers retries may hold while fresh work waits: `1..=100` percent, rounded up. Of two or more
    /// workers they leave one free for fresh work also while none waits, unless this is 100.
    pub retry_share: u8,
    /// A key that has been ready for this long goes before everything else, without a token.
    pub max_wait: Duration,
    /// With this many keys ready, initial lists and resyncs are refused new keys; 0 for no limit.
    pub max_depth: usize,
}

/// One setting that makes no sense, in words an operator can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value} {reason}")]
pub struct SettingsProblem {
    /// Path of the field as the configuration file spells it, such as `retry.baseDelay`. Where a policy has several
    /// delays or rates, which no file can say, the path has an index: `retry.delays[1].slow`, `retryRate[1].burst`.
    pub field: String,
    /// The value it has.
    pub value: String,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

/// The problems found so far.
#[derive(Default)]
struct Problems(Vec<SettingsProblem>);

// === impl QueueSettings ===

impl QueueSettings {
    /// Returns everything that makes no sense; empty if all does.
    pub fn problems(&self) -> Vec<SettingsProblem> {
        let mut problems = Problems::default();
        problems.check_policy(&self.retry);
        problems.refuse(
            !(1..=100).contains(&self.retry_share),
            "retryShare",
            self.retry_share,
            "is no share of the workers; give a percentage from 1 to 100",
        );
        problems.refuse(
            self.max_wait.is_zero(),
            "maxWait",
            format_args!("{:?}", self.max_wait),
            "makes every key the most urgent one; give a duration above 0",
        );
        problems.0
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::default(),
            retry_share: DEFAULT_RETRY_SHARE,
            max_wait: DEFAULT_MAX_WAIT,
            max_depth: 0,
        }
    }
}

// === impl Problems ===

impl Problems {
    fn refuse(&mut self, wrong: bool, field: impl fmt::Display, value: impl fmt::Display, reason: &str) {
        if wrong {
            let (field, value) = (field.to_string(), value.to_string());
            self.0.push(SettingsProblem { field, value, reason: reason.to_owned() });
        }
    }

    fn check_policy(&mut self, policy: &RetryPolicy) {
        let RetryPolicy { delays, rates, jitter_percent, max_attempts: _ } = policy;
        self.refuse(
            delays.is_empty() && rates.is_empty(),
            "retry.delays",
            "[]",
            "and no retryRate let a failing key run again without a pause; give either",
        );
        for (index, delay) in delays.iter().enumerate() {
            let several = delays.len() > 1;
            self.check_delay(
                &if several { format!("retry.delays[{index}]") } else { "retry".to_owned() },
                delay,
            );
        }
        self.refuse(
            *jitter_percent > 100,
            "retry.jitter",
            jitter_percent,
            "takes away more than the whole delay; give a percentage from 0 to 100",
        );
        for (index, rate) in rates.iter().enumerate() {
            let several = rates.len() > 1;
            self.check_rate(
                &if several { format!("retryRate[{index}]") } else { "retryRate".to_owned() },
                rate,
            );
        }
    }

    fn check_delay(&mut self, path: &str, delay: &Delay) {
        const NO_PAUSE: &str = "lets a failing key run again without a pause; give a duration above 0";
        match delay {
            Delay::Exponential { base, factor, max } => {
                let shown = format!("{base:?}");
                self.refuse(base.is_zero(), format_args!("{path}.baseDelay"), &shown, NO_PAUSE);
                let longer =
                    format!("is longer than {path}.maxDelay {max:?}; raise maxDelay or lower baseDelay");
                self.refuse(base > max, format_args!("{path}.baseDelay"), shown, &longer);
                self.refuse(
                    !(factor.is_finite() && *factor >= 1.0),
                    format_args!("{path}.factor"),
                    factor,
                    "does not make delays longer; give a number from 1 on",
                );
            }
            Delay::FastSlow { fast, slow, max_fast: _ } => {
                self.refuse(slow.is_zero(), format_args!("{path}.slow"), format_args!("{slow:?}"), NO_PAUSE);
                let longer = format!("is longer than {path}.slow {slow:?}; raise slow or lower fast");
                self.refuse(fast > slow, format_args!("{path}.fast"), format_args!("{fast:?}"), &longer);
            }
            Delay::Fixed(delay) => {
                self.refuse(
                    delay.is_zero(),
                    format_args!("{path}.fixed"),
                    format_args!("{delay:?}"),
                    NO_PAUSE,
                );
            }
        }
    }

    fn check_rate(&mut self, path: &str, rate: &Rate) {
        let Rate { per_second, burst } = rate;
        self.refuse(
            !(per_second.is_finite() && *per_second > 0.0),
            format_args!("{path}.perSecond"),
            per_second,
            "is no rate; give a number above 0, or no retryRate",
        );
        self.refuse(
            *burst == 0,
            format_args!("{path}.burst"),
            burst,
            "holds no token; give a number from 1 on, or no retryRate",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn problems(settings: &QueueSettings) -> Vec<String> {
        settings.problems().iter().map(ToString::to_string).collect()
    }

    fn problems_of(retry: RetryPolicy) -> Vec<String> {
        problems(&QueueSettings { retry, ..QueueSettings::default() })
    }

    #[test]
    fn the_defaults_and_the_ready_policies_make_sense() {
        assert_eq!(QueueSettings::default().problems(), []);
        for retry in [
            RetryPolicy::exponential(SECOND, SECOND),
            RetryPolicy::fast_slow(Duration::ZERO, SECOND, 3),
            RetryPolicy::fixed(SECOND),
            RetryPolicy::bucket(0.5, 1),
            RetryPolicy::max_of([RetryPolicy::fixed(SECOND), RetryPolicy::bucket(10.0, 100)]),
        ] {
            assert_eq!(problems_of(retry), [""; 0]);
        }
    }

    #[test]
    fn every_problem_is_named_at_once_with_field_value_and_remedy() {
        let delays = vec![Delay::Exponential { base: 9 * SECOND, factor: 0.5, max: 3 * SECOND }];
        let rates = vec![Rate { per_second: -1.0, burst: 0 }];
        let settings = QueueSettings {
            retry: RetryPolicy { delays, rates, jitter_percent: 101, max_attempts: 0 },
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
    fn numbers_that_are_none_are_refused_wherever_there_is_one() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.5] {
            let delays = vec![Delay::Exponential { base: SECOND, factor: number, max: SECOND }];
            let retry = RetryPolicy {
                delays,
                rates: vec![Rate { per_second: number, burst: 1 }],
                ..RetryPolicy::default()
            };
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
    fn a_policy_that_would_retry_without_a_pause_is_refused() {
        let zero = Duration::ZERO;
        let pause = "lets a failing key run again without a pause; give a duration above 0";
        for (policy, problem) in [
            (RetryPolicy::exponential(zero, SECOND), format!("retry.baseDelay 0ns {pause}")),
            (RetryPolicy::fast_slow(zero, zero, 3), format!("retry.slow 0ns {pause}")),
            (RetryPolicy::fixed(zero), format!("retry.fixed 0ns {pause}")),
            (
                RetryPolicy::max_of([]),
                "retry.delays [] and no retryRate let a failing key run again without a pause; give either"
                    .to_owned(),
            ),
        ] {
            assert_eq!(problems_of(policy), [problem]);
        }
    }

    #[test]
    fn one_of_several_delays_or_rates_is_told_by_its_index() {
        let retry = RetryPolicy::max_of([
            RetryPolicy::fixed(SECOND),
            RetryPolicy::fast_slow(2 * SECOND, SECOND, 3),
            RetryPolicy::bucket(10.0, 1),
            RetryPolicy::bucket(10.0, 0),
        ]);
        let expected = [
            "retry.delays[1].fast 2s is longer than retry.delays[1].slow 1s; raise slow or lower fast",
            "retryRate[1].burst 0 holds no token; give a number from 1 on, or no retryRate",
        ];
        assert_eq!(problems_of(retry), expected);
    }
}
