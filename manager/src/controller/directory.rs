//! The controllers that run, each seen without its type of key.
//!
//! The manager hands one directory down; a controller enters it when its life begins and leaves it when that ends.
//! Whoever shows controllers to people, and lets people step in, reads it from above.
//!
//! # Locks
//! One, over the list alone: a controller is taken out of the list before it is looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ControllerSettings;
use crate::key::Key;
use crate::queue::{Counts, KeySnapshot, State};

/// The running controllers of one manager by name. Cheap to clone; all clones are one directory.
#[derive(Clone, Default)]
pub struct Directory {
    entries: Arc<Mutex<BTreeMap<&'static str, Arc<dyn ControllerView>>>>,
}

/// One running controller, whatever its queue is keyed by.
pub trait ControllerView: Send + Sync + 'static {
    /// Returns how it is doing.
    fn status(&self) -> ControllerStatus;

    /// Tells `visitor` of every wanted key in its queue, in no order.
    fn visit(&self, wanted: &Wanted, visitor: &mut dyn FnMut(KeySnapshot<KeyText>));

    /// Does what a person asks for, and returns how many keys of the queue that concerns now.
    ///
    /// # Errors
    /// If that cannot be done, and nothing is.
    fn intervene(&self, what: Intervention, target: &Target) -> Result<usize, InterventionError>;
}

/// What a person may do to a controller. All of it is in memory, on this replica alone, and over with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intervention {
    /// Run a key now, also out of a backoff, whether its object has changed or not. The target has a name.
    Reconcile,
    /// Forget how often keys have failed, and run those now that have.
    Forget,
    /// Begin no run of these keys, or none at all. What runs ends in peace; deletions wait as well.
    Pause,
    /// End a pause: this one, or all of the controller's.
    Resume,
}

/// Whom an intervention is for; the default is all of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Only keys of this namespace; the empty string means keys without one.
    pub namespace: Option<String>,
    /// Only keys of this name.
    pub name: Option<String>,
}

/// An intervention that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterventionError {
    /// It is for one object, which was not named.
    #[error("a reconcile is of one object; give its name")]
    NoName,
    /// The objects live in namespaces, and none was given, or the other way round.
    #[error("{kind} {}", if *.namespaced { "lives in a namespace; give that too" } else { "lives in no namespace; give none" })]
    Namespace {
        /// As kubectl takes it.
        kind: String,
        /// Whether they do.
        namespaced: bool,
    },
    /// There is no such pause.
    #[error("that is not paused by hand; there are {}", Pauses(.pauses))]
    NotPaused {
        /// Those there are.
        pauses: Vec<Target>,
    },
    /// A key, or the keys of a namespace, and none of these is on the queue and has failed.
    #[error("no such key is on the queue and has failed")]
    NothingToForget,
    /// As many pauses as are kept.
    #[error("{limit} pauses are kept at most; resume some, or pause a namespace or the controller")]
    TooMany {
        /// How many that is.
        limit: usize,
    },
}

/// Pauses in a sentence.
struct Pauses<'a>(&'a [Target]);

/// How a controller is doing.
#[derive(Clone, Debug)]
pub struct ControllerStatus {
    /// Its name.
    pub name: &'static str,
    /// Whether it works only on the replica that leads.
    pub needs_lease: bool,
    /// Whether its term is open: this replica leads, or it needs no Lease.
    pub leading: bool,
    /// Whether every source has handled its initial list; no reconcile runs before.
    pub synced: bool,
    /// The settings in force.
    pub settings: ControllerSettings,
    /// What its queue holds.
    pub counts: Counts,
    /// What a person has paused of it.
    pub pauses: Vec<Target>,
}

/// A key as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyText {
    /// As the key displays itself.
    pub text: String,
    /// See [`Key::namespace`].
    pub namespace: Option<String>,
    /// See [`Key::name`].
    pub name: String,
}

/// Which keys to list; the default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Only keys in one of these states; empty means any.
    pub states: Vec<State>,
    /// Only keys of this namespace; the empty string means keys without one.
    pub namespace: Option<String>,
    /// Only keys of this name.
    pub name: Option<String>,
}

/// An entry; dropping it takes the controller out of the directory.
#[must_use]
pub(super) struct Listed {
    directory: Directory,
    name: &'static str,
}

// === impl Directory ===

impl Directory {
    /// Returns the controllers that run now, by name.
    pub fn all(&self) -> Vec<Arc<dyn ControllerView>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Returns the names of the controllers that run now, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.entries.lock().keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// Returns the controller of this name if it runs now.
    pub fn find(&self, name: &str) -> Option<Arc<dyn ControllerView>> {
        self.entries.lock().get(name).cloned()
    }

    /// Lists a controller. Names are unique among the controllers of a manager.
    pub(super) fn enter(&self, name: &'static str, controller: Arc<dyn ControllerView>) -> Listed {
        self.entries.lock().insert(name, controller);
        Listed { directory: self.clone(), name }
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.entries.lock().keys()).finish()
    }
}

// === impl KeyText ===

impl KeyText {
    pub(super) fn of(key: &impl Key) -> Self {
        Self {
            text: key.to_string(),
            namespace: key.namespace().map(ToOwned::to_owned),
            name: key.name().to_owned(),
        }
    }
}

// === impl Target ===

impl Target {
    pub(super) fn is_all(&self) -> bool {
        self.namespace.is_none() && self.name.is_none()
    }

    pub(super) fn admits(&self, key: &impl Key) -> bool {
        let namespace = key.namespace().unwrap_or_default();
        self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.name.as_deref().is_none_or(|wanted| wanted == key.name())
    }
}

// === impl Pauses ===

impl fmt::Display for Pauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "*".to_owned());
        let pauses: Vec<_> =
            self.0.iter().map(|pause| format!("{}/{}", part(&pause.namespace), part(&pause.name))).collect();
        f.write_str(if pauses.is_empty() { "none" } else { "pauses of " })?;
        f.write_str(&pauses.join(", "))
    }
}

// === impl Wanted ===

impl Wanted {
    pub(super) fn admits<Q: Key>(&self, snapshot: &KeySnapshot<Q>) -> bool {
        let (namespace, name) = (snapshot.key.namespace().unwrap_or_default(), snapshot.key.name());
        (self.states.is_empty() || self.states.contains(&snapshot.state))
            && self.namespace.as_deref().is_none_or(|wanted| wanted == namespace)
            && self.name.as_deref().is_none_or(|wanted| wanted == name)
    }
}

// === impl Listed ===

impl Drop for Listed {
    fn drop(&mut self) {
        let gone = self.directory.entries.lock().remove(self.name);
        // A queue of many keys is freed here, outside the lock.
        drop(gone);
    }
}
