//! The members of a manager, controllers and runnables: taken names, settings in force, and members that have
//! not started.
//!
//! # Invariants
//! 1. A name is taken while its [`NameGuard`] exists, and the controller drops the guard last. So a
//!    controller has ended completely when its name is free.
//! 2. No user code is called or dropped under the lock: settings are computed before.
//! 3. Every controller has settings of the configuration in force. Both change together under the lock, and a
//!    controller with settings of an earlier configuration is not registered.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::RegisterError;
use super::runnable::PendingRunnable;
use crate::config::{Channels, ManagerConfiguration, Section, SectionError};
use crate::controller::{ControllerFuture, ControllerSettings, InCode, Stage};
use crate::key::panic_text;

/// The members of one manager: its controllers and the runnables that have not started, with the
/// configuration in force. Cheap to clone; all clones are one list.
#[derive(Clone)]
pub(super) struct Members {
    shared: Arc<Shared>,
}

/// A weak reference to the members of a manager, which does not keep them alive.
pub(super) type WeakMembers = Weak<Shared>;

pub(super) struct Shared {
    state: Mutex<State>,
    /// Publishes the configuration in force, outside the lock: a reader that holds a `watch::Ref` blocks the
    /// sender, and may register a controller meanwhile.
    published: watch::Sender<Arc<ManagerConfiguration>>,
    /// Publish the values of the program's configuration sections, also outside the lock.
    channels: Channels,
    /// Has a permit while there is a member that has not started.
    arrived: Notify,
}

struct State {
    /// The configuration of the manager that is in force.
    configuration: Arc<ManagerConfiguration>,
    /// Whether the manager has begun to stop, so that new controllers and runnables are refused.
    closed: bool,
    /// The registered controllers of the manager, by name.
    controllers: BTreeMap<Arc<str>, Registered>,
    /// The members of the manager that have not started, in the order of registration.
    waiting: Vec<Member>,
}

/// A registered controller as the list of members keeps it.
#[derive(Clone)]
struct Registered {
    /// The changes that the controller's code makes to its settings, applied to each new configuration.
    code: InCode,
    /// Publishes the settings to the controller. Each controller has a channel of its own.
    settings: watch::Sender<ControllerSettings>,
}

/// A controller or a runnable of the manager that has not started.
pub(super) enum Member {
    Controller(Box<PendingController>),
    Runnable(PendingRunnable),
}

/// A registered controller that has not started.
pub(super) struct PendingController {
    pub(super) needs_lease: bool,
    pub(super) future: ControllerFuture,
    /// Cancelled if the controller is removed before it starts.
    pub(super) leave: CancellationToken,
    pub(super) name_guard: NameGuard,
}

/// A taken name of a controller. Dropping the guard frees the name, and then closes the channel of the
/// controller's stage.
#[must_use]
pub(super) struct NameGuard {
    members: WeakMembers,
    pub(super) name: Arc<str>,
    /// Publishes the progress of the controller. The last field, so that it is dropped last: receivers take
    /// the close of this channel for the end of the controller.
    pub(super) stage: watch::Sender<Stage>,
}

// === impl Members ===

