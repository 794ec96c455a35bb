//! Settings of controllers, which come from four places.
//!
//! In ascending precedence: the defaults; the file's `"*"`; the controller's own code; the file's entry of that name. So
//! code takes precedence over settings for all controllers, and an operator over the code. An entry overrides only the
//! keys that are written in it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use super::check::check;
use super::schema::CONTROLLER;
use super::words::{child, closest, one_of, shown};
use super::{Duration, EVERY_CONTROLLER, Problem};
use crate::controller::ControllerSettings;
use crate::queue::{Delay, Rate, RetryPolicy};

/// Keys that apply at the next start; all others apply live.
pub(super) const RESTART: &[&str] = &["enabled"];

/// The longest name of a controller: namespace and name of an object, of which such names are made elsewhere.
const MAX_NAME_BYTES: usize = 317;

/// What the file says about controllers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controllers {
    /// The defaults with `"*"` put over them: the settings of a controller without any from code or an entry of its own.
    pub every: ControllerSettings,
    /// Entries by name, with the keys that are written. Each fits together with `every`.
    pub(super) named: BTreeMap<String, ControllerKeys>,
}

/// The keys of one controller that are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ControllerKeys {
    /// Whether the controller runs at all. A disabled one stays registered and starts neither sources nor workers. Stores
    /// that were declared for it are still watched, and waited for at the start.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    enabled: Option<bool>,
    /// Whether it begins no new reconcile. Running ones end, and its queue keeps all keys until it goes on.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    paused: Option<bool>,
    /// How many objects are reconciled at once.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 1000))]
    workers: Option<u32>,
    /// After this time a reconcile is dropped and counted as failed; 0s is never.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["0s", "24h"]))]
    reconcile_timeout: Option<Duration>,
    /// Objects that wait to be reconciled, and in which order.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueKeys>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[expect(clippy::option_option, reason = "null is a value, and differs from a key that is not written")]
struct QueueKeys {
    /// How long an object waits that failed. There are three forms, of which one holds: growing (baseDelay, factor,
    /// maxDelay), fixed, and fastSlow.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryKeys>,
    /// Percent of the workers that retries may hold while fresh work waits, rounded up. Of two or more workers they leave
    /// one free for fresh work also while none waits, unless this is 100.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(min = 1, max = 100))]
    retry_share: Option<u8>,
    /// A rate over all retries, such as {perSecond: 50, burst: 200}; null is no limit. From 0.001 to 100000 per second.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<RateKeys>")]
    retry_rate: Option<Option<RateKeys>>,
    /// An object that has waited longer goes first, so that none starves.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["1ms", "24h"]))]
    max_wait: Option<Duration>,
    /// Above this many objects the queue takes no new ones from initial lists until it has drained; 0 is no limit.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 4_294_967_295u32))]
    max_depth: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[expect(clippy::option_option, reason = "null is a value, and differs from a key that is not written")]
struct RetryKeys {
    /// Wait after the first failure, at most maxDelay.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["1ms", "24h"]))]
    base_delay: Option<Duration>,
    /// By how much each further wait grows; 1 keeps it.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1, max = 100))]
    factor: Option<f64>,
    /// The longest wait.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration", extend("x-mainstay-range" = ["1ms", "24h"]))]
    max_delay: Option<Duration>,
    /// Another form: the same wait after every failure, such as 5s.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Duration>", extend("x-mainstay-range" = ["1ms", "24h"]))]
    fixed: Option<Option<Duration>>,
    /// Another form: a short wait after each of the first failures and a long one after every further one, such as
    /// {fast: 1s, slow: 30s, maxFast: 5}.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FastSlowKeys>")]
    fast_slow: Option<Option<FastSlowKeys>>,
    /// By up to this many percent a wait is shortened at random, so that objects that failed together do not come back
    /// together.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(min = 0, max = 100))]
    jitter: Option<u8>,
    /// After so many failures in a row an object is parked until it changes; 0 is never.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 0, max = 4_294_967_295u32))]
    max_attempts: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FastSlowKeys {
    /// Wait after an early failure, at most slow.
    #[schemars(extend("x-mainstay-range" = ["0s", "24h"]))]
    fast: Duration,
    /// Wait after a late failure.
    #[schemars(extend("x-mainstay-range" = ["1ms", "24h"]))]
    slow: Duration,
    /// How many failures count as early.
    max_fast: u32,
}

/// Half of it may be written where the other half is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RateKeys {
    /// Retries in a second.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.001, max = 100_000))]
    per_second: Option<f64>,
    /// Retries at once, after a pause.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 100_000))]
    burst: Option<u32>,
}

/// Reads a key that is written, where null is a value like any other, which most types refuse.
fn written<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

// === impl Controllers ===

impl Controllers {
    /// Puts together the entries of a file, and reports everything that is wrong with them. With the names of the
    /// controllers of this program given, any other is an error. `tree` is the section as it is written.
    pub(super) fn new(
        entries: BTreeMap<String, Option<ControllerKeys>>,
        tree: &Json,
        known: Option<&[String]>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let entries = entries.into_iter().map(|(name, keys)| (name, keys.unwrap_or_default()));
        let (mut named, mut every) = (entries.collect::<BTreeMap<_, _>>(), ControllerSettings::default());
        let before = problems.len();
        for (name, keys) in &named {
            check_name(name, known, problems);
            check(&CONTROLLER, &tree[name], &path_of(name), problems);
            keys.check_forms(name, problems);
        }
        if let Some(star) = named.remove(EVERY_CONTROLLER) {
            star.check_rate(EVERY_CONTROLLER, &every, problems);
            star.put_over(&mut every, &ControllerSettings::default());
        }
        for (name, keys) in &named {
            keys.check_rate(name, &every, problems);
        }
        let controllers = Self { every, named };
        // Relations are judged between values that are right by themselves.
        if problems.len() == before {
            controllers.check_relations(problems);
        }
        controllers
    }

