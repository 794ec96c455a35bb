//! Small tools that several rooms and crates share: a rate limit, a bounded map, filters for repeated log lines, and a
//! follower of files.
//!
//! Except for the follower, none of them starts a task, waits or reads a clock: the present moment is an argument, so a
//! test passes in any moment it likes.

mod bounded;
mod bucket;
mod follow;
mod repeats;
#[cfg(test)]
pub(crate) mod tests;

pub use bounded::BoundedMap;
pub use bucket::{Limit, TokenBucket};
pub(crate) use follow::{Follower, MAX_FILE_BYTES, read_regular};
pub use repeats::{LogEvery, LogOnce};
