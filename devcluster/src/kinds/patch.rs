//! Patches except server-side apply: JSON Patch, merge patch and strategic merge patch.
//!
//! Objects and patches are in the version of the request. The result is not validated: the caller decodes and
//! validates it like an object from a client.

mod json;
mod merge;
mod strategic;

pub use self::json::json_patch;
pub use self::merge::merge_patch;
pub use self::strategic::strategic_merge_patch;

/// The reason why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The patch is malformed: status 400, reason `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// The patch has too many operations: status 413, reason `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not fit the object: status 422, reason `Invalid`. The real server responds with a fixed
    /// message (`the server rejected our request due to an error in our request`) and empty details; the text
    /// here is for logs and for
    /// the patches of webhooks.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch cannot be merged: status 500, reason empty.
    #[error("{0}")]
    Internal(String),
}

#[cfg(test)]
mod tests;
