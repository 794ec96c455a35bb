//! A source that calls a function periodically, for state that no watch reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Sink, Source, SourceFuture};
use crate::key::{Cause, Key, Trigger};
use crate::queue::{Add, Added, Strength};

/// Largest part of an interval's period that is subtracted at random, so that replicas and controllers drift
/// apart.
const JITTER: f64 = 0.1;

/// A source that enqueues the keys that a function returns, periodically. Made by [`interval`].
#[derive(derive_more::Debug)]
#[debug("Interval {{ name: {:?}, period: {:?}, .. }}", self.name, self.period)]
pub struct Interval<F> {
    name: &'static str,
    period: Duration,
    keys: F,
    strength: Strength,
    pub(super) random: fastrand::Rng,
}

/// Makes a source that calls `keys` once at the start, which belongs to the initial sync, and then once per
/// `period`, up to a tenth earlier. A panic in it loses this one round, and is counted and logged under
/// `name`.
///
/// The adds are strong, so they end backoffs, unless [`Interval::weak`] is set; and their lane is behind
/// live events. While the queue is full the source waits and does not call the function; the rest of the
/// first round is then enqueued after the sync. With a period of zero, or one beyond the range of the clock,
/// the function is called once.
pub fn interval<Q, I, F>(name: &'static str, period: Duration, keys: F) -> Interval<F>
where
    Q: Key,
    I: IntoIterator<Item = Q>,
    F: FnMut() -> I + Send + 'static,
{
    Interval { name, period, keys, strength: Strength::Strong, random: fastrand::Rng::new() }
}

// === impl Interval ===

impl<F> Interval<F> {
    /// Makes the adds of this source weak, so that failing keys stay in their backoff: for a periodic round
    /// over all keys, such as a resync.
    #[must_use]
    pub fn weak(mut self) -> Self {
        self.strength = Strength::Weak;
        self
    }

    /// Returns the random time to the next call of the function. Subtracts, because a product with a factor
    /// near one may round up and overflow.
    fn next_wait(&mut self) -> Duration {
        self.period.saturating_sub(self.period.mul_f64(JITTER * self.random.f64()))
    }

    async fn run_on<Q, I>(mut self, sink: Sink<Q>)
    where
        Q: Key,
        I: IntoIterator<Item = Q>,
        F: FnMut() -> I,
    {
        let add =
            Add { strength: self.strength, ..Add::strong(Cause::bare(Trigger::Generic)) }.in_background();
        let mut next = Instant::now();
        loop {
            // Collected, because the iterator need not be `Send`. A panic can leave only the function's own
            // state broken.
            let round = catch_unwind(AssertUnwindSafe(|| (self.keys)().into_iter().collect::<Vec<Q>>()));
            let keys = round.unwrap_or_else(|panic| {
                sink.count_panic(&*panic);
                Vec::new()
            });
            for key in keys {
                while sink.offer(key.clone(), add.clone()) == Added::Refused {
                    // Offered again later. Synced first, because the controller drains its queue only after
                    // the sync.
                    sink.synced();
                    sink.queue().wait_for_room().await;
                }
            }
            sink.synced();
            if self.period.is_zero() {
                return;
            }
            // From the planned time and not from the end of the last round, so that a full queue does not
            // stretch the period.
            let Some(planned) = next.checked_add(self.next_wait()) else { return };
            next = planned.max(Instant::now());
            sleep_until(next).await;
        }
    }
}

impl<Q, I, F> Source<Q> for Interval<F>
where
    Q: Key,
    I: IntoIterator<Item = Q>,
    F: FnMut() -> I + Send + 'static,
{
    fn run(self: Box<Self>, sink: Sink<Q>, stop: CancellationToken) -> SourceFuture {
        Box::pin(async move {
            stop.run_until_cancelled(self.run_on(sink)).await;
            Ok(())
        })
    }

    fn name(&self) -> String {
        format!("interval {}", self.name)
    }
}