    /// Returns the settings of one controller, whose code makes these changes to the settings of all.
    ///
    /// Code and file are valid each by itself and need not be together; [`ControllerSettings::problems`] names what does
    /// not fit.
    pub fn settings(&self, name: &str, code: impl FnOnce(&mut ControllerSettings)) -> ControllerSettings {
        let mut settings = self.every.clone();
        code(&mut settings);
        if let Some(keys) = self.named.get(name) {
            keys.put_over(&mut settings, &self.every);
        }
        settings
    }

    /// As [`ManagerConfiguration::reloaded`](super::ManagerConfiguration::reloaded).
    pub(super) fn reloaded(&self, new: &Self) -> Self {
        let mut merged = new.clone();
        merged.every.enabled = self.every.enabled;
        for (name, keys) in &mut merged.named {
            keys.enabled = self.named.get(name).and_then(|old| old.enabled);
        }
        for (name, old) in self.named.iter().filter(|(_, old)| old.enabled.is_some()) {
            merged.named.entry(name.clone()).or_default().enabled = old.enabled;
        }
        merged
    }

    pub(super) fn tree(&self) -> Json {
        let every = (EVERY_CONTROLLER.to_owned(), tree_of(&self.every));
        let named = self
            .named
            .iter()
            .map(|(name, keys)| (name.clone(), serde_json::to_value(keys).unwrap_or(Json::Null)));
        Json::Object([every].into_iter().chain(named).collect())
    }

