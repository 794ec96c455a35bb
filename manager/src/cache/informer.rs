//! One list and watch for one store: requests, and responses cut into objects.

pub(super) mod frame;
pub(super) mod pages;
mod reflector;

pub(super) use frame::read_status;
pub(super) use reflector::Reflector;

use bytes::Bytes;

/// A line of a watch or an item of a list, cut out of a response under a length limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Limited {
    Whole(Bytes),
    /// The beginning of a line or item that is longer than the limit. Returned once; the rest is dropped.
    TooLong(Bytes),
}
