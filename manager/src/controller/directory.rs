//! The running controllers, without their types of key.
//!
//! All controllers of a manager share one directory: a controller enters it when it starts and leaves it when
//! it ends. The debug pages read it, and enqueue keys through it.
//!
//! # Locks
//! One, over the list alone: it is released before a controller is called.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ControllerSettings;
use crate::key::{Key, KindId};
use crate::queue::{Counts, KeySnapshot, State};

/// The directory of a manager's running controllers, by name. Cheap to clone; all clones are one directory.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Directory {:?}", self.names().collect::<Vec<_>>())]
pub struct Directory {
    entries: Arc<Mutex<Entries>>,
}

type Entries = BTreeMap<Arc<str>, Arc<dyn ControllerView>>;

/// A view of one running controller that hides the type of its keys.
pub trait ControllerView: Send + Sync + 'static {
    /// Returns a snapshot of the controller's state.
    fn status(&self) -> ControllerStatus;

    /// Calls `visitor` with a snapshot of every key in the controller's queue that the filter `wanted`
    /// admits, in no order.
    fn visit(&self, wanted: &Wanted, visitor: &mut dyn FnMut(KeySnapshot<KeyText>));

    /// Enqueues all keys of one object at once, whether they wait, are parked or are not on the queue.
    /// Returns the number of keys.
    ///
    /// # Errors
    /// Fails if the name is empty, the controller is disabled, or the object cannot be in that namespace. No
    /// key is enqueued.
    fn reconcile(&self, namespace: Option<&str>, name: &str) -> Result<usize, ReconcileRefused>;
}

/// The reason why a requested reconcile was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileRefused {
    /// The name of the object to reconcile is empty.
    #[error("the name is missing; a reconcile is of one object")]
    NoName,
    /// The kind of the object is namespaced and no namespace was given, or the other way round.
    #[error(
        "{kind} is {}",
        if kind.is_namespaced() { "namespaced; give its namespace" } else { "cluster-scoped; give none" }
    )]
    Namespace {
        /// The kind of the objects that the controller reconciles.
        kind: KindId,
    },
    /// The configuration or the controller's code disables the controller.
    #[error(
        "the controller is disabled by `enabled: false` in `controllers`, under its name or \"*\", or by code"
    )]
    Disabled,
}

/// A snapshot of a running controller: its settings, whether its term is open, and the number of its keys in
/// each state.
#[derive(Clone, Debug)]
pub struct ControllerStatus {
    /// The name of the controller.
    pub name: Arc<str>,
    /// Whether the controller reconciles only on the replica that leads.
    pub needs_lease: bool,
    /// Whether the controller's term is open: this replica leads, or the controller needs no Lease.
    pub leading: bool,
    /// Whether every source of the controller has handled its initial list; no reconcile runs before.
    pub synced: bool,
    /// The settings of the controller that are in force.
    pub settings: ControllerSettings,
    /// The number of keys in the controller's queue, by state.
    pub counts: Counts,
}

/// A key of any type as text, with the namespace and name of its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyText {
    /// The text of the whole key, as the key displays itself.
    pub text: String,
    /// Namespace of the key's object, from [`Key::namespace`]; `None` if it has none.
    pub namespace: Option<String>,
    /// Name of the key's object, from [`Key::name`].
    pub name: String,
}

/// A filter for the keys of a queue; the default admits all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Admits only keys in one of these states; empty admits any state.
    pub states: Vec<State>,
    /// Admits only keys of this namespace, or keys without one for the empty string; `None` admits any.
    pub namespace: Option<String>,
    /// Admits only keys of this name; `None` admits any.
    pub name: Option<String>,
}

/// The entry of a running controller in the directory; dropping this value removes the entry.
#[must_use]
pub(super) struct Listed {
    directory: Directory,
    name: Arc<str>,
}

// === impl Directory ===

impl Directory {
    /// Returns the running controllers in the order of their names.
    pub fn all(&self) -> Vec<Arc<dyn ControllerView>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Returns the names of the running controllers, in order.
    pub fn names(&self) -> impl Iterator<Item = Arc<str>> + use<> {
        self.entries.lock().keys().cloned().collect::<Vec<_>>().into_iter()
    }

    /// Returns the running controller of this name; `None` if there is none.
    pub fn find(&self, name: &str) -> Option<Arc<dyn ControllerView>> {
        self.entries.lock().get(name).cloned()
    }

    /// Adds a running controller to the directory, until the returned value is dropped. Names are unique
    /// within a manager.
    pub(super) fn enter(&self, name: Arc<str>, controller: Arc<dyn ControllerView>) -> Listed {
        self.entries.lock().insert(Arc::clone(&name), controller);
        Listed { directory: self.clone(), name }
    }
}

// === impl KeyText ===

impl KeyText {
    pub(super) fn of(key: &impl Key) -> Self {
        let namespace = key.namespace().map(ToOwned::to_owned);
        Self { text: key.to_string(), namespace, name: key.name().to_owned() }
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
