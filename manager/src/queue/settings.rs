//! How a queue behaves, and which settings make no sense.
//!
//! The queue itself bends nonsense to the nearest value that has some, so a mistake never stops work; whoever takes
//! settings from a person asks [`QueueSettings::problems`] first and refuses them.

use std::time::Duration;

use super::{Rate, RetryPolicy};

/// Share of the workers that retries may hold unless configured, in percent.
pub const DEFAULT_RETRY_SHARE: u8 = 50;
/// How long a key may be ready before it goes first unless configured.
pub const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(30);

/// How a queue behaves. Every field can change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// How long a failing key waits.
    pub retry: RetryPolicy,
    /// How many of the workers retries may hold while fresh work waits: `1..=100` percent, rounded up.
    pub retry_share: u8,
    /// How many retries there may be per second, over all keys; `None` for no limit.
    pub retry_rate: Option<Rate>,
    /// A key that has been ready for this long goes before everything else.
    pub max_wait: Duration,
    /// With this many keys ready, initial lists and resyncs are refused new keys; 0 for no limit.
    pub max_depth: usize,
}

/// One setting that makes no sense, in words an operator can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value} {reason}")]
pub struct SettingsProblem {
    /// Path of the field as the configuration file spells it, such as `retry.baseDelay`.
    pub field: &'static str,
    /// The value it has.
    pub value: String,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

// === impl QueueSettings ===

impl QueueSettings {
    /// Returns everything that makes no sense; empty if all does.
    pub fn problems(&self) -> Vec<SettingsProblem> {
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, field, value: String, reason: &str| {
            if wrong {
                problems.push(SettingsProblem { field, value, reason: reason.to_owned() });
            }
        };
        let RetryPolicy { base_delay, factor, max_delay, jitter_percent, .. } = &self.retry;
        refuse(
            base_delay > max_delay,
            "retry.baseDelay",
            format!("{base_delay:?}"),
            &format!("is longer than retry.maxDelay {max_delay:?}; raise maxDelay or lower baseDelay"),
        );
        refuse(
            !(factor.is_finite() && *factor >= 1.0),
            "retry.factor",
            factor.to_string(),
            "would shorten the delays; give a number from 1 on",
        );
        refuse(
            *jitter_percent > 100,
            "retry.jitter",
            jitter_percent.to_string(),
            "takes away more than the whole delay; give a percentage from 0 to 100",
        );
        refuse(
            !(1..=100).contains(&self.retry_share),
            "retryShare",
            self.retry_share.to_string(),
            "is no share of the workers; give a percentage from 1 to 100",
        );
        if let Some(Rate { per_second, burst }) = &self.retry_rate {
            refuse(
                !(per_second.is_finite() && *per_second > 0.0),
                "retryRate.perSecond",
                per_second.to_string(),
                "lets no retry through; give a number above 0, or no retryRate",
            );
            refuse(
                *burst == 0,
                "retryRate.burst",
                burst.to_string(),
                "holds no token; give a number from 1 on, or no retryRate",
            );
        }
        refuse(
            self.max_wait.is_zero(),
            "maxWait",
            format!("{:?}", self.max_wait),
            "makes every key the most urgent one; give a duration above 0",
        );
        problems
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::default(),
            retry_share: DEFAULT_RETRY_SHARE,
            retry_rate: None,
            max_wait: DEFAULT_MAX_WAIT,
            max_depth: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_make_sense() {
        assert_eq!(QueueSettings::default().problems(), []);
    }

    #[test]
    fn every_problem_is_named_at_once_with_field_value_and_remedy() {
        let settings = QueueSettings {
            retry: RetryPolicy {
                base_delay: Duration::from_secs(9),
                factor: 0.5,
                max_delay: Duration::from_secs(3),
                jitter_percent: 101,
                max_attempts: 0,
            },
            retry_share: 0,
            retry_rate: Some(Rate { per_second: -1.0, burst: 0 }),
            max_wait: Duration::ZERO,
            max_depth: 0,
        };
        let problems: Vec<String> = settings.problems().iter().map(ToString::to_string).collect();
        let expected = [
            "retry.baseDelay 9s is longer than retry.maxDelay 3s; raise maxDelay or lower baseDelay",
            "retry.factor 0.5 would shorten the delays; give a number from 1 on",
            "retry.jitter 101 takes away more than the whole delay; give a percentage from 0 to 100",
            "retryShare 0 is no share of the workers; give a percentage from 1 to 100",
            "retryRate.perSecond -1 lets no retry through; give a number above 0, or no retryRate",
            "retryRate.burst 0 holds no token; give a number from 1 on, or no retryRate",
            "maxWait 0ns makes every key the most urgent one; give a duration above 0",
        ];
        assert_eq!(problems, expected);
    }
}
