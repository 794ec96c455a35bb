//! How often the objects of a namespace may probe one address, however many checks they have of it.
//!
//! A probe without a token gets a turn, the moment at which it may come back; other probes of the namespace
//! are not held up meanwhile. A turn belongs to a moment, not to a probe, so edited objects gain no probes.
//!
//! # Invariants
//! 1. No second sees more than 1.1 times the rate, and one.
//! 2. Slots come in the order in which the probes became due, in a queue of up to [`LONGEST`]. A probe that
//!    asks again gets no earlier turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay::util::{Limit, TokenBucket};
use tokio::time::Instant;

/// The longest queue; a longer one consists of turns whose targets are gone.
const LONGEST: Duration = Duration::from_mins(1);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct AddressLimits {
    limit: Limit,
    queues: HashMap<Address, Queue>,
}

/// Namespace, host as its objects name it, and port. Other names of the same machine are other addresses.
pub(super) type Address = (Arc<str>, Arc<str>, u16);

#[derive(Debug)]
struct Queue {
    bucket: TokenBucket,
    /// The next free turn.
    end: Instant,
}

/// Returns the limit of a rate: a tenth of a second's tokens can be saved up.
pub(super) fn per_second(rate: u32) -> Limit {
    Limit::per_second(f64::from(rate.max(1)), rate / 10)
}

// === impl AddressLimits ===

impl AddressLimits {
    pub(super) fn new(rate: u32) -> Self {
        Self { limit: per_second(rate), queues: HashMap::new() }
    }

    /// Puts another rate in force. Postponed probes have to ask for their turns anew.
    pub(super) fn set_rate(&mut self, rate: u32, now: Instant) {
        self.limit = per_second(rate);
        for queue in self.queues.values_mut() {
            queue.bucket.set_limit(self.limit, now);
            queue.end = now;
        }
    }

    /// Takes a token for a probe, or returns the turn of the probe. `was_postponed`: this turn has come.
    pub(super) fn take(
        &mut self,
        address: &Address,
        was_postponed: bool,
        now: Instant,
    ) -> Result<(), Instant> {
        if !self.queues.contains_key(address) {
            if self.queues.len().is_power_of_two() {
                self.queues.retain(|_, queue| queue.end > now || !queue.bucket.is_full(now));
            }
            let queue = Queue { bucket: TokenBucket::new(self.limit), end: now };
            self.queues.insert(address.clone(), queue);
        }
        let Some(queue) = self.queues.get_mut(address) else { return Ok(()) };
        let ready_at = queue.bucket.ready_at(now);
        // A late probe before this one does not cost this one its turn.
        let slack = if was_postponed { self.limit.interval / 2 } else { Duration::ZERO };
        if (was_postponed || queue.end <= now) && ready_at <= now + slack {
            queue.bucket.spend(now);
            return Ok(());
        }
        let turn = queue.end.max(ready_at).min(now + LONGEST);
        queue.end = turn + self.limit.interval;
        Err(turn)
    }

    /// Returns whether probes of an address have to wait for their turns.
    pub(super) fn has_queue(&self, address: &Address, now: Instant) -> bool {
        self.queues.get(address).is_some_and(|queue| queue.end > now)
    }
}

#[cfg(test)]
mod tests;
