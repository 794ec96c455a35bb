//! The access to a running controller from outside: its status, and keys and sources that are added by hand.
//!
//! The future of the controller owns the port, and all others hold it weakly, so that the port does not
//! outlive the controller.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::ControllerSettings;
use super::directory::{ControllerStatus, ControllerView, KeyText, ReconcileRefused, Wanted};
use crate::key::{Key, KindId};
use crate::queue::{Add, KeySnapshot, WorkQueue};
use crate::watch::{Sink, Source, SourcePanics, SourcesSynced};

/// Access to one running controller and its queue, for the manager, its handle and the debug pages.
pub(crate) struct ControllerPort<Q: Key> {
    pub(super) name: Arc<str>,
    pub(super) needs_lease: bool,
    pub(super) queue: WorkQueue<Q>,
    pub(super) settings: watch::Receiver<ControllerSettings>,
    /// Publishes whether the controller's term is open, so that workers may run.
    pub(super) open: watch::Receiver<bool>,
    pub(super) synced: SourcesSynced,
    /// The kind of the objects that the controller's keys name; `None` without a primary kind.
    pub(super) primary: Option<KindId>,
    pub(super) panics: SourcePanics,
    /// Sends added sources to the future of the controller, which runs them. Unbounded: a program adds each
    /// source once.
    pub(super) feeds: mpsc::UnboundedSender<Feed<Q>>,
}

/// A source of a controller that has not been started. The source counts as not synced from the moment it is
/// made.
pub(super) struct Feed<Q: Key> {
    pub(super) source: Box<dyn Source<Q>>,
    pub(super) sink: Sink<Q>,
}

// === impl ControllerPort ===

impl<Q: Key> ControllerPort<Q> {
    /// Enqueues a key as a reconcile that a user requested.
    pub(crate) fn trigger(&self, key: Q) {
        self.queue.add(key, Add::by_hand());
    }

    /// Adds a source to the running controller; returns false if the controller has ended.
    pub(crate) fn add_source(&self, source: Box<dyn Source<Q>>) -> bool {
        let sink = Sink::join(&self.queue, &self.synced, source.name(), &self.panics);
        self.feeds.send(Feed { source, sink }).is_ok()
    }
}

impl<Q: Key> ControllerView for ControllerPort<Q> {
    fn status(&self) -> ControllerStatus {
        ControllerStatus {
            name: Arc::clone(&self.name),
            needs_lease: self.needs_lease,
            leading: *self.open.borrow(),
            synced: self.synced.is_synced(),
            settings: self.settings.borrow().clone(),
            counts: self.queue.counts(),
        }
    }

    fn visit(&self, wanted: &Wanted, visitor: &mut dyn FnMut(KeySnapshot<KeyText>)) {
        self.queue.visit(|snapshot| {
            if wanted.admits(&snapshot) {
                visitor(snapshot.map_key(|key| KeyText::of(&key)));
            }
        });
    }

    fn reconcile(&self, namespace: Option<&str>, name: &str) -> Result<usize, ReconcileRefused> {
        if name.is_empty() {
            return Err(ReconcileRefused::NoName);
        }
        if !self.settings.borrow().enabled {
            return Err(ReconcileRefused::Disabled);
        }
        let in_namespace = namespace.filter(|namespace| !namespace.is_empty());
        let misplaced = self.primary.as_ref().filter(|kind| kind.is_namespaced() != in_namespace.is_some());
        if let Some(kind) = misplaced.cloned() {
            return Err(ReconcileRefused::Namespace { kind });
        }
        if let Some(key) = Q::named(in_namespace, name) {
            self.trigger(key);
            return Ok(1);
        }
        // Such a key cannot be made from namespace and name, so only keys on the queue can match.
        let mut count = 0;
        self.queue.visit(|KeySnapshot { key, .. }| {
            let fits = namespace.is_none_or(|namespace| namespace == key.namespace().unwrap_or_default());
            if fits && key.name() == name {
                count += 1;
                self.trigger(key);
            }
        });
        Ok(count)
    }
}