    fn check_relations(&self, problems: &mut Vec<Problem>) {
        let before = problems.len();
        check_settings(EVERY_CONTROLLER, &self.every, problems);
        // Mistakes of "*" would be repeated by every controller that takes them over.
        if problems.len() == before {
            for name in self.named.keys() {
                check_settings(name, &self.settings(name, |_| {}), problems);
            }
        }
    }
}

/// Every key of a controller with these settings, as the file spells it.
pub(super) fn tree_of(settings: &ControllerSettings) -> Json {
    serde_json::to_value(ControllerKeys::from(settings)).unwrap_or(Json::Null)
}

pub(super) fn path_of(name: &str) -> String {
    child("controllers", name)
}

fn check_name(name: &str, known: Option<&[String]>, problems: &mut Vec<Problem>) {
    if name.len() > MAX_NAME_BYTES {
        let message = format!("{} as a key; expected at most {MAX_NAME_BYTES} bytes", shown(&name.into()));
        problems.push(Problem::message("controllers", message));
    } else if let Some(known) = known
        && name != EVERY_CONTROLLER
        && !known.iter().any(|known| known == name)
    {
        let near = closest(name, known).map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let all: Vec<&str> = known.iter().map(String::as_str).chain([r#""*""#]).collect();
        let message = format!("unknown controller; expected {}{near}", one_of(&all));
        problems.push(Problem::message(path_of(name), message));
    }
}

fn check_settings(name: &str, settings: &ControllerSettings, problems: &mut Vec<Problem>) {
    let path = path_of(name);
    problems.extend(settings.problems().into_iter().map(|problem| {
        Problem::message(format!("{path}.{}", problem.field), format!("{} {}", problem.value, problem.reason))
    }));
}

// === impl ControllerKeys ===

impl ControllerKeys {
    /// The defaults of every key as JSON text, in the order of the fields.
    pub(super) fn default_text() -> String {
        serde_json::to_string(&Self::from(&ControllerSettings::default())).unwrap_or_default()
    }

    /// Puts the written keys over settings.
    fn put_over(&self, settings: &mut ControllerSettings, every: &ControllerSettings) {
        fn put<T: Copy>(written: Option<T>, setting: &mut T) {
            *setting = written.unwrap_or(*setting);
        }
        put(self.enabled, &mut settings.enabled);
        put(self.paused, &mut settings.paused);
        put(self.workers.map(size), &mut settings.workers);
        put(self.reconcile_timeout.map(|timeout| *timeout), &mut settings.reconcile_timeout);
        let (Some(keys), queue) = (&self.queue, &mut settings.queue) else { return };
        if let Some(retry) = &keys.retry {
            retry.put_over(&mut queue.retry, &every.queue.retry);
        }
        if let Some(rate) = keys.retry_rate {
            queue.retry.rate = rate.and_then(|rate| rate.over(queue.retry.rate.or(every.queue.retry.rate)));
        }
        put(keys.retry_share, &mut queue.retry_share);
        put(keys.max_wait.map(|wait| *wait), &mut queue.max_wait);
        put(keys.max_depth.map(size), &mut queue.max_depth);
    }

    /// Refuses half of a rate whose other half nothing below has. Code might, but the file must be right without it.
    fn check_rate(&self, name: &str, below: &ControllerSettings, problems: &mut Vec<Problem>) {
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

    /// Refuses several forms of a backoff in one place.
    fn check_forms(&self, name: &str, problems: &mut Vec<Problem>) {
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

/// Every key.
impl From<&ControllerSettings> for ControllerKeys {
    fn from(settings: &ControllerSettings) -> Self {
        let queue = &settings.queue;
        Self {
            enabled: Some(settings.enabled),
            paused: Some(settings.paused),
            workers: Some(count(settings.workers)),
            reconcile_timeout: Some(settings.reconcile_timeout.into()),
            queue: Some(QueueKeys {
                retry: Some(RetryKeys::from(&queue.retry)),
                retry_share: Some(queue.retry_share),
                retry_rate: Some(queue.retry.rate.map(|Rate { per_second, burst }| RateKeys {
                    per_second: Some(per_second),
                    burst: Some(burst),
                })),
                max_wait: Some(queue.max_wait.into()),
                max_depth: Some(count(queue.max_depth)),
            }),
        }
    }
}

// === impl RetryKeys ===

impl RetryKeys {
    /// Whether a key of the growing form is written.
    fn grows(&self) -> bool {
        self.base_delay.is_some() || self.factor.is_some() || self.max_delay.is_some()
    }

    fn put_over(&self, policy: &mut RetryPolicy, every: &RetryPolicy) {
        policy.jitter_percent = self.jitter.unwrap_or(policy.jitter_percent);
        policy.max_attempts = self.max_attempts.unwrap_or(policy.max_attempts);
        // null takes back the form of a place below.
        let taken_back = match policy.delay {
            Delay::Fixed(_) => self.fixed == Some(None),
            Delay::FastSlow { .. } => self.fast_slow == Some(None),
            _ => false,
        };
        if let Some(fixed) = self.fixed.flatten() {
            policy.delay = Delay::Fixed(*fixed);
        } else if let Some(FastSlowKeys { fast, slow, max_fast }) = self.fast_slow.flatten() {
            policy.delay = Delay::FastSlow { fast: *fast, slow: *slow, max_fast };
        } else if self.grows() || taken_back {
            // Keys that are not written come from the closest place below whose backoff grows.
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
        let keys = Self {
            fixed: Some(None),
            fast_slow: Some(None),
            jitter: Some(policy.jitter_percent),
            max_attempts: Some(policy.max_attempts),
            ..Self::default()
        };
        match policy.delay {
            Delay::Exponential { base, factor, max } => Self {
                base_delay: Some(base.into()),
                factor: Some(factor),
                max_delay: Some(max.into()),
                ..keys
            },
            Delay::Fixed(delay) => Self { fixed: Some(Some(delay.into())), ..keys },
            Delay::FastSlow { fast, slow, max_fast } => {
                let fast_slow = FastSlowKeys { fast: fast.into(), slow: slow.into(), max_fast };
                Self { fast_slow: Some(Some(fast_slow)), ..keys }
            }
        }
    }
}

// === impl RateKeys ===

impl RateKeys {
    /// Returns the rate with the missing half from below. A rate has no defaults of its own: half of one is a mistake.
    fn over(&self, below: Option<Rate>) -> Option<Rate> {
        Some(Rate {
            per_second: self.per_second.or(below.map(|rate| rate.per_second))?,
            burst: self.burst.or(below.map(|rate| rate.burst))?,
        })
    }
}

/// Converts a number that the file bounds to 32 bits.
fn size(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
