//! What reaches a controller from outside while it lives: keys and sources given by hand, and looks at how it does.
//!
//! The life of the controller owns the post; whoever else has one has it weakly, so that nothing of a controller that has
//! ended is kept by those who once asked for it.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::directory::{
    ControllerStatus, ControllerView, Intervention, InterventionError, KeyText, Target, Wanted,
};
use super::held::{BY_HAND, Held};
use super::{ControllerSettings, Term};
use crate::key::{Key, KindId};
use crate::queue::{Add, KeySnapshot, WorkQueue};
use crate::watch::{Sink, Source, SourceMetrics, SourcesSynced};

/// One controller as others reach it.
pub(crate) struct Post<Q: Key> {
    pub(super) name: &'static str,
    pub(super) needs_lease: bool,
    pub(super) queue: WorkQueue<Q>,
    pub(super) settings: watch::Receiver<ControllerSettings>,
    /// Whether its term is open.
    pub(super) open: watch::Receiver<bool>,
    pub(super) synced: SourcesSynced,
    /// What a person has paused.
    pub(super) held: Arc<Held>,
    /// The kind whose objects the queue is keyed by.
    primary: Option<KindId>,
    metrics: SourceMetrics,
    /// To the life, which runs them. Unbounded: it holds what a program wires, each source once.
    feeds: mpsc::UnboundedSender<Feed<Q>>,
}

/// A source on its way to be run. On the account of those to be waited for from the moment it is made.
pub(super) struct Feed<Q: Key> {
    pub(super) source: Box<dyn Source<Q>>,
    pub(super) sink: Sink<Q>,
}

// === impl Post ===

impl<Q: Key> Post<Q> {
    /// Makes the post, and the end from which the life takes sources.
    pub(super) fn new(
        name: &'static str,
        needs_lease: bool,
        primary: Option<KindId>,
        queue: WorkQueue<Q>,
        settings: watch::Receiver<ControllerSettings>,
        term: &Term,
        metrics: &SourceMetrics,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Feed<Q>>) {
        let (feeds, added) = mpsc::unbounded_channel();
        let (open, synced) = (term.subscribe(), SourcesSynced::default());
        let (metrics, held) = (metrics.clone(), Arc::default());
        let post = Self { name, needs_lease, queue, settings, open, synced, held, primary, metrics, feeds };
        (Arc::new(post), added)
    }

    /// Asks for a look at a key, as a person would.
    pub(crate) fn trigger(&self, key: Q) {
        self.queue.add(key, Add::by_hand());
    }

    /// Has one more source run; returns false if the life takes no more.
    pub(crate) fn add_source(&self, source: Box<dyn Source<Q>>) -> bool {
        let sink = Sink::join(&self.queue, &self.synced, source.name(), &self.metrics);
        self.feeds.send(Feed { source, sink }).is_ok()
    }

    /// Asks for a look at one object, queued or not. Returns how many keys that was.
    fn reconcile(&self, target: &Target) -> Result<usize, InterventionError> {
        let name = target.name.as_deref().filter(|name| !name.is_empty()).ok_or(InterventionError::NoName)?;
        let namespace = target.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let misplaced = self.primary.as_ref().filter(|kind| kind.is_namespaced() != namespace.is_some());
        if let Some(kind) = misplaced {
            let (kind, namespaced) = (kind.to_string(), kind.is_namespaced());
            return Err(InterventionError::Namespace { kind, namespaced });
        }
        match Q::named(namespace, name) {
            Some(key) => {
                self.trigger(key);
                Ok(1)
            }
            // Such a key cannot be made here, so it has to be there already.
            None => Ok(self.add_each(&Add::by_hand(), |snapshot| target.admits(&snapshot.key))),
        }
    }

    /// Adds every key of the queue that is `wanted`, and returns how many those were.
    fn add_each(&self, add: &Add, wanted: impl Fn(&KeySnapshot<Q>) -> bool) -> usize {
        let mut count = 0;
        self.queue.visit(|snapshot| {
            if wanted(&snapshot) {
                count += 1;
                self.queue.add(snapshot.key, add.clone());
            }
        });
        count
    }
}

impl<Q: Key> ControllerView for Post<Q> {
    fn status(&self) -> ControllerStatus {
        ControllerStatus {
            name: self.name,
            needs_lease: self.needs_lease,
            leading: *self.open.borrow(),
            synced: self.synced.is_synced(),
            settings: self.settings.borrow().clone(),
            counts: self.queue.counts(),
            pauses: self.held.all(),
        }
    }

    fn visit(&self, wanted: &Wanted, visitor: &mut dyn FnMut(KeySnapshot<KeyText>)) {
        self.queue.visit(|snapshot| {
            if wanted.admits(&snapshot) {
                visitor(snapshot.map_key(|key| KeyText::of(&key)));
            }
        });
    }

    fn intervene(&self, what: Intervention, target: &Target) -> Result<usize, InterventionError> {
        match what {
            Intervention::Reconcile => self.reconcile(target),
            Intervention::Forget => {
                // As a new generation of its object would: what failed until now says nothing any more.
                let add = Add::by_hand().with_new_generation();
                let failed =
                    |snapshot: &KeySnapshot<Q>| snapshot.attempts > 0 && target.admits(&snapshot.key);
                let count = self.add_each(&add, failed);
                if count == 0 && !target.is_all() {
                    return Err(InterventionError::NothingToForget);
                }
                Ok(count)
            }
            Intervention::Pause => {
                self.held.pause(target)?;
                let mut count = 0;
                self.queue.visit(|snapshot| count += usize::from(target.admits(&snapshot.key)));
                Ok(count)
            }
            Intervention::Resume => {
                if !self.held.resume(target) && !target.is_all() {
                    return Err(InterventionError::NotPaused { pauses: self.held.all() });
                }
                let parked = |snapshot: &KeySnapshot<Q>| snapshot.reason == Some(BY_HAND);
                let resumed = |snapshot: &KeySnapshot<Q>| parked(snapshot) && !self.held.holds(&snapshot.key);
                Ok(self.add_each(&Add::by_hand(), resumed))
            }
        }
    }
}
