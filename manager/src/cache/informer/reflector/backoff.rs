//! How long a reflector waits after another failure in a row.
//!
//! Whoever answers is asked less and less often, because each answer costs it something. Where nobody answers there is
//! nobody to spare, and a watch that is to work again within seconds of the server's return must not sleep through it.

use std::time::Duration;

/// The first wait: client-go's, long enough for a restarting API server to be back.
const BASE: Duration = Duration::from_millis(800);
/// No wait after an answer is this long; the longest are 20 s and half as much again.
const MAX: Duration = Duration::from_secs(30);
/// No wait after a request without any answer is this long. With the second in which a new watch shows that it works, one
/// that was cut is up again within the five that readiness promises.
const MAX_UNANSWERED: Duration = Duration::from_secs(3);

/// Doubling waits with jitter, from 0.8 s and below 30 s, or 3 s where nobody answers.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Bad answers since the last progress.
    answers: u32,
    /// Requests without an answer since the last progress. Counted apart: what a server says when it comes back is news.
    silences: u32,
}

// === impl Backoff ===

impl Backoff {
    /// Returns the wait after another answer that was of no use; `random` is in `0.0..1.0`.
    pub(super) fn after_answer(&mut self, random: f64) -> Duration {
        next(&mut self.answers, MAX, random)
    }

    /// Returns the wait after another request that nobody answered; `random` is in `0.0..1.0`.
    pub(super) fn after_silence(&mut self, random: f64) -> Duration {
        next(&mut self.silences, MAX_UNANSWERED, random)
    }

    /// Forgets the failures. Called when the watch has moved, never because a connection was made.
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
