//! The state machine of leader election, as a pure function.
//!
//! The function maps (state, time, event) to (new state, actions). It reads no clock and does no I/O, so a
//! test can try every interleaving of two replicas. The record and its rules are client-go's
//! (`tools/leaderelection`); comments name each difference.
//!
//! # Invariants
//! 1. A replica leads at most until 0.9 x lease duration after *sending* its last successful write. Others
//!    wait a whole lease duration from when they *received* that write, so two fences never overlap while
//!    clock rates differ by at most 5 %.
//! 2. A candidate waits for the whole stated duration of an observed holder, and for another one once it
//!    finds the Lease deleted or its holder cleared by hand. Only a release ends the wait sooner. A replica
//!    that starts after the Lease was deleted, or edited to expire sooner, has observed no holder and may
//!    acquire the Lease before the old holder knows.
//! 3. At most one request is in flight, and a write names the stored version that it replaces: a late write
//!    fails with a conflict.
//! 4. The fence is closed before a release is sent.

mod act;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::ElectionSettings;
use super::record::{Record, Version};
use crate::key::BootInstant;

pub use turn::decide;

/// The current time and a random number for one decision of the election.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Time on this machine's monotonic clock, on which all deadlines are counted.
    pub boot: BootInstant,
    /// Time on the wall clock, as written into the Lease; compared only with other times written by this
    /// replica.
    pub wall: Timestamp,
    /// A random number in `0.0..1.0`, which spreads the requests of candidates.
    pub random: f64,
}

/// An event to which one decision of the election reacts.
#[derive(Clone, Debug, Hash)]
pub enum Event {
    /// The time that [`State::wake_at`] returned has come.
    Tick,
    /// The request about the Lease that was in flight ended with this answer.
    Answered(Answer),
    /// The watch delivered a new version of the Lease.
    Seen(Record, Version),
    /// The watch reported the deletion of the Lease, with its last version.
    Gone(Record, Version),
    /// The watch of the Lease started: every later change arrives as an event.
    WatchUp,
    /// The watch of the Lease ended: poll the Lease until it is back.
    WatchDown,
    /// The elector was stopped from outside: end the election.
    Stop,
    /// Leader-only work has ended (`true`), or a deadline passed and it may still run (`false`).
    WorkEnded(bool),
}

/// The API server's answer to a request about the Lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The stored Lease, after a successful get, create or update.
    Stored(Record, Version),
    /// The Lease does not exist.
    Absent,
    /// The Lease to create exists already, or the version to replace is no longer the stored one.
    Conflict,
    /// Any other outcome of the request, including a timeout. A write may have been applied, or may be
    /// applied later.
    Failed,
}

/// A request about the Lease to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Reads the Lease.
    Get,
    /// Creates the Lease with this record.
    Create(Record),
    /// Replaces the record in the Lease if the stored version is still `over`.
    Update {
        /// The record to store in the Lease.
        record: Record,
        /// The version of the Lease to replace.
        over: Version,
    },
}

/// An action that a decision returns for the elector to perform; several are performed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this request about the Lease and return its outcome as [`Event::Answered`].
    Send(Call),
    /// Drop the request about the Lease that is in flight; its outcome must not be returned.
    Abandon,
    /// This replica holds the Lease: open the fence until `until` and start leader-only work.
    Lead {
        /// Time from which this replica may no longer write, unless the Lease is renewed before.
        until: BootInstant,
        /// `leaseTransitions` in the record of the Lease, which rises with each change of holder.
        transitions: i32,
    },
    /// The Lease was renewed: move the end of the fence to `until`, and open a suspended fence.
    Extend {
        /// Time from which this replica may no longer write, unless the Lease is renewed before.
        until: BootInstant,
    },
    /// The Lease was deleted or its holder cleared: close the fence until a write names this replica again.
    Suspend,
    /// The Lease names this replica but was edited: the next renewal overwrites the edit, and is sent early
    /// if the edit shortens the lease duration.
    Rewrite,
    /// This replica no longer leads: close the fence now.
    StopLeading(Ending),
    /// Stop leader-only work and return its end as [`Event::WorkEnded`].
    EndWork,
    /// This replica is a candidate again after a loss of the Lease.
    Standby,
    /// The holder named in the Lease changed; `None` if it names none.
    NewHolder(Option<Arc<str>>),
    /// The election is over; no action follows.
    Finish {
        /// Whether the Lease was released, so that another replica can acquire it at once.
        released: bool,
    },
}

/// Reason for which a term of leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The term ended in order because the elector was stopped.
    Stopped,
    /// No renewal of the Lease succeeded in time.
    Expired,
    /// The Lease names another holder.
    Taken(Arc<str>),
}

/// State of one replica in the election, between two decisions.
#[derive(Clone, Debug, Default, Hash)]
pub struct State {
    /// The Lease as last read, written or watched.
    known: Known,
    /// Number of the newest version of the Lease received; events that are not above it are stale.
    newest: Option<u64>,
    /// Whether the known Lease is assumed to be current; otherwise the next request is a get.
    fresh: bool,
    /// Whether the watch of the Lease is open, so that changes arrive as events.
    watching: bool,
    /// The claim of the last holder other than this replica; a candidate waits for its end.
    claim: Option<Claim>,
    /// The last record that this replica sent to the API server. Each record of this replica has a renew time
    /// of its own; a record that names this replica and is neither this one nor known from an answer was
    /// edited by hand.
    last_sent: Option<Record>,
    in_flight: Option<InFlight>,
    /// Earliest time of the next request about the Lease.
    next: BootInstant,
    /// Number of conflicts since the last successful write of the Lease; more conflicts mean longer waits.
    conflicts: u32,
    phase: Phase,
    stopping: bool,
    /// The holder of the Lease in the last [`Action::NewHolder`].
    reported: Option<Arc<str>>,
}

