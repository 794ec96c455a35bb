//! `/debug/leader`: whether this replica leads, who does as far as it knows, and what has happened to the Lease.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::pages::{self, Lease, LeaseChange};
use super::seconds;
use crate::controller::Term;
use crate::election::{Ending, Leadership, LeaseEvent};
use crate::key::Fence;

/// Turns that are remembered: days of an ordinary life, and the last minutes of a Lease that nobody can keep.
const MAX_CHANGES: usize = 32;

/// The end of this replica's term, which says nothing about the next holder.
const STOPPED: &str = "stoppedLeading";

/// What a replica knows about who leads.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Who this replica is.
    pub identity: String,
    /// The namespace of its Pod, which is that of the other replicas too; `None` outside a cluster.
    pub namespace: Option<String>,
    /// `None` if it leads without being elected.
    pub election: Option<Election>,
    /// Whether leader-only work may run.
    pub term: Term,
    /// Whether leader-only writes may leave.
    pub fence: Fence,
}

/// The election a replica takes part in.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// What the elector says.
    pub leadership: watch::Receiver<Leadership>,
    /// What the elector has told.
    pub history: LeaseHistory,
}

/// What this replica has seen happen to the Lease, the last of it. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct LeaseHistory {
    /// The newest last.
    turns: Arc<Mutex<VecDeque<(Instant, LeaseEvent)>>>,
}

// === impl Leader ===

impl Leader {
    pub(super) fn page(&self) -> pages::Leader {
        let mut page = pages::Leader {
            identity: self.identity.clone(),
            lease: None,
            leading: *self.term.subscribe().borrow(),
            holder: None,
            transitions: None,
            lost: None,
            fence_open: self.fence.is_open(),
            fence_seconds: self.fence.left().filter(|left| !left.is_zero()).map(seconds),
            holder_seconds: None,
            history: Vec::new(),
        };
        let Some(election) = &self.election else { return page };
        page.lease = Some(Lease { namespace: election.namespace.clone(), name: election.lease_name.clone() });
        let leadership = election.leadership.borrow().clone();
        (page.leading, page.holder) = self.who(&leadership);
        match leadership {
            Leadership::Standby { .. } => {}
            Leadership::Leading { transitions } => page.transitions = Some(transitions),
            Leadership::Lost(ending) => page.lost = Some(word(&ending).into()),
        }
        page.history = election.history.newest_first();
        let holds = |turn: &&LeaseChange| turn.event != STOPPED && turn.identity == page.holder;
        let known = page.history.iter().take_while(|turn| holds(turn) || turn.event == STOPPED).filter(holds);
        page.holder_seconds = page.holder.as_ref().and(known.last().map(|turn| turn.seconds_ago));
        page
    }

    /// Returns whether this replica leads, and which one does as far as it knows.
    pub(super) fn who(&self, leadership: &Leadership) -> (bool, Option<String>) {
        match leadership {
            Leadership::Leading { .. } => (true, Some(self.identity.clone())),
            Leadership::Standby { holder } => (false, holder.as_deref().map(str::to_owned)),
            Leadership::Lost(Ending::Taken(holder)) => (false, Some(holder.to_string())),
            Leadership::Lost(Ending::Stopped | Ending::Expired) => (false, None),
        }
    }
}

// === impl LeaseHistory ===

impl LeaseHistory {
    /// Remembers what has just happened.
    pub fn note(&self, event: &LeaseEvent) {
        let mut turns = self.turns.lock();
        if turns.len() == MAX_CHANGES {
            turns.pop_front();
        }
        turns.push_back((Instant::now(), event.clone()));
    }

    fn newest_first(&self) -> Vec<LeaseChange> {
        let turns = self.turns.lock().clone();
        turns.into_iter().rev().map(|(at, event)| turn(at, event)).collect()
    }
}

fn turn(at: Instant, event: LeaseEvent) -> LeaseChange {
    let (event, identity, reason) = match event {
        LeaseEvent::BecameLeader { identity } => ("becameLeader", Some(identity), None),
        LeaseEvent::StoppedLeading { identity, ending } => (STOPPED, Some(identity), Some(word(&ending))),
        LeaseEvent::NewLeader { holder } => ("newHolder", holder, None),
    };
    LeaseChange {
        seconds_ago: seconds(at.elapsed()),
        event: event.into(),
        identity: identity.map(|identity| identity.to_string()),
        reason: reason.map(Into::into),
    }
}

fn word(ending: &Ending) -> &'static str {
    match ending {
        Ending::Stopped => "stopped",
        Ending::Expired => "expired",
        Ending::Taken(_) => "taken",
    }
}
