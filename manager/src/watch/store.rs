//! The source that most controllers live on: the deltas of one kind in the cache.
//!
//! # Invariants
//! 1. A key the queue refused for being full is owed: the store is swept again once the queue has drained, so
//!    memory stays bounded and nothing is lost.
//! 2. What says nothing new never ends a backoff: a resync, our own write, and of the controller's own primary also a
//!    change of nothing but status. Everything else counts in full.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Enqueue, EventHandler, Predicate, Sink, Source, SourceError};
use crate::cache::{Delta, DeltaHandler, KindStore, ReadError, Select, View};
use crate::key::{Cause, Key, ObjectKey, Subject, Trigger};
use crate::queue::{Add, Added, Band, Strength};

/// Turns the deltas of one store into keys: predicates, then handler, then queue.
pub struct StoreSource<Q: Key> {
    store: Arc<KindStore>,
    feed: Feed<Q>,
}

struct Feed<Q: Key> {
    handler: Box<dyn EventHandler<Q>>,
    predicates: Vec<Box<dyn Predicate>>,
    /// Whether the store holds the very objects the queue is keyed by.
    primary: bool,
    /// What most causes are about, once for all of them.
    namesake: Arc<Subject>,
}

/// What the reflector's task and the source's task share.
struct Shared<Q: Key> {
    feed: Feed<Q>,
    sink: Sink<Q>,
    /// Permit = a sweep is owed.
    owed: Notify,
}

// === impl StoreSource ===

impl<Q: Key> StoreSource<Q> {
    /// Watches `store` and asks `handler` which keys each delta concerns.
    pub fn new(store: Arc<KindStore>, handler: impl EventHandler<Q>) -> Self {
        let namesake = Arc::new(Subject::Namesake(store.kind().clone()));
        Self {
            store,
            feed: Feed { handler: Box::new(handler), predicates: Vec::new(), primary: false, namesake },
        }
    }

    /// Says that the queue is keyed by the objects of this store: a change of nothing but their status is then weak,
    /// and a new generation forgets earlier failures.
    #[must_use]
    pub fn primary(mut self) -> Self {
        self.feed.primary = true;
        self
    }

    /// Lets only those deltas through that `predicate` and all earlier ones admit.
    #[must_use]
    pub fn filtered(mut self, predicate: impl Predicate) -> Self {
        self.feed.predicates.push(Box::new(predicate));
        self
    }
}

impl<Q: Key> Source<Q> for StoreSource<Q> {
    fn run(
        self: Box<Self>,
        sink: Sink<Q>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        let Self { store, feed } = *self;
        let shared = Arc::new(Shared { feed, sink, owed: Notify::new() });
        Box::pin(async move {
            let mut subscription = store.subscribe(Box::new(Arc::clone(&shared)));
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = subscription.synced() => shared.sink.synced(),
            }
            loop {
                // Biased: nothing is owed to a controller that is ending.
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    () = shared.owed.notified() => {}
                }
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    () = shared.sink.queue().drained() => {}
                }
                shared.sweep(&store).map_err(|source| SourceError {
                    name: format!("store {}", store.kind()),
                    source: source.into(),
                })?;
            }
        })
    }
}

impl<Q: Key> std::fmt::Debug for StoreSource<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSource").field("kind", self.store.kind()).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl<Q: Key> Shared<Q> {
    /// Offers every object of the store again, as if it had just been listed.
    fn sweep(&self, store: &KindStore) -> Result<(), ReadError> {
        for view in store.list(&Select::all())? {
            self.deliver(&Delta {
                old: None,
                new: Some(&view),
                initial: true,
                resync: false,
                own_write: false,
            });
        }
        Ok(())
    }

    fn deliver(&self, delta: &Delta<'_>) {
        if !self.feed.predicates.iter().all(|predicate| predicate.admits(delta)) {
            return;
        }
        let mut keys = Enqueue::new();
        self.feed.handler.handle(delta, &mut keys);
        let mut add = self.feed.add(delta);
        // Made when the first key of another name comes, and shared by all of them.
        let mut other = None;
        for key in keys.into_keys() {
            add.cause.object = self.feed.subject(delta, &key, &mut other);
            if matches!(self.sink.offer(key, add.clone()), Added::Refused) {
                self.owed.notify_one();
            }
        }
    }
}

impl<Q: Key> DeltaHandler for Arc<Shared<Q>> {
    fn handle(&self, delta: &Delta<'_>) {
        self.deliver(delta);
    }
}

// === impl Feed ===

impl<Q: Key> Feed<Q> {
    fn add(&self, delta: &Delta<'_>) -> Add {
        Add {
            strength: strength(delta, self.primary),
            band: if delta.initial || delta.resync { Band::Background } else { Band::Live },
            cause: Cause::bare(trigger(delta)),
            after: None,
            new_generation: self.primary && generation_changed(delta),
        }
    }

    /// Names the delta's object as the cause for `key`.
    fn subject(&self, delta: &Delta<'_>, key: &Q, other: &mut Option<Arc<Subject>>) -> Option<Arc<Subject>> {
        let request = &delta.new.or(delta.old)?.meta().request;
        if (request.namespace(), request.name()) == (key.namespace(), key.name()) {
            return Some(Arc::clone(&self.namesake));
        }
        let kind = self.namesake.kind();
        let named = || Subject::Other(ObjectKey { kind: kind.clone(), request: request.clone() });
        Some(Arc::clone(other.get_or_insert_with(|| Arc::new(named()))))
    }
}

fn trigger(delta: &Delta<'_>) -> Trigger {
    match (delta.old, delta.new) {
        _ if delta.resync => Trigger::Resync,
        _ if delta.initial => Trigger::Initial,
        (None, _) => Trigger::Created,
        (Some(_), Some(_)) => Trigger::Updated,
        (Some(_), None) => Trigger::Deleted,
    }
}

fn generation_changed(delta: &Delta<'_>) -> bool {
    matches!((delta.old, delta.new), (Some(old), Some(new)) if old.meta().generation != new.meta().generation)
}

/// A delta is weak if it says nothing new: a resync, or our own write, also of other objects than the primary (a
/// reconcile that writes a child and then fails must not undo its own backoff). Of the primary, an update of nothing
/// but status and managedFields says nothing new about what is asked for either. Kinds without generations have no
/// status apart, so there every update counts.
pub(super) fn strength(delta: &Delta<'_>, primary: bool) -> Strength {
    let weak = match (delta.old, delta.new) {
        _ if delta.resync || delta.own_write => true,
        (Some(old), Some(new)) => primary && new.meta().generation.is_some() && same_but_status(old, new),
        _ => false,
    };
    if weak { Strength::Weak } else { Strength::Strong }
}

fn same_but_status(old: &View, new: &View) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.uid == new.uid
        && old.generation == new.generation
        && old.deleting == new.deleting
        && old.labels == new.labels
        && old.annotations_hash == new.annotations_hash
        && old.finalizers == new.finalizers
        && old.owners == new.owners
}
