//! Who may lead, decided from what was seen.
//!
//! A pure function from (what is known, now, what happened) to (what is known then, what to do). It reads no clock
//! and sends nothing, so every interleaving of two replicas can be tried in a test. The record and its rules are
//! client-go's (`tools/leaderelection`); what differs is named where it does.
//!
//! # Invariants
//! 1. A replica leads until the *sending* of its last good write + 0.9 x lease duration at most. Others wait a whole
//!    duration from when they *saw* that write, so two fences overlap for no clock rates within 5 %.
//! 2. A holder that was seen is believed for its whole stated duration, and for another one from when the Lease was
//!    first missed, or its holder found cleared by hand. Only a release ends that sooner. Who starts after the Lease was
//!    deleted, or edited to run out sooner, has seen no holder: until that is told, it may take what is in use.
//! 3. At most one request is under way, and a write names the stored state it replaces: a write that arrives late
//!    changes nothing.
//! 4. The fence is closed before a release is sent.

mod act;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::ElectionSettings;
use super::record::{Record, Version};
use crate::key::BootInstant;

/// The moment of a decision, on both clocks, and a number that nobody can foresee.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Our own clock; all waiting is counted on it.
    pub boot: BootInstant,
    /// What people read in the Lease; never compared with anything but itself.
    pub wall: Timestamp,
    /// In `0.0..1.0`; spreads the tries of candidates.
    pub random: f64,
}

/// Something that happened.
#[derive(Clone, Debug, Hash)]
pub enum Event {
    /// The moment of [`State::wake_at`] came.
    Tick,
    /// The request under way ended.
    Answered(Answer),
    /// The watch told a state of the Lease.
    Seen(Record, Version),
    /// The watch told that the Lease is gone, and its last state.
    Gone(Record, Version),
    /// The watch began: from now on every change is told.
    WatchUp,
    /// The watch ended: look from time to time.
    WatchDown,
    /// This replica is to end.
    Stop,
    /// The leader-only work has ended (`true`), or was given up on and may still run (`false`).
    WorkEnded(bool),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The Lease as it is stored now: the answer to a good get, create or update.
    Is(Record, Version),
    /// There is no such Lease.
    Absent,
    /// It exists already, or is no longer in the state that was to be replaced.
    Conflict,
    /// Anything else, silence included. A write may have been done, or may be done yet.
    Failed,
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Reads the Lease.
    Get,
    /// Creates it.
    Create(Record),
    /// Replaces the record, if the Lease is still in this state.
    Update {
        /// What is to be stored.
        record: Record,
        /// The state it replaces.
        over: Version,
    },
}

/// Something to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this request; its end comes back as [`Event::Answered`].
    Send(Call),
    /// Forget the request under way; its end is not to come back.
    Abandon,
    /// The Lease is ours: open the fence until then and start leader-only work.
    Lead {
        /// End of the right to write unless renewed.
        until: BootInstant,
        /// The record's count of holders, which rises with each.
        transitions: i32,
    },
    /// Renewed: move the end of the fence, opening it if it was suspended.
    Extend {
        /// End of the right to write unless renewed.
        until: BootInstant,
    },
    /// The Lease no longer names us and nobody else yet: close the fence until it is ours again.
    Suspend,
    /// The Lease names us and says something else than we wrote: the next renewal writes it anew, and comes early where
    /// it would run out sooner.
    Mend,
    /// Close the fence now: we lead no longer.
    StopLeading(Ending),
    /// Have leader-only work end; when it has comes back as [`Event::WorkEnded`].
    EndWork,
    /// A candidate again, after a loss.
    Standby,
    /// The Lease names another holder than before, or none.
    NewHolder(Option<Arc<str>>),
    /// Nothing more will come.
    Finish {
        /// Whether the Lease was given up for the next one to take at once.
        released: bool,
    },
}

/// Why a term ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It was asked to.
    Stopped,
    /// No renewal got through in time.
    Expired,
    /// The Lease names another holder.
    Taken(Arc<str>),
}

/// All that one replica knows and is about to do.
#[derive(Clone, Debug, Hash)]
pub struct State {
    known: Known,
    /// Number of the newest state heard of; what is not above it is old news.
    newest: Option<u64>,
    /// Whether `known` is believed to be how things are; if not, look before writing.
    fresh: bool,
    /// Whether changes are told without asking.
    watching: bool,
    /// The last holder other than us, believed until its end.
    claim: Option<Claim>,
    /// The last record sent. None of ours has its time again; and our name in another one that we did not see the
    /// answer to was put there by somebody else.
    asked: Option<Record>,
    /// The request under way.
    in_flight: Option<InFlight>,
    /// No request is sent before this.
    next: BootInstant,
    /// Conflicts since the last good write; they slow down.
    conflicts: u32,
    phase: Phase,
    stopping: bool,
    /// The holder last told by [`Action::NewHolder`].
    reported: Option<Arc<str>>,
}

