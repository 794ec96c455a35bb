//! The guard of a running key, which a worker holds.
//!
//! Only [`WorkQueue::get`](super::WorkQueue::get) and [`try_get`](super::WorkQueue::try_get) create one, and
//! each of its outcomes consumes it, so code cannot end a run that never began, or end a run twice.

use std::sync::Arc;
use std::time::Duration;

use super::machine::{Job, Outcome};
use super::shared::Shared;
use super::{Retried, Retry};
use crate::key::{Cause, Key};

/// The guard of a key that was handed out to a worker. No other worker gets this key until the run has ended.
///
/// Dropping the guard without an outcome counts as a failure, unless the queue is shutting down or this
/// replica does not lead (any more): then the key goes back unchanged.
#[must_use = "dropping it counts as a failed run"]
#[derive(derive_more::Debug)]
#[debug("Running {{ key: {:?}, attempt: {:?}, .. }}", format_args!("{}", self.job.key), self.job.attempt)]
pub struct Running<Q: Key> {
    /// The queue that handed out the key; `None` once the run has ended.
    queue: Option<Arc<Shared<Q>>>,
    job: Job<Q>,
}

// === impl Running ===

impl<Q: Key> Running<Q> {
    #[inline]
    pub(super) fn new(queue: Arc<Shared<Q>>, job: Job<Q>) -> Self {
        Self { queue: Some(queue), job }
    }

    /// Returns the key that the worker runs.
    pub fn key(&self) -> &Q {
        &self.job.key
    }

    /// Returns the number of this attempt to run the key: 1, and one more for each failure in a row right
    /// before it.
    pub fn attempt(&self) -> u32 {
        self.job.attempt
    }

    /// Returns why the key runs: the trigger of its add, and the object behind it.
    pub fn cause(&self) -> &Cause {
        &self.job.cause
    }

    /// Returns how long the key was ready before a worker took it.
    pub fn queued_for(&self) -> Duration {
        self.job.queued_for.duration()
    }

    /// Ends the run as a success: the key leaves the queue, unless it was added during the run.
    #[inline]
    pub fn done(mut self) {
        self.end(Outcome::Done);
    }

    /// Ends the run as a success; the key runs again after `wait`, or sooner if it is added.
    pub fn requeue_after(mut self, wait: Duration) {
        self.end(Outcome::RequeueAfter(wait));
    }

    /// Ends the run of the key as a failure; the next attempt is after the delay of the queue's retry policy.
    pub fn retry(self, error: &str) -> Retried {
        self.fail(error, Retry::Backoff)
    }

    /// Ends the run as a failure. The next attempt is at the time that `retry` gives, if the policy allows
    /// one; with [`Retry::Never`] the key is parked until an add that reports a change.
    pub fn fail(mut self, error: &str, retry: Retry) -> Retried {
        // The guard is consumed, so this is its first outcome.
        self.end(Outcome::Failed(error, retry)).unwrap_or(Retried::Parked)
    }

    /// Undoes the hand-out: the key is ready again at the end of the lane it came from, as if it had become
    /// ready now. Its failures and its cause stay.
    pub fn put_back(mut self) {
        self.end(Outcome::PutBack);
    }

    /// Undoes the hand-out and parks the key: it does not run until an add that reports a change, and its
    /// snapshot shows this `reason`. Its failures stay counted.
    pub fn park(mut self, reason: &'static str) {
        self.end(Outcome::Park(reason));
    }

    /// Ends the run of the key with this outcome, and returns when its next attempt is. Later calls have no
    /// effect and return `None`.
    #[inline]
    fn end(&mut self, outcome: Outcome<'_>) -> Option<Retried> {
        let queue = self.queue.take()?;
        Some(queue.with(|inner| inner.finish(self.job.slot, &self.job.cause, outcome)))
    }
}

impl<Q: Key> Drop for Running<Q> {
    fn drop(&mut self) {
        self.end(Outcome::Dropped);
    }
}
