//! The troubles around a Lease, as far as the log tells them apart, and when a trouble is logged again.

use std::time::Duration;

use crate::util::LogOnce;

/// A trouble that has not happened for this long is logged when it does: two outages of a night are two lines, a Lease
/// that is deleted every second or a server that refuses every other request is one.
const CALM: Duration = Duration::from_mins(10);
/// Troubles that are remembered: more than there are, unless a server answers with many different codes.
const MOST_TROUBLES: usize = 64;

/// A trouble around a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    /// A request of ours got no answer in time.
    Late,
    /// It was answered with this status.
    Refused(u16),
    /// It was answered with something else than the Lease.
    Strange(&'static str),
    /// It could not be sent, or its answer not be read.
    Unreachable,
    /// The Lease we hold was deleted, or our name taken out of it.
    Missing,
    /// The Lease we hold says something else than we wrote.
    Edited,
    /// A holder states a duration that nobody can mean.
    Absurd,
}

/// Returns an empty log of troubles: what goes on, or happens again and again, makes one line and not one each time.
pub(super) fn trouble_log() -> LogOnce<Trouble> {
    LogOnce::new(MOST_TROUBLES).again_after(CALM)
}
