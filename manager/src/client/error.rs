//! What can become of a write, and the questions callers may ask of it.
//!
//! Callers branch on predicates, never on text. The free functions ask the same of any error that has one of ours or
//! of kube's somewhere in its chain, because a reconciler's `?` may have wrapped it.

use std::error::Error;
use std::io;
use std::time::Duration;

use kube::core::Status;

use super::connect::Fenced;

/// Why a write did not give the object back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The object cannot be sent as it is. Trying again does not help.
    #[error("{what} was not sent: {why}")]
    Malformed {
        /// The attempt, such as `apply of Deployment.apps shop/web`.
        what: String,
        /// What is wrong with it and what is expected.
        why: String,
    },
    /// The caller's own function that was to edit the object failed, so nothing was sent.
    #[error("{what} was not sent: the function that edits it failed")]
    Abandoned {
        /// The attempt, such as `patch of Deployment.apps shop/web`.
        what: String,
        /// What the function said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The object as it was read does not fit the Rust type, so it was not edited and nothing was sent. Somebody may mend
    /// it at any time.
    #[error(
        "{what} was not sent: the object that was read does not fit the type; compare the CRD's schema with it"
    )]
    Unreadable {
        /// The attempt.
        what: String,
        /// Where in the object.
        #[source]
        source: serde_json::Error,
    },
    /// This replica's term ended before the answer came. Only the next leader may try again.
    #[error("{what} was stopped: this replica no longer holds the Lease")]
    Fenced {
        /// The attempt.
        what: String,
    },
    /// The server answered and said no.
    #[error("{what} was refused: {} {}", .status.code, refusal_text(.status))]
    Refused {
        /// The attempt.
        what: String,
        /// The server's answer; its code is always the HTTP status.
        status: Box<Status>,
        /// How long the server asks to be left alone, from `Retry-After` or the answer's details.
        retry_after: Option<Duration>,
    },
    /// No answer came: the write may or may not have happened. Applying again is safe.
    #[error("{what} got no answer from the API server, so it may or may not have happened")]
    Unanswered {
        /// The attempt.
        what: String,
        /// What the connection said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The write happened, but the object that came back does not fit the Rust type.
    #[error("{what} happened, but the answer does not fit the type; compare the CRD's schema with it")]
    Undecodable {
        /// The attempt.
        what: String,
        /// Where in the answer.
        #[source]
        source: serde_json::Error,
    },
}

// === impl WriteError ===

impl WriteError {
    /// Returns whether another writer was faster or owns the field, or a uid or resourceVersion did not match (409).
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Returns whether a create met an object of its name, which the cache did not show yet. It is a conflict too.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.reason == "AlreadyExists")
    }

    /// Returns whether the object, its kind or its namespace is not there (404).
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns whether validation refused the object (422): it has to change first.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// Returns whether RBAC, admission or a terminating namespace refused it (403).
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns whether the fence stopped it.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Fenced { .. })
    }

    /// Returns how long the server asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns the HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(status.code),
            _ => None,
        }
    }
}

/// Returns the API server's refusal that an error stands on, if it stands on one.
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

/// Returns whether an error stands on a 409 of the API server.
pub fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    refusal(error).is_some_and(|status| status.code == 409)
}

/// Returns whether an error stands on a closed fence: this replica's term has ended.
pub fn is_fenced(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| {
        link.is::<Fenced>() || link.downcast_ref::<WriteError>().is_some_and(WriteError::is_fenced)
    })
}

/// An error and all it stands on. `io::Error` leaves the error it carries out of `source`, so it is asked for it.
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
