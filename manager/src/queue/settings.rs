//! The settings of a queue, and the check for invalid ones.
//!
//! The queue itself treats an invalid value as the nearest valid one, so a mistake never stops work. Code
//! that reads settings from a file calls [`QueueSettings::problems`] first and refuses invalid ones.

use std::fmt;
use std::time::Duration;

use super::{Delay, Rate, RetryPolicy};

/// Share of the workers that retries may hold unless configured, in percent.
pub const DEFAULT_RETRY_SHARE: u8 = 10;
/// How long a key may be ready before it goes before all others, unless configured.
pub const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(30);

/// The settings of a queue. Every field can change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// When a failing key has its next attempt.
    pub retry: RetryPolicy,
    /// The share of the workers that retries may hold while fresh work waits: `1..=100` percent, rounded up.
    /// Even while no fresh work waits, retries leave one of two or more workers free for it, unless this is
    /// 100.
    pub retry_share: u8,
    /// A key that has been ready for this long goes before everything else, without a token.
    pub max_wait: Duration,
    /// While so many keys are ready, the queue refuses new keys of initial lists and resyncs; 0 for no limit.
    pub max_depth: usize,
}

/// One invalid setting, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value} {reason}")]
pub struct SettingsProblem {
    /// Path of the field as the configuration file spells it, such as `retry.baseDelay`.
    pub field: String,
    /// The value it has.
    pub value: String,
    /// Why the value is invalid, and the remedy.
    pub reason: String,
}

// === impl QueueSettings ===

impl QueueSettings {
    /// Returns a problem for every invalid setting.
    pub fn problems(&self) -> Vec<SettingsProblem> {
        const NO_PAUSE: &str = "lets a failing key run again without a pause; give a duration above 0";
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, field: &str, value: &dyn fmt::Display, reason: &str| {
            if wrong {
                let (field, value) = (field.to_owned(), value.to_string());
                problems.push(SettingsProblem { field, value, reason: reason.to_owned() });
            }
        };
        let RetryPolicy { delay, rate, jitter_percent, max_attempts: _ } = self.retry;
        let no_pause = |delay: Duration| delay.is_zero() && rate.is_none();
        match delay {
            Delay::Exponential { base, factor, max } => {
                let shown = format!("{base:?}");
                refuse(no_pause(base), "retry.baseDelay", &shown, NO_PAUSE);
                let longer =
                    format!("is longer than retry.maxDelay {max:?}; raise maxDelay or lower baseDelay");
                refuse(base > max, "retry.baseDelay", &shown, &longer);
                let grows = factor.is_finite() && factor >= 1.0;
                let shrinks = "does not make delays longer; give a number from 1 on";
                refuse(!grows, "retry.factor", &factor, shrinks);
            }
            Delay::FastSlow { fast, slow, max_fast: _ } => {
                refuse(no_pause(slow), "retry.fastSlow.slow", &format_args!("{slow:?}"), NO_PAUSE);
                let longer = format!("is longer than retry.fastSlow.slow {slow:?}; raise slow or lower fast");
                refuse(fast > slow, "retry.fastSlow.fast", &format_args!("{fast:?}"), &longer);
            }
            Delay::Fixed(delay) => {
                refuse(no_pause(delay), "retry.fixed", &format_args!("{delay:?}"), NO_PAUSE);
            }
        }
        let beyond = "takes away more than the whole delay; give a percentage from 0 to 100";
        refuse(jitter_percent > 100, "retry.jitter", &jitter_percent, beyond);
        if let Some(Rate { per_second, burst }) = rate {
            let is_rate = per_second.is_finite() && per_second > 0.0;
            let none = "is no rate; give a number above 0, or no retryRate";
            refuse(!is_rate, "retryRate.perSecond", &per_second, none);
            let empty = "holds no token; give a number from 1 on, or no retryRate";
            refuse(burst == 0, "retryRate.burst", &burst, empty);
        }
        let share = self.retry_share;
        let none = "is no share of the workers; give a percentage from 1 to 100";
        refuse(!(1..=100).contains(&share), "retryShare", &share, none);
        let urgent = "makes every key the most urgent one; give a duration above 0";
        refuse(self.max_wait.is_zero(), "maxWait", &format_args!("{:?}", self.max_wait), urgent);
        problems
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

#[cfg(test)]
mod tests;
