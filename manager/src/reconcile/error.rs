//! A failed run: the cause, and when to try again.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::cache::ReadError;
use crate::client::{WriteError, is_conflict, refusal};
use crate::key::Chain;

/// Any error a reconcile may end with.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// Why a run failed and when its key is tried again.
///
/// Deliberately not an `Error` itself: so `?` converts every error type, `&str` and `String` into it. It asks the error
/// when to try again, and whatever wraps it keeps the answer:
///
/// | an error that stands on | is tried again |
/// |---|---|
/// | an object that does not decode, or a body that cannot be sent | when something changes |
/// | a refusal of the API server that says how long to wait | on the backoff, and not before that time |
/// | anything else | on the backoff |
///
/// ```
/// use std::time::Duration;
/// use mainstay::reconcile::{ReconcileError, Retry};
///
/// fn parse(text: &str) -> Result<u16, ReconcileError> {
///     Ok(text.parse::<u16>()?) // retried on the backoff
/// }
/// assert_eq!(parse("x").unwrap_err().retry(), Retry::Backoff);
///
/// let full = ReconcileError::retry_after("quota exhausted", Duration::from_secs(60));
/// assert_eq!(full.to_string(), "quota exhausted");
/// ```
#[derive(Debug)]
pub struct ReconcileError {
    source: BoxError,
    retry: Retry,
}

/// When a failed key is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After the delay of the queue's retry policy.
    Backoff,
    /// After the delay of the queue's retry policy, and not before this time: a server asked for it. See
    /// [`RetryPolicy::asked`](crate::queue::RetryPolicy::asked) for how far it is obeyed.
    NotBefore(Duration),
    /// After exactly this time: the reconciler said when.
    After(Duration),
    /// Not until something changes: trying again would fail again.
    Never,
}

// === impl ReconcileError ===

impl ReconcileError {
    /// An error that another try cannot mend: the key waits until something changes.
    pub fn terminal(error: impl Into<BoxError>) -> Self {
        Self { source: error.into(), retry: Retry::Never }
    }

    /// An error to be tried again after exactly `delay`, whatever the backoff says.
    pub fn retry_after(error: impl Into<BoxError>, delay: Duration) -> Self {
        Self { source: error.into(), retry: Retry::After(delay) }
    }

    /// Returns when the key is tried again.
    pub fn retry(&self) -> Retry {
        self.retry
    }

    /// Returns the cause.
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }

    /// Returns whether somewhere in the chain of causes the server refused a write because the object had changed.
    /// Such a run is tried again like any other, but it is no news to anyone.
    pub fn is_conflict(&self) -> bool {
        is_conflict(&*self.source)
    }
}

impl<E: Into<BoxError>> From<E> for ReconcileError {
    fn from(error: E) -> Self {
        let source = error.into();
        Self { retry: Retry::after(&*source), source }
    }
}

// === impl Retry ===

impl Retry {
    /// Returns when it makes sense to try again what failed like this.
    fn after(error: &(dyn Error + 'static)) -> Self {
        let mut wait = None;
        for link in std::iter::successors(Some(error), |link: &&'_ (dyn Error + 'static)| (*link).source()) {
            let undecodable =
                matches!(link.downcast_ref(), Some(ReadError::Decode { .. } | ReadError::TooLarge { .. }));
            let write = link.downcast_ref::<WriteError>();
            if undecodable || matches!(write, Some(WriteError::Malformed { .. })) {
                return Self::Never;
            }
            wait = wait.or_else(|| write?.retry_after()).filter(|wait| !wait.is_zero());
        }
        let details = refusal(error).and_then(|status| status.details.as_ref());
        let seconds = details.map_or(0, |details| u64::from(details.retry_after_seconds));
        let wait = wait.or_else(|| (seconds > 0).then(|| Duration::from_secs(seconds)));
        wait.map_or(Self::Backoff, Self::NotBefore)
    }
}

/// Displays the whole chain of causes.
impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Chain(&*self.source).fmt(f)
    }
}

#[cfg(test)]
mod tests;
