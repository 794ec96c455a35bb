//! Delays after consecutive failures of one reflector.
//!
//! After error responses the delay grows to 20 s or more, because each response costs the server work.
//! Requests without any response cost it nothing and are retried every few seconds, so that the watch resumes
//! soon after an outage.

use std::time::Duration;

/// The first delay after a failed request of a reflector, as in client-go. A restarting API server is often
/// back by then.
const BASE: Duration = Duration::from_millis(800);
/// Upper bound of the delay of a reflector after an error response, exclusive. Without jitter the longest is
/// 20 s.
const MAX: Duration = Duration::from_secs(30);
/// Upper bound of the delay of a reflector after a request without a response, exclusive. Readiness promises
/// that a watch that was cut is up again within five seconds; a new watch takes one of them to prove that it
/// works.
const MAX_NO_RESPONSE: Duration = Duration::from_secs(3);

/// The delays of a reflector after failures: they double, with jitter, from 0.8 s to below 30 s, or below 3 s
/// while the server does not respond.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Number of error responses since the last progress of the watch.
    errors: u32,
    /// Number of requests without a response since the last progress of the watch. Counted apart, so that the
    /// first error response of a server that comes back is followed by a short delay.
    no_responses: u32,
}

// === impl Backoff ===

impl Backoff {
    /// Counts one more error response and returns the delay after it; `random` is in `0.0..1.0`.
    pub(super) fn after_error(&mut self, random: f64) -> Duration {
        next(&mut self.errors, MAX, random)
    }

    /// Counts one more request without a response and returns the delay after it; `random` is in `0.0..1.0`.
    pub(super) fn after_no_response(&mut self, random: f64) -> Duration {
        next(&mut self.no_responses, MAX_NO_RESPONSE, random)
    }

    /// Forgets all failures, so that delays begin short again. Called when the watch has advanced, never
    /// because a connection was opened.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

fn next(failures: &mut u32, max: Duration, random: f64) -> Duration {
    let factor = 1_u32.checked_shl(*failures).unwrap_or(u32::MAX);
    *failures = failures.saturating_add(1);
    BASE.saturating_mul(factor).min(max * 2 / 3).mul_f64(1.0 + random / 2.0)
}

#[cfg(test)]
mod tests;
