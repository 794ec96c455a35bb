//! The keys of one controller as the file has them, each optional, and their application to settings.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::path_of;
use crate::config::{Duration, Problem};
use crate::controller::ControllerSettings;
use crate::queue::{Delay, Rate, RetryPolicy};

/// The keys that the configuration file has for one controller; `None` for an absent key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::config) struct ControllerKeys {
    /// Whether the controller runs. A disabled controller stays registered, but starts neither sources nor
    /// workers. Stores declared for it are still watched, and the manager waits for them at the start.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) enabled: Option<bool>,
    /// Whether the controller is paused: it starts no reconcile. Running reconciles finish, and its queue
    /// keeps all keys until it resumes.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    paused: Option<bool>,
    /// How many objects the controller reconciles at the same time.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 1000))]
    workers: Option<usize>,
    /// The longest time of one reconcile: one that takes longer is cancelled and counted as failed; 0s is no
    /// limit.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["0s", "24h"]))]
    reconcile_timeout: Option<Duration>,
    /// Settings of the controller's queue of objects to reconcile.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueKeys>,
}

/// The keys that the configuration file has for a controller's queue; `None` for an absent key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[expect(clippy::option_option, reason = "null is a value, and differs from an absent key")]
struct QueueKeys {
    /// The backoff of an object whose reconcile failed. It grows (baseDelay, factor, maxDelay) or has another
    /// form, fixed or fastSlow; at most one of the three. jitter and maxAttempts apply to every form.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryKeys>,
    /// The share of workers, in percent and rounded up, that retries may occupy while fresh work is ready.
    /// With two or more workers, retries leave one worker free even while no fresh work is ready, unless the
    /// share is 100.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(min = 1, max = 100))]
    retry_share: Option<u8>,
    /// The rate limit of all retries together, such as {perSecond: 50, burst: 200}; null is no limit. From
    /// 0.001 to 100000 per second.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<RateKeys>")]
    retry_rate: Option<Option<RateKeys>>,
    /// The time after which an object that is ready goes first, so that no object starves.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["1ms", "24h"]))]
    max_wait: Option<Duration>,
    /// Above this many objects the queue accepts no new objects from initial lists until it has drained; 0 is
    /// no limit.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 4_294_967_295u32))]
    max_depth: Option<usize>,
}

/// The keys that the configuration file has for the backoff of failed reconciles; `None` for an absent key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[expect(clippy::option_option, reason = "null is a value, and differs from an absent key")]
struct RetryKeys {
    /// The delay of the retry after the first failure, at most maxDelay.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["1ms", "24h"]))]
    base_delay: Option<Duration>,
    /// The factor by which the delay grows with each further failure; 1 keeps it constant.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1, max = 100))]
    factor: Option<f64>,
    /// The longest delay of a retry.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["1ms", "24h"]))]
    max_delay: Option<Duration>,
    /// Another form of the backoff: the same delay after every failure, such as 5s.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Duration>", extend("x-mainstay-range" = ["1ms", "24h"]))]
    fixed: Option<Option<Duration>>,
    /// Another form of the backoff: a short delay after each of the first failures and a long delay after all
    /// later ones, such as {fast: 1s, slow: 30s, maxFast: 5}.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FastSlowKeys>")]
    fast_slow: Option<Option<FastSlowKeys>>,
    /// Each delay is shortened at random by up to this many percent, so that objects that failed together are
    /// not retried together.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(min = 0, max = 100))]
    jitter: Option<u8>,
    /// After this many consecutive failures an object is parked until it changes; 0 is never.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 4_294_967_295u32))]
    max_attempts: Option<u32>,
}

/// The keys of a backoff that has a short delay after the first failures and a long delay after later ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FastSlowKeys {
    /// The short delay, after each of the first maxFast failures; at most slow.
    #[schemars(extend("x-mainstay-range" = ["0s", "24h"]))]
    fast: Duration,
    /// The long delay, after each failure beyond the first maxFast.
    #[schemars(extend("x-mainstay-range" = ["1ms", "24h"]))]
    slow: Duration,
    /// How many of the first failures have the short delay fast.
    max_fast: u32,
}

