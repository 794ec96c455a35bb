//! Who belongs to a manager: the names that are taken, what each of them works by, and the members that wait to be
//! started.
//!
//! # Invariants
//! 1. A name is taken for as long as its [`Seat`] exists, and a seat goes with the controller it was taken for, whichever
//!    way that ends. So a name that is free has nothing left of its last holder.
//! 2. Nothing of a user's is called or dropped under the lock: what code sets of its controller is worked out before.
//! 3. Every seat works by the configuration in force. That changes under the lock, together with the settings of all seats,
//!    and a seat whose settings were worked out for an earlier one is not taken.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::RegisterError;
use super::runnable::Recruit;
use crate::config::{Channels, ManagerConfiguration, Section, SectionError};
use crate::controller::{ControllerFuture, ControllerSettings, InCode, Stage};
use crate::key::panic_text;

/// The members of one manager. Cheap to clone; all clones are the same members.
#[derive(Clone)]
pub(super) struct Members {
    shared: Arc<Shared>,
}

/// The members, for who must not keep them.
pub(super) type WeakMembers = Weak<Shared>;

pub(super) struct Shared {
    state: Mutex<State>,
    /// Tells users of the configuration in force, without the lock: who reads what a channel holds has whoever sends on it
    /// wait, and may well take a seat meanwhile.
    told: watch::Sender<Arc<ManagerConfiguration>>,
    /// Publish the sections of the program, also without the lock.
    channels: Channels,
    /// Permit = somebody waits to be started.
    arrived: Notify,
}

struct State {
    /// In force.
    configuration: Arc<ManagerConfiguration>,
    /// The manager starts nobody any more.
    closed: bool,
    /// By the names that are taken.
    seats: BTreeMap<Arc<str>, Holder>,
    /// In the order they came.
    waiting: Vec<Member>,
}

/// What is kept of who has a seat.
#[derive(Clone)]
struct Holder {
    /// Applied again to each new configuration.
    code: InCode,
    /// What goes down to the controller. No two seats have the same channel.
    settings: watch::Sender<ControllerSettings>,
}

/// Something to be started.
pub(super) enum Member {
    Controller(Box<Newcomer>),
    Runnable(Recruit),
}

/// A controller to be started.
pub(super) struct Newcomer {
    pub(super) needs_lease: bool,
    pub(super) future: ControllerFuture,
    /// Cancelled if it is to leave again.
    pub(super) leave: CancellationToken,
    pub(super) seat: Seat,
}

/// A name that is taken; dropping it frees the name, and then tells who waits for that.
#[must_use]
pub(super) struct Seat {
    members: WeakMembers,
    pub(super) name: Arc<str>,
    /// Dropped last: the end of this channel is the end of the controller.
    stage: watch::Sender<Stage>,
}

// === impl Members ===

