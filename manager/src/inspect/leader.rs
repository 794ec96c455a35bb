//! `/debug/leader`: whether this replica leads, the holder of the Lease as far as it is known, and the
//! Lease's history.

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

/// Most changes of the Lease to remember: enough for days in normal operation, and for minutes if no replica
/// can keep the Lease.
const MAX_CHANGES: usize = 32;

/// The event in the Lease's history at the end of this replica's term; the next holder is not known yet.
const STOPPED: &str = "stoppedLeading";

/// The leadership of the replicas as this replica knows it.
#[derive(Clone, Debug)]
pub struct Leader {
    /// The identity of this replica in the Lease.
    pub identity: String,
    /// The namespace of the Pods of all replicas; `None` outside a cluster.
    pub namespace: Option<String>,
    /// The leader election that this replica takes part in; `None` if it is off, so that this replica leads.
    pub election: Option<Election>,
    /// The term of leader-only work, which shows whether such work may run.
    pub term: Term,
    /// The fence of leader-only writes, which shows whether such writes may be sent.
    pub fence: Fence,
}

/// The leader election that a replica takes part in: its Lease, its state and its history.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease that the replicas compete for.
    pub namespace: String,
    /// Name of the Lease that the replicas compete for.
    pub lease_name: String,
    /// The leadership published by the elector of this replica.
    pub leadership: watch::Receiver<Leadership>,
    /// The last events of the elector of this replica.
    pub history: LeaseHistory,
}

/// The last changes of the Lease that this replica has seen. Cheap to clone; all clones share the same
/// history.
#[derive(Clone, Debug, Default)]
pub struct LeaseHistory {
    /// The events of the Lease with their times, the newest last.
    changes: Arc<Mutex<VecDeque<(Instant, LeaseEvent)>>>,
}

// === impl Leader ===

impl Leader {
    /// Returns the data of the page `/debug/leader`.
    pub(super) fn page(&self) -> pages::Leader {
        let mut page = pages::Leader {
            identity: self.identity.clone(),
            leading: *self.term.subscribe().borrow(),
            fence_open: self.fence.is_open(),
            fence_seconds: self.fence.left().filter(|left| !left.is_zero()).map(seconds),
            ..pages::Leader::default()
        };
        let Some(election) = &self.election else { return page };
        page.lease = Some(Lease { namespace: election.namespace.clone(), name: election.lease_name.clone() });
        let leadership = election.leadership.borrow().clone();
        (page.leading, page.holder) = self.leading_and_holder(&leadership);
        match leadership {
            Leadership::Standby { .. } => {}
            Leadership::Leading { transitions } => page.transitions = Some(transitions),
            Leadership::Lost(ending) => page.lost = Some(reason_of(&ending).into()),
        }
        page.history = election.history.newest_first();
        let holds = |change: &&LeaseChange| change.event != STOPPED && change.identity == page.holder;
        let known =
            page.history.iter().take_while(|change| holds(change) || change.event == STOPPED).filter(holds);
        page.holder_seconds = page.holder.as_ref().and(known.last().map(|change| change.seconds_ago));
        page
    }

    /// Returns whether this replica leads, and the holder of the Lease as far as it is known.
    pub(super) fn leading_and_holder(&self, leadership: &Leadership) -> (bool, Option<String>) {
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
    /// Adds an event of the Lease at the present time, and drops the oldest one if the history is full.
    pub fn add(&self, event: &LeaseEvent) {
        let mut changes = self.changes.lock();
        if changes.len() == MAX_CHANGES {
            changes.pop_front();
        }
        changes.push_back((Instant::now(), event.clone()));
    }

    fn newest_first(&self) -> Vec<LeaseChange> {
        let changes = self.changes.lock().clone();
        changes.into_iter().rev().map(|(at, event)| change(at, event)).collect()
    }
}

fn change(at: Instant, event: LeaseEvent) -> LeaseChange {
    let (event, identity, reason) = match event {
        LeaseEvent::BecameLeader { identity } => ("becameLeader", Some(identity), None),
        LeaseEvent::StoppedLeading { identity, ending } => {
            (STOPPED, Some(identity), Some(reason_of(&ending)))
        }
        LeaseEvent::NewLeader { holder } => ("newHolder", holder, None),
    };
    LeaseChange {
        seconds_ago: seconds(at.elapsed()),
        event: event.into(),
        identity: identity.map(|identity| identity.to_string()),
        reason: reason.map(Into::into),
    }
}

fn reason_of(ending: &Ending) -> &'static str {
    match ending {
        Ending::Stopped => "stopped",
        Ending::Expired => "expired",
        Ending::Taken(_) => "taken",
    }
}
