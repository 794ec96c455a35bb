//! Limits how often the objects of a namespace probe one address, with any number of checks of it.
//!
//! A probe without a token gets a turn: the time at which it may try again. Other probes of the namespace
//! do not wait meanwhile. A turn is a time and not bound to a target, so editing objects gains no probes.
//!
//! # Invariants
//! 1. In any second, at most 1.1 times the rate, plus one probe, may start.
//! 2. Turns are given in the order in which probes became due, at most [`LONGEST`] ahead. A probe that
//!    tries again gets no earlier turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay::util::{Limit, TokenBucket};
use tokio::time::Instant;

/// Longest time from now to the turn of a postponed probe; a longer queue would consist of turns of targets
/// that are gone.
const LONGEST: Duration = Duration::from_mins(1);

/// Limits how often the objects of a namespace probe one address. A probe over the limit gets a turn: the
/// time at which it may try again.
#[derive(Debug)]
pub(super) struct AddressLimits {
    limit: Limit,
    queues: HashMap<Address, Queue>,
}

/// A probed address: namespace of the objects, host as in their checks, and port. Other names of the same
/// machine are other addresses.
pub(super) type Address = (Arc<str>, Arc<str>, u16);

#[derive(Debug)]
struct Queue {
    bucket: TokenBucket,
    /// The time of the next free turn to probe the address.
    end: Instant,
}

/// Returns the limit for a rate per second; its burst is the tokens of a tenth of a second.
pub(super) fn per_second(rate: u32) -> Limit {
    Limit::per_second(f64::from(rate.max(1)), rate / 10)
}

// === impl AddressLimits ===

impl AddressLimits {
    pub(super) fn new(rate: u32) -> Self {
        Self { limit: per_second(rate), queues: HashMap::new() }
    }

    /// Applies another rate of probes per second and address. Postponed probes have to take a new turn.
    pub(super) fn set_rate(&mut self, rate: u32, now: Instant) {
        self.limit = per_second(rate);
        for queue in self.queues.values_mut() {
            queue.bucket.set_limit(self.limit, now);
            queue.end = now;
        }
    }

    /// Takes a token for a probe of `address`. Without a token, fails with the turn of the probe, the time at
    /// which it may try again. `was_postponed`: the probe had a turn, which has come.
    pub(super) fn take(
        &mut self,
        address: &Address,
        was_postponed: bool,
        now: Instant,
    ) -> Result<(), Instant> {
        if !self.queues.contains_key(address) && self.queues.len().is_power_of_two() {
            self.queues.retain(|_, queue| queue.end > now || !queue.bucket.is_full(now));
        }
        let new = || Queue { bucket: TokenBucket::new(self.limit), end: now };
        let queue = self.queues.entry(address.clone()).or_insert_with(new);
        let ready_at = queue.bucket.ready_at(now);
        // Half an interval of slack: a late probe must not cost the next one its turn.
        let slack = if was_postponed { self.limit.interval / 2 } else { Duration::ZERO };
        if (was_postponed || queue.end <= now) && ready_at <= now + slack {
            queue.bucket.spend(now);
            return Ok(());
        }
        let turn = queue.end.max(ready_at).min(now + LONGEST);
        queue.end = turn + self.limit.interval;
        Err(turn)
    }

    /// Returns whether the next probe of an address would have to wait for a turn.
    pub(super) fn has_queue(&self, address: &Address, now: Instant) -> bool {
        self.queues.get(address).is_some_and(|queue| queue.end > now)
    }
}

#[cfg(test)]
mod tests;