/// The keys of a limit of retries per second. One of them may be absent if the settings below have a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RateKeys {
    /// The most retries per second in the long run.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.001, max = 100_000))]
    per_second: Option<f64>,
    /// The most retries at the same time, after a time without retries.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 100_000))]
    burst: Option<u32>,
}

/// Deserializes a key that is present in the file; null is passed to the type, and most types refuse it.
fn written<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

// === impl ControllerKeys ===

impl ControllerKeys {
    /// Returns the default of every key of a controller as JSON text, in the order of the fields.
    pub(in crate::config) fn default_text() -> String {
        serde_json::to_string(&Self::from(&ControllerSettings::default())).unwrap_or_default()
    }

    /// Replaces those settings of a controller that the file has keys for. `every` has the settings of all
    /// controllers.
    pub(super) fn apply_to(&self, settings: &mut ControllerSettings, every: &ControllerSettings) {
        fn put<T: Copy>(key: Option<T>, setting: &mut T) {
            *setting = key.unwrap_or(*setting);
        }
        put(self.enabled, &mut settings.enabled);
        put(self.paused, &mut settings.paused);
        put(self.workers, &mut settings.workers);
        put(self.reconcile_timeout.map(|timeout| *timeout), &mut settings.reconcile_timeout);
        let (Some(keys), queue) = (&self.queue, &mut settings.queue) else { return };
        if let Some(retry) = &keys.retry {
            retry.apply_to(&mut queue.retry, &every.queue.retry);
        }
        if let Some(rate) = keys.retry_rate {
            queue.retry.rate = rate.and_then(|rate| rate.over(queue.retry.rate.or(every.queue.retry.rate)));
        }
        put(keys.retry_share, &mut queue.retry_share);
        put(keys.max_wait.map(|wait| *wait), &mut queue.max_wait);
        put(keys.max_depth, &mut queue.max_depth);
    }

    /// Adds a problem if the retry rate of a controller has only one of its keys and `below` has no rate.
    /// Code might set one, but the file must be valid without code.
    pub(super) fn check_rate(&self, name: &str, below: &ControllerSettings, problems: &mut Vec<Problem>) {
        let Some(rate) = self.queue.as_ref().and_then(|queue| queue.retry_rate.flatten()) else { return };
        if rate.over(below.queue.retry.rate).is_none() {
            let missing = match (rate.per_second, rate.burst) {
                (None, None) => "neither perSecond nor burst",
                (None, _) => "no perSecond",
                _ => "no burst",
            };
            let message = format!("has {missing}; expected {{perSecond: 50, burst: 200}} or null");
            problems.push(Problem::message(format!("{}.queue.retryRate", path_of(name)), message));
        }
    }

    /// Adds a problem if the entry of a controller has more than one form of a backoff.
    pub(super) fn check_forms(&self, name: &str, problems: &mut Vec<Problem>) {
        let Some(retry) = self.queue.as_ref().and_then(|queue| queue.retry.as_ref()) else { return };
        let forms = [
            ("baseDelay, factor and maxDelay", retry.grows()),
            ("fixed", retry.fixed.flatten().is_some()),
            ("fastSlow", retry.fast_slow.flatten().is_some()),
        ];
        let forms: Vec<&str> = forms.iter().filter(|(_, written)| *written).map(|(form, _)| *form).collect();
        if forms.len() > 1 {
            let message = format!("has {}; expected one form of a backoff", forms.join(", and "));
            problems.push(Problem::message(format!("{}.queue.retry", path_of(name)), message));
        }
    }
}