impl Members {
    /// Nobody yet, under this configuration.
    pub(super) fn new(configuration: ManagerConfiguration) -> Self {
        let configuration = Arc::new(configuration);
        let told = watch::Sender::new(Arc::clone(&configuration));
        let state = State { configuration, closed: false, seats: BTreeMap::new(), waiting: Vec::new() };
        let channels = Channels::new(&told.borrow().sections);
        let shared = Shared { state: Mutex::new(state), told, channels, arrived: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the configuration in force.
    pub(super) fn configuration(&self) -> Arc<ManagerConfiguration> {
        Arc::clone(&self.shared.state.lock().configuration)
    }

    /// Tells of the configuration in force, now and whenever it has become another.
    pub(super) fn configurations(&self) -> watch::Receiver<Arc<ManagerConfiguration>> {
        self.shared.told.subscribe()
    }

    /// The channel of a section of the program.
    pub(super) fn section<S: Section>(&self, name: &str) -> Result<watch::Receiver<Arc<S>>, SectionError> {
        self.shared.channels.subscribe(name)
    }

    /// Takes a name for a controller whose code sets this, and returns its seat and the settings that go down to the
    /// controller.
    pub(super) fn seat(
        &self,
        name: Arc<str>,
        code: InCode,
    ) -> Result<(Seat, watch::Receiver<ControllerSettings>), RegisterError> {
        loop {
            let configuration = self.configuration();
            let settings = settings(&configuration, &name, &code)?;
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(RegisterError::Stopped { name });
            }
            if state.seats.contains_key(&name) {
                return Err(RegisterError::DuplicateName { name });
            }
            if !Arc::ptr_eq(&configuration, &state.configuration) {
                // Another one is in force by now.
                continue;
            }
            let (sender, receiver) = watch::channel(settings);
            state.seats.insert(Arc::clone(&name), Holder { code, settings: sender });
            drop(state);
            let members = Arc::downgrade(&self.shared);
            return Ok((Seat { members, name, stage: watch::Sender::default() }, receiver));
        }
    }

    /// Puts another configuration in force, for all controllers or for none. Calls code of users, and not from several
    /// threads at once.
    ///
    /// # Errors
    /// Everything that makes no sense together with what the code of a controller sets, one line each.
    pub(super) fn reconfigure(&self, configuration: ManagerConfiguration) -> Result<(), Vec<String>> {
        let configuration = Arc::new(configuration);
        let mut worked_out: BTreeMap<Arc<str>, (Holder, ControllerSettings)> = BTreeMap::new();
        loop {
            let seats = self.shared.state.lock().seats.clone();
            let mut problems = Vec::new();
            for (name, holder) in seats {
                if worked_out.get(&name).is_some_and(|(known, _)| known.is(&holder)) {
                    continue;
                }
                match settings_caught(&configuration, &name, &holder.code) {
                    Ok(settings) => drop(worked_out.insert(name, (holder, settings))),
                    Err(refused) => problems.extend(refused),
                }
            }
            if !problems.is_empty() {
                return Err(problems);
            }
            if self.shared.put_in_force(&configuration, &worked_out) {
                let before = self.shared.told.send_replace(Arc::clone(&configuration));
                self.shared.channels.publish(&before.sections, &configuration.sections);
                return Ok(());
            }
        }
    }

    /// Returns what the code of each controller sets.
    pub(super) fn codes(&self) -> Vec<(Arc<str>, InCode)> {
        let state = self.shared.state.lock();
        state.seats.iter().map(|(name, holder)| (Arc::clone(name), holder.code.clone())).collect()
    }

    /// Has a member started: with the manager, or now if it runs.
    pub(super) fn submit(&self, member: Member) -> Result<(), RegisterError> {
        let name = member.name();
        let mut state = self.shared.state.lock();
        if state.closed {
            // The member is dropped after the lock, as it is an argument.
            return Err(RegisterError::Stopped { name });
        }
        state.waiting.push(member);
        drop(state);
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

// === impl Shared ===

impl Shared {
    /// Puts a configuration in force, unless somebody has taken a seat whose settings were not worked out.
    fn put_in_force(
        &self,
        configuration: &Arc<ManagerConfiguration>,
        worked_out: &BTreeMap<Arc<str>, (Holder, ControllerSettings)>,
    ) -> bool {
        let mut state = self.state.lock();
        let known = |(name, holder): (&Arc<str>, &Holder)| {
            worked_out.get(name).is_some_and(|(known, _)| known.is(holder))
        };
        if !state.seats.iter().all(known) {
            return false;
        }
        // These channels neither wait nor run anybody, as only controllers read them and none keeps what it has read, so
        // they may be sent on under the lock; nobody reads one half of the old and one of the new.
        for (holder, settings) in worked_out.values() {
            holder.settings.send_if_modified(|now| {
                let differs = now != settings;
                now.clone_from(settings);
                differs
            });
        }
        state.configuration = Arc::clone(configuration);
        true
    }
}

// === impl Holder ===

impl Holder {
    /// Whether both are of one seat: a name may have changed hands.
    fn is(&self, other: &Self) -> bool {
        self.settings.same_channel(&other.settings)
    }
}

// === impl Member ===

impl Member {
    pub(super) fn name(&self) -> Arc<str> {
        match self {
            Self::Controller(newcomer) => Arc::clone(&newcomer.seat.name),
            Self::Runnable(recruit) => Arc::clone(&recruit.name),
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
        let holder = members.state.lock().seats.remove(&self.name);
        drop(holder);
    }
}

/// What a controller works by under a configuration. Calls code of users.
fn settings(
    configuration: &ManagerConfiguration,
    name: &Arc<str>,
    code: &InCode,
) -> Result<ControllerSettings, RegisterError> {
    let settings = configuration.controllers.settings(name, |below| code.apply(below));
    let problems = settings.problems();
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(RegisterError::Settings { name: Arc::clone(name), problems })
    }
}

/// As [`settings`], with everything that is wrong as lines, and a panic of the code as one of them.
fn settings_caught(
    configuration: &ManagerConfiguration,
    name: &Arc<str>,
    code: &InCode,
) -> Result<ControllerSettings, Vec<String>> {
    match catch_unwind(AssertUnwindSafe(|| settings(configuration, name, code))) {
        Ok(Ok(settings)) => Ok(settings),
        Ok(Err(refused)) => Err(refused.to_string().lines().map(str::to_owned).collect()),
        Err(panic) => {
            let text = panic_text(&*panic).lines().collect::<Vec<_>>().join(" ");
            Err(vec![format!("controller {name:?}: what its code sets panicked under this file: {text}")])
        }
    }
}
