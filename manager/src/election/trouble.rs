//! Kinds of problems with a Lease, each of which is logged once until it has been absent for a while.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::display;

use crate::key::Chain;
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

/// Logs a problem with a Lease: as a warning if it is new, otherwise as a debug line. Returns whether it is
/// new.
pub(super) fn log_trouble(
    logged: &mut LogOnce<Trouble>,
    lease: &dyn Display,
    trouble: Trouble,
    error: Option<&(dyn Error + 'static)>,
    text: &str,
) -> bool {
    let is_new = logged.is_first(trouble, Instant::now());
    let error = error.map(|error| display(Chain(error)));
    if is_new {
        tracing::warn!(%lease, error, "{text}");
    } else {
        tracing::debug!(%lease, error, "{text}");
    }
    is_new
}
