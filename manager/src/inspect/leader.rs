//! `/debug/leader`: whether this replica leads, and who does as far as it knows.

use serde::Serialize;
use tokio::sync::watch;

use crate::controller::Term;
use crate::election::{Ending, Leadership};
use crate::key::Fence;

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
            Leadership::Lost(Ending::Stopped) => page.lost = Some("stopped"),
            Leadership::Lost(Ending::Expired) => page.lost = Some("expired"),
            Leadership::Lost(Ending::Taken(holder)) => {
                page.holder = Some(holder.to_string());
                page.lost = Some("taken");
            }
        }
        page
    }
}