#[derive(Clone, Debug, Hash)]
enum Known {
    Nothing,
    /// No Lease; the record it had when last seen.
    Absent(Option<Record>),
    Present(Record, Version),
}

#[derive(Clone, Debug, Hash)]
struct InFlight {
    call: Call,
    sent: BootInstant,
    /// Whether the watch told something since, which is then newer than what a look finds.
    overtaken: bool,
}

#[derive(Clone, Debug, Hash)]
struct Claim {
    holder: Arc<str>,
    /// With the holder, tells a renewal from a change made by hand.
    renewed: Option<Timestamp>,
    /// Tells one term from the next, as the holder does.
    acquired: Option<Timestamp>,
    /// How long the record said that it holds.
    states: Duration,
    /// The most that it said in this term.
    longest: Duration,
    until: BootInstant,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    Candidate,
    Leading {
        /// When the last good write was sent.
        good: BootInstant,
        /// The record last written; what people do to the stored one is not taken over.
        mine: Record,
        /// The fence is closed until the Lease names us again.
        suspended: bool,
    },
    /// Waiting for leader-only work to end after a loss.
    Lost(Ending),
    /// Giving the Lease up, until `give_up`.
    Releasing {
        give_up: BootInstant,
        /// Begin of the term that ends.
        acquired: Option<Timestamp>,
    },
    Over,
}

/// Decides what to do about one event.
pub fn decide(rules: &ElectionSettings, state: State, now: Now, event: Event) -> (State, Vec<Action>) {
    turn::take(rules, state, now, event)
}

// === impl ElectionSettings ===

impl ElectionSettings {
    /// How long one request may take: two fit into the time for renewing.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// How long after the sending of a good write its sender may write.
    ///
    /// Nine tenths: a leader whose clock is 5 % slow ends after 0.947 durations, a candidate whose clock is 5 %
    /// fast begins after 0.952.
    #[must_use]
    pub fn fence_after_send(&self) -> Duration {
        self.lease_duration * 9 / 10
    }

    /// How long after the sending of a good write a leader without another one gives up: client-go's retry period,
    /// after which it begins to renew, and the time it then has. Validation keeps it within the fence.
    pub(super) fn give_up_after_send(&self) -> Duration {
        self.retry_period + self.renew_deadline
    }

    /// Wait between the tries of a candidate: uniform in R..2.2 R, as client-go's jitter factor of 1.2.
    pub(super) fn candidate_wait(&self, random: f64) -> Duration {
        self.retry_period.mul_f64(1.2f64.mul_add(random.clamp(0.0, 1.0), 1.0))
    }

    /// Wait after a number of conflicts in a row: none after the first, then doubling up to the retry period.
    pub(super) fn conflict_wait(&self, conflicts: u32) -> Duration {
        match conflicts {
            0 | 1 => Duration::ZERO,
            n => Duration::from_millis(10).saturating_mul(1 << (n - 2).min(16)).min(self.retry_period),
        }
    }
}

// === impl State ===

impl State {
    /// A candidate that knows nothing yet.
    pub fn new(now: BootInstant) -> Self {
        Self {
            known: Known::Nothing,
            newest: None,
            fresh: false,
            watching: false,
            claim: None,
            asked: None,
            in_flight: None,
            next: now,
            conflicts: 0,
            phase: Phase::Candidate,
            stopping: false,
            reported: None,
        }
    }

    /// Returns when to send [`Event::Tick`] if nothing happens before.
    pub fn wake_at(&self, rules: &ElectionSettings) -> Option<BootInstant> {
        let idle = self.in_flight.is_none();
        match &self.phase {
            Phase::Candidate if idle => Some(self.candidate_acts_at()),
            Phase::Candidate | Phase::Lost(_) | Phase::Over => None,
            Phase::Leading { good, .. } => {
                let give_up = *good + rules.give_up_after_send();
                Some(if idle { give_up.min(self.next) } else { give_up })
            }
            Phase::Releasing { give_up, .. } => Some(if idle { (*give_up).min(self.next) } else { *give_up }),
        }
    }

    /// Returns whether this replica leads; its fence may have run out all the same.
    pub fn is_leading(&self) -> bool {
        matches!(self.phase, Phase::Leading { .. })
    }

    /// A candidate that knows how things are has nothing to do until the holder's time is over.
    fn candidate_acts_at(&self) -> BootInstant {
        match &self.claim {
            Some(claim) if self.fresh => claim.until.max(self.next),
            _ => self.next,
        }
    }

    fn version(&self) -> Option<&Version> {
        match &self.known {
            Known::Present(_, version) => Some(version),
            Known::Nothing | Known::Absent(_) => None,
        }
    }

    fn holder(&self) -> Option<&Arc<str>> {
        match &self.known {
            Known::Present(record, _) => record.holder.as_ref(),
            Known::Nothing | Known::Absent(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
