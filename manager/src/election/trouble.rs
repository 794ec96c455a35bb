//! Kinds of problems with a Lease, each of which is logged once until it has been absent for a while.

use std::time::Duration;

use crate::util::LogOnce;

/// A problem that has been absent for this long is logged again. Two outages in a night make two lines; a
/// Lease that is deleted every second, or a server that refuses every other request, makes one.
const QUIET_PERIOD: Duration = Duration::from_mins(10);
/// Upper bound of remembered problems; a server that answers with many different status codes could exceed
/// it.
const MAX_REMEMBERED: usize = 64;

/// A kind of problem with a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    /// A request was not answered in time.
    Late,
    /// A request was refused with this status.
    Refused(u16),
    /// A response was not the requested Lease, for this reason.
    Strange(&'static str),
    /// A request could not be sent, or its response not be read.
    Unreachable,
    /// The Lease held by this replica was deleted, or its holder cleared.
    Missing,
    /// The Lease held by this replica was edited.
    Edited,
    /// The Lease states an implausible lease duration.
    InvalidDuration,
}

/// Returns an empty log, in which a repeated problem makes one line.
pub(super) fn trouble_log() -> LogOnce<Trouble> {
    LogOnce::new(MAX_REMEMBERED).again_after(QUIET_PERIOD)
}
