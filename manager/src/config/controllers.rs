//! Settings of controllers, which come from four places.
//!
//! From the weakest word to the last one: the defaults; the file's `"*"`; what the controller's own code says; the
//! file's entry of that name. So code knows better than what was said to all, and an operator better than the code.
//! An entry overrides only the keys that are written in it.

use std::collections::BTreeMap;

use super::raw::{RawController, RawLimit, RawRate, RawRetry};
use super::resolve::size;
use crate::controller::ControllerSettings;
use crate::queue::{Delay, Rate, RetryPolicy};

/// What the file says about controllers.
#[derive(Clone, Debug, PartialEq)]
pub struct Controllers {
    /// The defaults with `"*"` put over them: what a controller gets of which neither code nor file says more.
    pub every: ControllerSettings,
    /// What is written of controllers by name, and no more. Each fits together with `every`.
    pub(super) named: BTreeMap<String, RawController>,
}

// === impl Controllers ===

impl Controllers {
    /// Returns the settings of one controller, whose code makes these changes to what is said to all.
    ///
    /// Code and file are valid each by itself and need not be together, so ask
    /// [`ControllerSettings::problems`] of what this returns.
    pub fn settings(&self, name: &str, code: impl FnOnce(&mut ControllerSettings)) -> ControllerSettings {
        let mut settings = self.every.clone();
        code(&mut settings);
        if let Some(written) = self.named.get(name) {
            written.put_over(&mut settings, &self.every);
        }
        settings
    }
}

// === impl RawController ===

impl RawController {
    /// Puts what is written over settings. What the file has no words for, such as a policy of several delays, gives
    /// way to the one of `every` as soon as a part of it is written.
    pub(super) fn put_over(&self, settings: &mut ControllerSettings, every: &ControllerSettings) {
        fn put<T: Copy>(written: Option<T>, setting: &mut T) {
            *setting = written.unwrap_or(*setting);
        }
        put(self.workers.map(|workers| size(workers.into())), &mut settings.workers);
        put(self.reconcile_timeout, &mut settings.reconcile_timeout);
        let (written, queue) = (&self.queue, &mut settings.queue);
        written.retry.put_over(&mut queue.retry, &every.queue.retry);
        match &written.retry_rate {
            Some(RawRate::Off) => queue.retry.rates.clear(),
            Some(RawRate::Limit(limit)) => {
                let rate = limit.over(&queue.retry.rates, &every.queue.retry.rates);
                queue.retry.rates = rate.into_iter().collect();
            }
            None => {}
        }
        put(written.retry_share, &mut queue.retry_share);
        put(written.max_wait, &mut queue.max_wait);
        put(written.max_depth.map(|depth| size(depth.into())), &mut queue.max_depth);
    }
}

impl RawRetry {
    fn put_over(&self, policy: &mut RetryPolicy, every: &RetryPolicy) {
        policy.jitter_percent = self.jitter.unwrap_or(policy.jitter_percent);
        policy.max_attempts = self.max_attempts.unwrap_or(policy.max_attempts);
        if self.base_delay.is_none() && self.factor.is_none() && self.max_delay.is_none() {
            return;
        }
        let written = |below: &Delay| match *below {
            Delay::Exponential { base, factor, max } => Some(Delay::Exponential {
                base: self.base_delay.unwrap_or(base),
                factor: self.factor.unwrap_or(factor),
                max: self.max_delay.unwrap_or(max),
            }),
            _ => None,
        };
        let only = |policy: &RetryPolicy| match &*policy.delays {
            [delay] => written(delay),
            _ => None,
        };
        // The last is for an `every` that was not made by a file.
        let delay = only(policy).or_else(|| only(every)).or_else(|| written(&Delay::default()));
        policy.delays = delay.into_iter().collect();
    }
}

impl RawLimit {
    /// Returns the rate with the missing half from below. A rate has no defaults of its own: half of one is a mistake,
    /// which reading the file has refused.
    pub(super) fn over<'r>(&self, below: &'r [Rate], every: &'r [Rate]) -> Option<Rate> {
        let only = |rates: &'r [Rate]| if let [rate] = rates { Some(rate) } else { None };
        let half = only(below).or_else(|| only(every));
        Some(Rate {
            per_second: self.per_second.or(half.map(|rate| rate.per_second))?,
            burst: self.burst.or(half.map(|rate| rate.burst))?,
        })
    }
}
