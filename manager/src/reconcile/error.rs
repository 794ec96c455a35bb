//! The error of a failed run: its cause, and the time of the retry.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::cache::ReadError;
use crate::client::{WriteError, is_conflict, refusal};
use crate::key::Chain;
use crate::queue::Retry;

/// Any error that a reconcile may return.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The error of a failed reconcile, and when its key is retried.
///
/// It does not implement `Error` on purpose, so that `?` converts every error type, `&str` and `String` into
/// it. The chain of causes of the error decides about the retry:
///
/// | a cause in the chain | retry |
/// |---|---|
/// | an object that does not decode, or a body that cannot be sent | after a change of the object |
/// | a refusal of the API server with a time to wait | with backoff, and not before that time |
/// | anything else | with backoff |
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

// === impl ReconcileError ===

impl ReconcileError {
    /// Makes a terminal error of a reconcile: a retry cannot succeed, so the key waits for a change.
    pub fn terminal(error: impl Into<BoxError>) -> Self {
        Self { source: error.into(), retry: Retry::Never }
    }

    /// Makes an error of a reconcile with a retry after exactly `delay`, without backoff.
    pub fn retry_after(error: impl Into<BoxError>, delay: Duration) -> Self {
        Self { source: error.into(), retry: Retry::After(delay) }
    }

    /// Returns when the key of the failed reconcile is retried.
    pub fn retry(&self) -> Retry {
        self.retry
    }

    /// Returns the error that the reconcile failed with.
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }

    /// Returns whether a cause in the chain is a conflict: the server refused a write because the object had
    /// changed. A reconcile with a conflict is retried like any other, but is neither logged nor counted as
    /// an error.
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
    /// Returns when a reconcile with this error is retried, as the chain of its causes determines.
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

/// Displays the error with the chain of its causes.
impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Chain(&*self.source).fmt(f)
    }
}

#[cfg(test)]
mod tests;