/// Converts the settings of a controller into keys of the file, of which all are present.
impl From<&ControllerSettings> for ControllerKeys {
    fn from(settings: &ControllerSettings) -> Self {
        let queue = &settings.queue;
        Self {
            enabled: Some(settings.enabled),
            paused: Some(settings.paused),
            workers: Some(settings.workers),
            reconcile_timeout: Some(settings.reconcile_timeout.into()),
            queue: Some(QueueKeys {
                retry: Some(RetryKeys::from(&queue.retry)),
                retry_share: Some(queue.retry_share),
                retry_rate: Some(queue.retry.rate.map(|Rate { per_second, burst }| RateKeys {
                    per_second: Some(per_second),
                    burst: Some(burst),
                })),
                max_wait: Some(queue.max_wait.into()),
                max_depth: Some(queue.max_depth),
            }),
        }
    }
}

// === impl RetryKeys ===

impl RetryKeys {
    /// Returns whether a key of the growing backoff (baseDelay, factor, maxDelay) is present.
    fn grows(&self) -> bool {
        self.base_delay.is_some() || self.factor.is_some() || self.max_delay.is_some()
    }

    /// Replaces those parts of a retry policy that the file has keys for. `every` has the policy of all
    /// controllers.
    fn apply_to(&self, policy: &mut RetryPolicy, every: &RetryPolicy) {
        policy.jitter_percent = self.jitter.unwrap_or(policy.jitter_percent);
        policy.max_attempts = self.max_attempts.unwrap_or(policy.max_attempts);
        // null removes a form that settings below have set.
        let removed = matches!(
            (policy.delay, self.fixed, self.fast_slow),
            (Delay::Fixed(_), Some(None), _) | (Delay::FastSlow { .. }, _, Some(None))
        );
        if let Some(fixed) = self.fixed.flatten() {
            policy.delay = Delay::Fixed(*fixed);
        } else if let Some(FastSlowKeys { fast, slow, max_fast }) = self.fast_slow.flatten() {
            policy.delay = Delay::FastSlow { fast: *fast, slow: *slow, max_fast };
        } else if self.grows() || removed {
            // Absent keys come from the closest settings below with a growing backoff.
            let below = [policy.delay, every.delay, Delay::default()];
            let growing = below.iter().find_map(|delay| match *delay {
                Delay::Exponential { base, factor, max } => Some((base, factor, max)),
                _ => None,
            });
            if let Some((base, factor, max)) = growing {
                policy.delay = Delay::Exponential {
                    base: self.base_delay.map_or(base, |delay| *delay),
                    factor: self.factor.unwrap_or(factor),
                    max: self.max_delay.map_or(max, |delay| *delay),
                };
            }
        }
    }
}

impl From<&RetryPolicy> for RetryKeys {
    fn from(policy: &RetryPolicy) -> Self {
        let mut keys = Self {
            fixed: Some(None),
            fast_slow: Some(None),
            jitter: Some(policy.jitter_percent),
            max_attempts: Some(policy.max_attempts),
            ..Self::default()
        };
        match policy.delay {
            Delay::Exponential { base, factor, max } => {
                keys.base_delay = Some(base.into());
                keys.factor = Some(factor);
                keys.max_delay = Some(max.into());
            }
            Delay::Fixed(delay) => keys.fixed = Some(Some(delay.into())),
            Delay::FastSlow { fast, slow, max_fast } => {
                keys.fast_slow = Some(Some(FastSlowKeys { fast: fast.into(), slow: slow.into(), max_fast }));
            }
        }
        keys
    }
}

// === impl RateKeys ===

impl RateKeys {
    /// Returns the retry rate, with an absent key taken from `below`; `None` if `below` has no rate either.
    /// The keys of a rate have no defaults.
    fn over(&self, below: Option<Rate>) -> Option<Rate> {
        Some(Rate {
            per_second: self.per_second.or(below.map(|rate| rate.per_second))?,
            burst: self.burst.or(below.map(|rate| rate.burst))?,
        })
    }
}
