//! `/debug/leader`: whether this replica leads, who does as far as it knows, and what has happened to the Lease.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::seconds;
use crate::controller::Term;
use crate::election::{Ending, Leadership, LeaseEvent};
use crate::key::Fence;

/// Turns that are remembered: days of an ordinary life, and the last minutes of a Lease that nobody can keep.
const TURNS: usize = 32;

/// The end of this replica's term, which says nothing about the next holder.
const STOPPED: &str = "stoppedLeading";

/// What a replica knows about who leads.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Who this replica is.
    pub identity: String,
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
    pub history: History,
}

/// What this replica has seen happen to the Lease, the last of it. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The newest last.
    turns: Arc<Mutex<VecDeque<(Instant, LeaseEvent)>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page<'a> {
    identity: &'a str,
    /// `null` without an election.
    lease: Option<Lease<'a>>,
    leading: bool,
    /// `null` if nobody holds the Lease, nobody is known to, or there is none.
    holder: Option<String>,
    /// How often the Lease changed hands; known to who leads.
    transitions: Option<i32>,
    /// Why the last term ended, until the next candidacy: `stopped`, `expired` or `taken`.
    lost: Option<&'static str>,
    fence_open: bool,
    /// How long writes may leave without another renewal; `null` while they may not, and without an election.
    fence_seconds: Option<f64>,
    /// Since when this replica knows the holder for the holder.
    holder_seconds: Option<f64>,
    /// What has happened to the Lease as far as this replica saw it, the newest first; at most 32.
    history: Vec<Turn>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Turn {
    seconds_ago: f64,
    /// `becameLeader`, `stoppedLeading` of this replica; `newHolder` of any.
    event: &'static str,
    /// `null` for a Lease that nobody holds.
    identity: Option<String>,
    /// Why this replica stopped, as in `lost`.
    reason: Option<&'static str>,
}

#[derive(Serialize)]
struct Lease<'a> {
    namespace: &'a str,
    name: &'a str,
}

// === impl Leader ===

impl Leader {
    pub(super) fn page(&self) -> Page<'_> {
        let mut page = Page {
            identity: &self.identity,
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
        page.lease = Some(Lease { namespace: &election.namespace, name: &election.lease_name });
        let leadership = election.leadership.borrow().clone();
        page.leading = matches!(leadership, Leadership::Leading { .. });
        match leadership {
            Leadership::Standby { holder } => page.holder = holder.map(|holder| holder.to_string()),
            Leadership::Leading { transitions } => {
                page.holder = Some(self.identity.clone());
                page.transitions = Some(transitions);
            }
            Leadership::Lost(ending) => {
                page.lost = Some(word(&ending));
                if let Ending::Taken(holder) = ending {
                    page.holder = Some(holder.to_string());
                }
            }
        }
        page.history = election.history.newest_first();
        let holds = |turn: &&Turn| turn.event != STOPPED && turn.identity == page.holder;
        let known = page.history.iter().take_while(|turn| holds(turn) || turn.event == STOPPED).filter(holds);
        page.holder_seconds = page.holder.as_ref().and(known.last().map(|turn| turn.seconds_ago));
        page
    }
}

// === impl History ===

impl History {
    /// Remembers what has just happened.
    pub fn note(&self, event: &LeaseEvent) {
        let mut turns = self.turns.lock();
        if turns.len() == TURNS {
            turns.pop_front();
        }
        turns.push_back((Instant::now(), event.clone()));
    }

    fn newest_first(&self) -> Vec<Turn> {
        let turns = self.turns.lock().clone();
        turns.into_iter().rev().map(|(at, event)| Turn::of(at, event)).collect()
    }
}

// === impl Turn ===

impl Turn {
    fn of(at: Instant, event: LeaseEvent) -> Self {
        let (event, identity, reason) = match event {
            LeaseEvent::BecameLeader { identity } => ("becameLeader", Some(identity), None),
            LeaseEvent::StoppedLeading { identity, ending } => (STOPPED, Some(identity), Some(word(&ending))),
            LeaseEvent::NewLeader { holder } => ("newHolder", holder, None),
        };
        let identity = identity.map(|identity| identity.to_string());
        Self { seconds_ago: seconds(at.elapsed()), event, identity, reason }
    }
}

fn word(ending: &Ending) -> &'static str {
    match ending {
        Ending::Stopped => "stopped",
        Ending::Expired => "expired",
        Ending::Taken(_) => "taken",
    }
}
