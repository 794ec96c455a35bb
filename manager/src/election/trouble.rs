//! Kinds of problems with a Lease, each of which is logged once until it has been absent for a while.

use std::error::Error;
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::display;

use crate::key::{Chain, NamespacedName};
use crate::util::BoundedMap;

/// A problem with the Lease that has been absent for this long is logged again. Two outages in a night make
/// two lines; a Lease that is deleted every second, or a server that refuses every other request, makes one.
const QUIET_PERIOD: Duration = Duration::from_mins(10);
/// Maximum number of remembered problems with the Lease, since a server could answer with many different
/// status codes.
const MAX_REMEMBERED: usize = 64;

/// A kind of problem with a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    /// A request for the Lease was not answered in time.
    Late,
    /// A request for the Lease was refused with this HTTP status.
    Refused(u16),
    /// A response was not the requested Lease, for this reason.
    Strange(&'static str),
    /// A request for the Lease could not be sent, or its response could not be read.
    Unreachable,
    /// The Lease held by this replica was deleted, or its holder cleared.
    Missing,
    /// The Lease held by this replica was edited.
    Edited,
    /// The Lease states an implausible lease duration.
    InvalidDuration,
}

/// A log of the problems with one Lease, in which a repeated problem makes one line.
pub(super) struct TroubleLog {
    lease: NamespacedName,
    logged: BoundedMap<Trouble, ()>,
}

// === impl TroubleLog ===

impl TroubleLog {
    pub(super) fn new(lease: NamespacedName) -> Self {
        Self { lease, logged: BoundedMap::new(MAX_REMEMBERED).expire_after(QUIET_PERIOD) }
    }

    /// Records a problem with the Lease and returns whether it is new.
    pub(super) fn is_new(&mut self, trouble: Trouble) -> bool {
        self.logged.insert(trouble, (), Instant::now()).is_none()
    }

    /// Logs a problem with the Lease: as a warning if it is new, otherwise as a debug line. Returns whether
    /// it is new.
    pub(super) fn log(
        &mut self,
        trouble: Trouble,
        error: Option<&(dyn Error + 'static)>,
        text: &str,
    ) -> bool {
        let is_new = self.is_new(trouble);
        let (lease, error) = (&self.lease, error.map(|error| display(Chain(error))));
        if is_new {
            tracing::warn!(%lease, error, "{text}");
        } else {
            tracing::debug!(%lease, error, "{text}");
        }
        is_new
    }
}
