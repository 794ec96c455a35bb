//! A key at work: the guard a worker holds.
//!
//! Only [`WorkQueue::get`](super::WorkQueue::get) makes one, and every way to end it consumes it, so ending a run that
//! never began, or twice, cannot be written.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Retried;
use super::machine::{Job, Next, Outcome};
use super::shared::Shared;
use crate::key::{Cause, Key};

/// A key that was handed out. No other worker gets this key until the run has ended.
///
/// Dropping it without an outcome counts as a failure, unless the queue is shutting down or this replica does not
/// lead (any more): then the key goes back unchanged.
#[must_use = "dropping it counts as a failed run"]
pub struct Running<Q: Key> {
    /// `None` once an outcome has been told.
    queue: Option<Arc<Shared<Q>>>,
    job: Job<Q>,
}

// === impl Running ===

impl<Q: Key> Running<Q> {
    #[inline]
    pub(super) fn new(queue: Arc<Shared<Q>>, job: Job<Q>) -> Self {
        Self { queue: Some(queue), job }
    }

    /// Returns the key.
    pub fn key(&self) -> &Q {
        &self.job.key
    }

    /// Returns which attempt this is: 1, and one more for each failure in a row right before it.
    pub fn attempt(&self) -> u32 {
        self.job.attempt
    }

    /// Returns why the key runs.
    pub fn cause(&self) -> &Cause {
        &self.job.cause
    }

    /// Returns how long the key was ready before a worker took it.
    pub fn queued_for(&self) -> Duration {
        self.job.queued_for.duration()
    }

    /// Ends the run as a success: the key is gone, unless it was added meanwhile.
    #[inline]
    pub fn done(self) {
        self.end(Outcome::Done);
    }

    /// Ends the run as a success and has the key run again after `wait`, or sooner if it is added.
    pub fn requeue_after(self, wait: Duration) {
        self.end(Outcome::RequeueAfter(wait));
    }

    /// Ends the run as a failure; the retry policy says when the next attempt is.
    pub fn retry(self, error: &str) -> Retried {
        self.fail(error, Next::Backoff)
    }

    /// Ends the run as a failure; the next attempt is when the retry policy says, and not before `wait`, for which a
    /// server asked: see [`RetryPolicy::asked`](super::RetryPolicy::asked).
    pub fn retry_not_before(self, error: &str, wait: Duration) -> Retried {
        self.fail(error, Next::NotBefore(wait))
    }

    /// Ends the run as a failure; the next attempt is after exactly `wait`, if the policy allows one.
    pub fn retry_after(self, error: &str, wait: Duration) -> Retried {
        self.fail(error, Next::After(wait))
    }

    /// Ends the run as a failure that another attempt would not mend: the key is parked until something changes.
    pub fn terminal(self, error: &str) -> Retried {
        self.fail(error, Next::Never)
    }

    /// Undoes the hand-out: the key is ready again in the lane it came from, behind those that are there, and how long
    /// it has been ready counts anew. Its failures and its cause stay.
    pub fn put_back(self) {
        self.end(Outcome::PutBack);
    }

    /// Undoes the hand-out and parks the key: it does not run until something changes, and shows `why`. Failures
    /// so far stay counted.
    pub fn park(self, why: &'static str) {
        self.end(Outcome::Park(why));
    }

    #[inline]
    fn end(mut self, outcome: Outcome<'_>) {
        self.tell(outcome);
    }

    fn fail(mut self, error: &str, next: Next) -> Retried {
        // Consumed, so nothing has been told before.
        self.tell(Outcome::Failed(error, next)).unwrap_or(Retried::Parked)
    }

    /// Tells the queue what has come of the run, once: later outcomes change nothing and get no answer.
    #[inline]
    fn tell(&mut self, outcome: Outcome<'_>) -> Option<Retried> {
        let queue = self.queue.take()?;
        Some(queue.with(|inner| inner.finish(self.job.slot, &self.job.cause, outcome)))
    }
}

impl<Q: Key> Drop for Running<Q> {
    fn drop(&mut self) {
        self.tell(Outcome::Dropped);
    }
}

impl<Q: Key> fmt::Debug for Running<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("key", &format_args!("{}", self.job.key))
            .field("attempt", &self.job.attempt)
            .finish_non_exhaustive()
    }
}
