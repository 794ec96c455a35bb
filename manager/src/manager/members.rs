//! Who belongs to a manager: the names that are taken, and the members that wait to be started.
//!
//! # Invariants
//! 1. A name is taken for as long as its [`Seat`] exists, and a seat goes with the controller it was taken for, whichever
//!    way that ends. So a name that is free has nothing left of its last holder.
//! 2. Nothing of a user's is dropped under the lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::RegisterError;
use super::runnable::Recruit;
use crate::controller::{ControllerSettings, Life, Stage};

/// The members of one manager. Cheap to clone; all clones are the same members.
#[derive(Clone, Default)]
pub(super) struct Members {
    shared: Arc<Shared>,
}

/// The members, for who must not keep them.
pub(super) type WeakMembers = Weak<Shared>;

#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Permit = somebody waits to be started.
    arrived: Notify,
}

#[derive(Default)]
struct State {
    /// The manager starts nobody any more.
    closed: bool,
    /// Settings by the names that are taken: what goes down to each controller. Written once, by `seat`: the file is
    /// read at the start.
    seats: BTreeMap<&'static str, watch::Sender<ControllerSettings>>,
    /// In the order they came.
    waiting: Vec<Member>,
}

/// Something to be started.
pub(super) enum Member {
    Controller(Box<Newcomer>),
    Runnable(Recruit),
}

/// A controller to be started.
pub(super) struct Newcomer {
    pub(super) needs_lease: bool,
    pub(super) life: Life,
    /// Cancelled if it is to leave again.
    pub(super) leave: CancellationToken,
    pub(super) seat: Seat,
}

/// A name that is taken; dropping it frees the name, and then tells who waits for that.
#[must_use]
pub(super) struct Seat {
    members: WeakMembers,
    pub(super) name: &'static str,
    /// Dropped last: the end of this channel is the end of the controller.
    stage: watch::Sender<Stage>,
}

// === impl Members ===

impl Members {
    /// Takes a name, and returns its seat and the settings that go down to its controller.
    pub(super) fn seat(
        &self,
        name: &'static str,
        settings: ControllerSettings,
    ) -> Result<(Seat, watch::Receiver<ControllerSettings>), RegisterError> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(RegisterError::Stopped { name });
        }
        if state.seats.contains_key(name) {
            return Err(RegisterError::DuplicateName { name });
        }
        let (sender, receiver) = watch::channel(settings);
        state.seats.insert(name, sender);
        drop(state);
        let members = Arc::downgrade(&self.shared);
        Ok((Seat { members, name, stage: watch::Sender::default() }, receiver))
    }

    /// Has a member started: with the manager, or now if it runs.
    pub(super) fn submit(&self, member: Member) -> Result<(), RegisterError> {
        let name = member.name();
        let refused = {
            let mut state = self.shared.state.lock();
            if state.closed {
                Some(member)
            } else {
                state.waiting.push(member);
                None
            }
        };
        if refused.is_some() {
            return Err(RegisterError::Stopped { name });
        }
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// Takes who waits to be started.
    pub(super) fn take(&self) -> Vec<Member> {
        std::mem::take(&mut self.shared.state.lock().waiting)
    }

    /// Waits for somebody to be started.
    ///
    /// # Cancel safety
    /// Nobody is lost: members are taken in the poll that returns them.
    pub(super) async fn arrivals(&self) -> Vec<Member> {
        self.shared.arrived.notified().await;
        self.take()
    }

    /// Starts nobody any more.
    pub(super) fn close(&self) {
        self.shared.state.lock().closed = true;
        drop(self.take());
    }

    pub(super) fn downgrade(&self) -> WeakMembers {
        Arc::downgrade(&self.shared)
    }
}

/// Lets those go who are to leave and have not been started.
pub(super) fn withdraw_leavers(members: &WeakMembers) {
    let Some(members) = members.upgrade() else { return };
    let leavers: Vec<Member> = {
        let mut state = members.state.lock();
        state.waiting.extract_if(.., |member| member.leaves()).collect()
    };
    drop(leavers);
}

// === impl Member ===

impl Member {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Controller(newcomer) => newcomer.seat.name,
            Self::Runnable(recruit) => recruit.name,
        }
    }

    fn leaves(&self) -> bool {
        matches!(self, Self::Controller(newcomer) if newcomer.leave.is_cancelled())
    }
}

// === impl Seat ===

impl Seat {
    /// Returns what tells of the controller's stage.
    pub(super) fn stage(&self) -> watch::Sender<Stage> {
        self.stage.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(members) = self.members.upgrade() else { return };
        let settings = members.state.lock().seats.remove(self.name);
        drop(settings);
    }
}