impl Members {
    /// Makes an empty list of members with this configuration in force.
    pub(super) fn new(configuration: ManagerConfiguration) -> Self {
        let configuration = Arc::new(configuration);
        let published = watch::Sender::new(Arc::clone(&configuration));
        let state = State { configuration, closed: false, controllers: BTreeMap::new(), waiting: Vec::new() };
        let channels = Channels::new(&published.borrow().sections);
        let shared = Shared { state: Mutex::new(state), published, channels, arrived: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the configuration of the manager that is in force.
    pub(super) fn configuration(&self) -> Arc<ManagerConfiguration> {
        Arc::clone(&self.shared.state.lock().configuration)
    }

    /// Returns a channel that publishes each configuration that is put in force.
    pub(super) fn configurations(&self) -> watch::Receiver<Arc<ManagerConfiguration>> {
        self.shared.published.subscribe()
    }

    /// Returns the channel that publishes the values of a section of the program's configuration.
    pub(super) fn section<S: Section>(&self, name: &str) -> Result<watch::Receiver<Arc<S>>, SectionError> {
        self.shared.channels.subscribe(name)
    }

    /// Takes a name for a controller; `code` has the changes that its code makes to its settings. Returns the
    /// guard of the name and the channel that publishes the settings.
    pub(super) fn name_guard(
        &self,
        name: Arc<str>,
        code: InCode,
    ) -> Result<(NameGuard, watch::Receiver<ControllerSettings>), RegisterError> {
        loop {
            let configuration = self.configuration();
            let settings = settings(&configuration, &name, &code)?;
            let mut state = self.shared.state.lock();
            if state.closed {
                return Err(RegisterError::Stopped { name });
            }
            if state.controllers.contains_key(&name) {
                return Err(RegisterError::DuplicateName { part: "controller", name });
            }
            if !Arc::ptr_eq(&configuration, &state.configuration) {
                // Another configuration was put in force meanwhile.
                continue;
            }
            let (sender, receiver) = watch::channel(settings);
            state.controllers.insert(Arc::clone(&name), Registered { code, settings: sender });
            drop(state);
            let members = Arc::downgrade(&self.shared);
            return Ok((NameGuard { members, name, stage: watch::Sender::default() }, receiver));
        }
    }

    /// Puts another configuration in force, for all controllers or for none. Calls user code, one call at a
    /// time.
    ///
    /// # Errors
    /// The settings of controllers that are out of bounds, one line each.
    pub(super) fn reconfigure(&self, configuration: ManagerConfiguration) -> Result<(), Vec<String>> {
        let configuration = Arc::new(configuration);
        let mut computed: BTreeMap<Arc<str>, (Registered, ControllerSettings)> = BTreeMap::new();
        loop {
            let controllers = self.shared.state.lock().controllers.clone();
            let mut problems = Vec::new();
            for (name, holder) in controllers {
                if computed.get(&name).is_some_and(|(known, _)| known.is(&holder)) {
                    continue;
                }
                match settings_caught(&configuration, &name, &holder.code) {
                    Ok(settings) => drop(computed.insert(name, (holder, settings))),
                    Err(refused) => problems.extend(refused),
                }
            }
            if !problems.is_empty() {
                return Err(problems);
            }
            if self.shared.put_in_force(&configuration, &computed) {
                let before = self.shared.published.send_replace(Arc::clone(&configuration));
                self.shared.channels.publish(&before.sections, &configuration.sections);
                return Ok(());
            }
        }
    }

    /// Returns the name of each registered controller with the changes that its code makes to its settings.
    pub(super) fn codes(&self) -> Vec<(Arc<str>, InCode)> {
        let state = self.shared.state.lock();
        state.controllers.iter().map(|(name, holder)| (Arc::clone(name), holder.code.clone())).collect()
    }

    /// Adds a controller or runnable, which starts with the manager, or now if the manager runs.
    pub(super) fn submit(&self, member: Member) -> Result<(), RegisterError> {
        let name = member.name();
        let mut state = self.shared.state.lock();
        if state.closed {
            // The member is an argument, so it is dropped after the lock.
            return Err(RegisterError::Stopped { name });
        }
        state.waiting.push(member);
        drop(state);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// Takes the controllers and runnables that have not started, so that they can be started.
    pub(super) fn take(&self) -> Vec<Member> {
        std::mem::take(&mut self.shared.state.lock().waiting)
    }

    /// Waits until there are controllers or runnables that have not started, and takes them.
    ///
    /// # Cancel safety
    /// No member is lost: they are taken in the poll that returns them.
    pub(super) async fn arrivals(&self) -> Vec<Member> {
        self.shared.arrived.notified().await;
        self.take()
    }

    /// Refuses new controllers and runnables from now on, and drops those that have not started.
    pub(super) fn close(&self) {
        self.shared.state.lock().closed = true;
        drop(self.take());
    }

    pub(super) fn downgrade(&self) -> WeakMembers {
        Arc::downgrade(&self.shared)
    }
}

/// Drops the controllers that were removed before they started.
pub(super) fn drop_removed(members: &WeakMembers) {
    let Some(members) = members.upgrade() else { return };
    let removed: Vec<Member> = {
        let mut state = members.state.lock();
        let is_removed =
            |member: &mut Member| matches!(member, Member::Controller(it) if it.leave.is_cancelled());
        state.waiting.extract_if(.., is_removed).collect()
    };
    drop(removed);
}

// === impl Shared ===

impl Shared {
    /// Puts a configuration in force and publishes the computed settings to the controllers. Does not, and
    /// returns `false`, if a controller was registered for which no settings were computed.
    fn put_in_force(
        &self,
        configuration: &Arc<ManagerConfiguration>,
        computed: &BTreeMap<Arc<str>, (Registered, ControllerSettings)>,
    ) -> bool {
        let mut state = self.state.lock();
        let known = |(name, holder): (&Arc<str>, &Registered)| {
            computed.get(name).is_some_and(|(known, _)| known.is(holder))
        };
        if !state.controllers.iter().all(known) {
            return false;
        }
        // Sent under the lock, so that no controller reads settings of another configuration. The sends do
        // not block, because only controllers read these channels and none holds a `watch::Ref`.
        for (holder, settings) in computed.values() {
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

// === impl Registered ===

impl Registered {
    /// Returns whether both values are the same registration of a controller; another controller may have
    /// taken its name.
    fn is(&self, other: &Self) -> bool {
        self.settings.same_channel(&other.settings)
    }
}

// === impl Member ===

impl Member {
    pub(super) fn name(&self) -> Arc<str> {
        match self {
            Self::Controller(pending) => Arc::clone(&pending.name_guard.name),
            Self::Runnable(pending) => Arc::clone(&pending.name),
        }
    }
}

// === impl NameGuard ===

impl Drop for NameGuard {
    fn drop(&mut self) {
        let Some(members) = self.members.upgrade() else { return };
        let holder = members.state.lock().controllers.remove(&self.name);
        drop(holder);
    }
}

/// Computes the settings of a controller under a configuration. Calls user code.
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

/// Computes the settings of a controller as [`settings`] does, with the problems as lines, and a panic of the
/// controller's code as one of them.
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
            Err(vec![format!(
                "controller {name:?}: its code panicked while it changed the settings of this file: {text}"
            )])
        }
    }
}
