//! Helpers that several rooms and crates share: a token bucket, a bounded map, a filter for repeated log
//! lines, a TLS verifier, a file follower, and calls of the operating system.
//!
//! Except for the last two, they spawn no task, do not wait and read no clock: the present time is an
//! argument, which a test can choose.

mod bounded;
mod bucket;
mod follow;
pub(crate) mod os;
mod repeats;
mod verifier;

#[cfg(test)]
pub(crate) mod tests;

use std::panic::resume_unwind;

use tokio::task::JoinError;

pub use bounded::BoundedMap;
pub use bucket::{Limit, TokenBucket};
pub(crate) use follow::{Follower, MAX_FILE_BYTES, read_regular};
pub use repeats::LogEvery;
pub use verifier::UnchainedVerifier;

/// Resumes the panic of a joined task in the caller, if the task ended with one.
pub(crate) fn resume_panic(ended: Result<(), JoinError>) {
    if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
        resume_unwind(panic);
    }
}

/// Returns the SHA-256 of some bytes in hexadecimal, as `sha256sum` prints it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
