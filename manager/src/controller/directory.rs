//! The controllers that run, each seen without its type of key.
//!
//! The manager hands one directory down; a controller enters it when its life begins and leaves it when that ends.
//! The debug pages read it, and enqueue a key through it.
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
    entries: Arc<Mutex<BTreeMap<Arc<str>, Arc<dyn ControllerView>>>>,
}

/// One running controller, whatever its queue is keyed by.
pub trait ControllerView: Send + Sync + 'static {
    /// Returns how it is doing.
    fn status(&self) -> ControllerStatus;

    /// Tells `visitor` of every wanted key in its queue, in no order.
    fn visit(&self, wanted: &Wanted, visitor: &mut dyn FnMut(KeySnapshot<KeyText>));

    /// Enqueues one object at once, whether it waits, is parked or is not on the queue. Returns how many keys those
    /// were.
    ///
    /// # Errors
    /// If the name is empty, or the object cannot be in that namespace; the queue stays as it was.
    fn reconcile(&self, namespace: Option<&str>, name: &str) -> Result<usize, ReconcileRefused>;
}

/// A reconcile of one object was requested and names no possible object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileRefused {
    /// The name is empty.
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
    /// The configuration or the controller's code disables it.
    #[error(
        "the controller is disabled by `enabled: false` in `controllers`, under its name or \"*\", or by its code"
    )]
    Disabled,
}

/// How a controller is doing.
#[derive(Clone, Debug)]
pub struct ControllerStatus {
    /// Its name.
    pub name: Arc<str>,
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
    name: Arc<str>,
}

// === impl Directory ===

impl Directory {
    /// Returns the controllers that run now, by name.
    pub fn all(&self) -> Vec<Arc<dyn ControllerView>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Returns the names of the controllers that run now, in order.
    pub fn names(&self) -> impl Iterator<Item = Arc<str>> + use<> {
        self.entries.lock().keys().cloned().collect::<Vec<_>>().into_iter()
    }

    /// Returns the controller of this name if it runs now.
    pub fn find(&self, name: &str) -> Option<Arc<dyn ControllerView>> {
        self.entries.lock().get(name).cloned()
    }

    /// Lists a controller. Names are unique among the controllers of a manager.
    pub(super) fn enter(&self, name: Arc<str>, controller: Arc<dyn ControllerView>) -> Listed {
        self.entries.lock().insert(Arc::clone(&name), controller);
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
        let gone = self.directory.entries.lock().remove(&self.name);
        // A queue of many keys is freed here, outside the lock.
        drop(gone);
    }
}
