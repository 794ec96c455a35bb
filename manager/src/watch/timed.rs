//! The source that asks again every so often: for what no watch tells of.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Sink, Source, SourceError};
use crate::key::{Cause, Key, Trigger};
use crate::queue::{Add, Added, Strength};

/// Largest part of the period that is left out at random, so that replicas and controllers drift apart.
const JITTER: f64 = 0.1;

/// Enqueues what a function answers, again and again. Made by [`interval`].
pub struct Interval<F> {
    name: &'static str,
    period: Duration,
    keys: F,
    strength: Strength,
    random: fastrand::Rng,
}

/// Asks `keys` once at the start, which belongs to the initial sync, and then once per `period`, up to a tenth less.
/// A panic in it costs that one look, also the first, and is counted and logged under `name`.
///
/// The keys are strong, so they end backoffs, unless [`Interval::weak`]; and they go behind live events. While the
/// queue is full the source waits, and asks no more often than it is listened to; what the first look is still to add
/// then comes after the sync. A zero period asks once only, and so does one beyond what the clock can hold.
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
    /// Leaves failing keys to their backoff: for a mere look at everything, as a resync is.
    #[must_use]
    pub fn weak(mut self) -> Self {
        self.strength = Strength::Weak;
        self
    }

    /// Takes its randomness from here.
    #[must_use]
    pub fn with_random(mut self, random: fastrand::Rng) -> Self {
        self.random = random;
        self
    }

    /// Subtracted, so that no period is too long for it: a factor of nearly one may round up beyond the longest.
    fn next_wait(&mut self) -> Duration {
        self.period.saturating_sub(self.period.mul_f64(JITTER * self.random.f64()))
    }
}

impl<F> Interval<F> {
    async fn ask<Q, I>(&mut self, sink: &Sink<Q>)
    where
        Q: Key,
        I: IntoIterator<Item = Q>,
        F: FnMut() -> I,
    {
        // Collected, so that what the function answers need not be `Send`; then offered one by one. After a panic the
        // function is left with its own state alone.
        let looked = catch_unwind(AssertUnwindSafe(|| (self.keys)().into_iter().collect::<Vec<Q>>()));
        let keys = looked.unwrap_or_else(|panic| {
            sink.count_panic(&*panic);
            Vec::new()
        });
        let add =
            Add { strength: self.strength, ..Add::strong(Cause::bare(Trigger::Generic)) }.in_background();
        for key in keys {
            while sink.offer(key.clone(), add.clone()) == Added::Refused {
                // What is refused is owed, as a store's sweep is. Nothing would ever drain the queue of a controller
                // that waits for this source to have synced.
                sink.synced();
                sink.queue().wait_for_room().await;
            }
        }
    }

    async fn run_on<Q, I>(mut self, sink: Sink<Q>)
    where
        Q: Key,
        I: IntoIterator<Item = Q>,
        F: FnMut() -> I,
    {
        let mut next = Instant::now();
        self.ask(&sink).await;
        sink.synced();
        while !self.period.is_zero() {
            // From the planned moment, not from the end of the last round: a full queue does not stretch the period.
            let Some(planned) = next.checked_add(self.next_wait()) else { return };
            next = planned.max(Instant::now());
            sleep_until(next).await;
            self.ask(&sink).await;
        }
    }
}

impl<Q, I, F> Source<Q> for Interval<F>
where
    Q: Key,
    I: IntoIterator<Item = Q>,
    F: FnMut() -> I + Send + 'static,
{
    fn run(
        self: Box<Self>,
        sink: Sink<Q>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            stop.run_until_cancelled(self.run_on(sink)).await;
            Ok(())
        })
    }

    fn name(&self) -> String {
        format!("interval {}", self.name)
    }
}

impl<F> fmt::Debug for Interval<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("name", &self.name)
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}