#[derive(Clone, Debug, Default, Hash)]
enum Known {
    #[default]
    Nothing,
    /// The Lease does not exist; the value is its last record, if one was seen.
    Absent(Option<Record>),
    Present(Record, Version),
}

#[derive(Clone, Debug, Hash)]
struct InFlight {
    call: Call,
    sent: BootInstant,
    /// Whether a watch event arrived after the request was sent; it is then newer than the result of a get.
    overtaken: bool,
}

/// The time for which another holder of the Lease may still be leading.
#[derive(Clone, Debug, Hash)]
struct Claim {
    holder: Arc<str>,
    /// Renew time in the holder's record. If it and the holder are unchanged, a new version of the Lease is
    /// an edit by hand.
    renewed: Option<Timestamp>,
    /// Acquire time in the holder's record, which separates one term of a holder from its next.
    acquired: Option<Timestamp>,
    /// Lease duration that the holder's record states.
    duration: Duration,
    /// The longest lease duration that the records of this term of the holder stated.
    longest: Duration,
    until: BootInstant,
}

#[derive(Clone, Debug, Default, Hash)]
enum Phase {
    #[default]
    Candidate,
    Leading {
        /// Time at which the last successful write of the Lease was sent.
        renewed_at: BootInstant,
        /// The record last written to the Lease. Renewals repeat it, so edits of the stored record are
        /// overwritten.
        written: Record,
        /// Whether the fence is closed until the Lease names this replica again.
        suspended: bool,
    },
    /// The replica lost the Lease and waits for leader-only work to end.
    Lost(Ending),
    /// The replica releases the Lease; it gives up at `give_up`.
    Releasing {
        give_up: BootInstant,
        /// Acquire time of the term of leadership that ends.
        acquired: Option<Timestamp>,
    },
    Over,
}

// === impl ElectionSettings ===

impl ElectionSettings {
    /// Returns the timeout of one request about the Lease: half the renew deadline, so that a second try
    /// fits.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Returns for how long after sending a successful write of the Lease its sender may write to the
    /// cluster.
    ///
    /// Nine tenths of the lease duration: a leader with a clock 5 % slow ends after 0.947 durations, a
    /// candidate with a clock 5 % fast starts after 0.952.
    #[must_use]
    pub fn fence_after_send(&self) -> Duration {
        self.lease_duration * 9 / 10
    }

    /// Returns for how long after sending its last successful write of the Lease a leader keeps trying to
    /// renew: one retry period, after which it starts to renew, plus the renew deadline, as in client-go.
    /// Validation keeps the sum within the fence.
    pub(super) fn give_up_after_send(&self) -> Duration {
        self.retry_period + self.renew_deadline
    }

    /// Returns the wait of a candidate between two requests about the Lease: uniform in R..2.2 R for a retry
    /// period R, which is client-go's jitter factor of 1.2.
    pub(super) fn candidate_wait(&self, random: f64) -> Duration {
        self.retry_period.mul_f64(1.2f64.mul_add(random.clamp(0.0, 1.0), 1.0))
    }

    /// Returns the wait before the next request about the Lease after this many consecutive conflicts: zero
    /// after the first, then doubling from 10 ms up to the retry period.
    pub(super) fn conflict_wait(&self, conflicts: u32) -> Duration {
        match conflicts {
            0 | 1 => Duration::ZERO,
            n => Duration::from_millis(10).saturating_mul(1 << (n - 2).min(16)).min(self.retry_period),
        }
    }
}

// === impl State ===

impl State {
    /// Returns the state of a candidate that has not read the Lease yet.
    pub fn new(now: BootInstant) -> Self {
        Self { next: now, ..Self::default() }
    }

    /// Returns the time for the next [`Event::Tick`] if no other event comes first; `None` if no tick is
    /// needed.
    pub fn wake_at(&self, rules: &ElectionSettings) -> Option<BootInstant> {
        let idle = self.in_flight.is_none();
        match &self.phase {
            Phase::Candidate if idle => Some(self.candidate_acts_at()),
            Phase::Candidate | Phase::Lost(_) | Phase::Over => None,
            Phase::Leading { renewed_at, .. } => {
                let give_up = *renewed_at + rules.give_up_after_send();
                Some(if idle { give_up.min(self.next) } else { give_up })
            }
            Phase::Releasing { give_up, .. } => Some(if idle { (*give_up).min(self.next) } else { *give_up }),
        }
    }

    /// Returns whether this replica is in the leading phase; its fence may have expired already.
    pub fn is_leading(&self) -> bool {
        matches!(self.phase, Phase::Leading { .. })
    }

    /// Returns the time at which a candidate sends its next request: with a current view of the Lease, not
    /// before the claim of its holder ends.
    fn candidate_acts_at(&self) -> BootInstant {
        match &self.claim {
            Some(claim) if self.fresh => claim.until.max(self.next),
            _ => self.next,
        }
    }

    fn version(&self) -> Option<&Version> {
        if let Known::Present(_, version) = &self.known { Some(version) } else { None }
    }

    fn holder(&self) -> Option<&Arc<str>> {
        if let Known::Present(record, _) = &self.known { record.holder.as_ref() } else { None }
    }
}

#[cfg(test)]
mod tests;
