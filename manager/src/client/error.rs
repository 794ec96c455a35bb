//! The error of a write, and predicates on it.
//!
//! Callers branch on predicates, never on text. The free functions search the whole source chain of any error
//! for a [`WriteError`] or a `kube::Error`, because a reconciler's `?` may have wrapped it.

use std::error::Error;
use std::io;
use std::time::Duration;

use kube::core::Status;

use super::connect::Fenced;

/// The reason why a write, or a read with [`live`](super::live), failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The object is invalid, so no request was sent. A retry does not help.
    #[error("{what} was not sent: {why}")]
    Malformed {
        /// The write that failed, such as `apply of Deployment.apps shop/web`.
        what: String,
        /// The reason why the object is invalid, such as a field and its expected form.
        why: String,
    },
    /// The caller's `edit` function failed, so no request was sent.
    #[error("{what} was not sent: the function that edits it failed")]
    Abandoned {
        /// The write that failed, such as `patch of Deployment.apps shop/web`.
        what: String,
        /// The error that the `edit` function returned.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The object that was read does not fit the Rust type, so it was not edited and no request was sent. A
    /// retry helps once the stored object is corrected.
    #[error(
        "{what} was not sent: the object that was read does not fit the type; \
         compare the type with the CRD's schema"
    )]
    Unreadable {
        /// The write that failed, such as `apply of Deployment.apps shop/web`.
        what: String,
        /// The decoding error, with its position in the object.
        #[source]
        source: serde_json::Error,
    },
    /// The request was stopped: this replica's term of leadership ended before the response came. Only the
    /// next leader may retry.
    #[error("{what} was stopped: this replica no longer holds the Lease")]
    Fenced {
        /// The write that failed, such as `apply of Deployment.apps shop/web`.
        what: String,
    },
    /// The API server refused the request with an HTTP error status.
    #[error("{what} was refused: {} {}", .status.code, refusal_text(.status))]
    Refused {
        /// The write that failed, such as `apply of Deployment.apps shop/web`.
        what: String,
        /// The `Status` in the response; its code is always the HTTP status.
        status: Box<Status>,
        /// The wait before a retry that the server demands, from `Retry-After` or the details of the
        /// `Status`; `None` if it demands none.
        retry_after: Option<Duration>,
    },
    /// No response came: the write may or may not have happened. Applying again is safe.
    #[error("{what} got no answer from the API server, so it may or may not have happened")]
    Unanswered {
        /// The write that failed, such as `apply of Deployment.apps shop/web`.
        what: String,
        /// The error of the connection, on which no response came.
        #[source]
        source: Box<kube::Error>,
    },
    /// The request succeeded, but the object in the response does not fit the Rust type.
    #[error("{what} happened, but the answer does not fit the type; compare the type with the CRD's schema")]
    Undecodable {
        /// The write that failed, such as `apply of Deployment.apps shop/web`.
        what: String,
        /// The decoding error, with its position in the response.
        #[source]
        source: serde_json::Error,
    },
}

// === impl WriteError ===

impl WriteError {
    /// Returns whether the write conflicts with another one (409): the uid or resourceVersion did not match,
    /// or another field manager owns a field.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Returns whether a create failed because an object of this name exists; the cache may not show it yet.
    /// This is a conflict too.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.reason == "AlreadyExists")
    }

    /// Returns whether the object, its kind or its namespace does not exist (404).
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns whether validation refused the object (422): a retry helps only after the object has changed.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// Returns whether RBAC, admission or a terminating namespace refused the write (403).
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns whether the fence stopped the write: this replica's term of leadership has ended.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. })
    }

    /// Returns the wait before a retry that the API server demands; `None` if it demands none.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Refused { retry_after, .. } = self { *retry_after } else { None }
    }

    /// Returns the HTTP status with which the API server refused the request; `None` if the failure was no
    /// refusal.
    pub fn code(&self) -> Option<u16> {
        if let Self::Refused { status, .. } = self { Some(status.code) } else { None }
    }
}

/// Returns the `Status` with which the API server refused a request, if there is one in the error's source
/// chain.
pub fn refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    links(error).find_map(|link| {
        match (link.downcast_ref::<WriteError>(), link.downcast_ref::<kube::Error>()) {
            (Some(WriteError::Refused { status, .. }), _) | (_, Some(kube::Error::Api(status))) => {
                Some(&**status)
            }
            _ => None,
        }
    })
}

/// Returns whether a 409 of the API server is in the error's source chain.
pub fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    refusal(error).is_some_and(|status| status.code == 409)
}

/// Returns whether a closed fence is in the error's source chain: this replica's term of leadership has
/// ended.
pub fn is_fenced(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| {
        link.is::<Fenced>() || link.downcast_ref::<WriteError>().is_some_and(WriteError::is_fenced)
    })
}

/// Iterates over an error and all its sources. `io::Error::source` skips the error inside, so `get_ref` is
/// used there.
pub(crate) fn links<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |link| {
        let link: &'a (dyn Error + 'static) = *link;
        let carried = link.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        carried.map(|carried| carried as &(dyn Error + 'static)).or_else(|| link.source())
    })
}

fn refusal_text(status: &Status) -> String {
    match (status.reason.as_str(), status.message.as_str()) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

#[cfg(test)]
mod tests;
