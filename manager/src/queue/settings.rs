//! The settings of a queue, and the check for invalid ones.
//!
//! The queue itself treats an invalid value as the nearest valid one, so a mistake never stops work. Code
//! that reads settings from a file calls [`QueueSettings::problems`] first and refuses invalid ones.

use std::fmt;
use std::time::Duration;

use super::{Delay, Rate, RetryPolicy};

/// Default share of the workers that retries may hold while fresh work waits, in percent.
pub const DEFAULT_RETRY_SHARE: u8 = 10;
/// Default time that a key may be ready before it goes before all others.
pub const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(30);

/// The settings of a work queue. Every field can change while the queue runs.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// The retry policy: when a failing key has its next attempt.
    pub retry: RetryPolicy,
    /// The share of the workers that retries may hold while fresh work waits: `1..=100` percent, rounded up.
    /// Even while no fresh work waits, retries leave one of two or more workers free for it, unless this is
    /// 100.
    pub retry_share: u8,
    /// Time after which a ready key goes before all other keys, without a token, so that no key starves.
    pub max_wait: Duration,
    /// Number of ready keys at which the queue refuses new keys of initial lists and resyncs; 0 for no limit.
    pub max_depth: usize,
}

/// One invalid setting of a queue, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value} {reason}")]
pub struct SettingsProblem {
    /// Path of the invalid setting as the configuration file spells it, such as `retry.baseDelay`.
    pub field: String,
    /// The invalid value of the setting, as text.
    pub value: String,
    /// Text that explains why the value of the setting is invalid, and the remedy.
    pub reason: String,
}

// === impl QueueSettings ===

impl QueueSettings {
    /// Returns one problem for every invalid value in these settings; empty if all are valid.
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
