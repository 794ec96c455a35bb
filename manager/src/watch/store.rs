//! The source of most controllers: the deltas of one store.
//!
//! # Invariants
//! 1. No key is lost to a full queue, and memory stays bounded. After a refusal the source waits until the
//!    queue has drained and sweeps the store: it offers every object again, and waits at each further
//!    refusal.
//! 2. The adds of a sweep are weak: they enqueue an absent key and leave a key in its backoff alone.
//! 3. Weak, so that they never end a backoff, are also the adds of a resync, of a write by the run of the
//!    same key, and of a change of only the status of the primary object. All others are strong. See
//!    [`strength`].
//! 4. A new generation of the primary object, or a new object of its name, clears the failures of the key. A
//!    generation that the run of the key wrote itself does not.
//! 5. The annotations that pause an object or ask for a reconcile bypass the predicates, and their adds are
//!    strong. Strong are also the adds when an object becomes too large to be decoded, or small enough again.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::trace;

use super::predicate::changes_readability;
use super::{Enqueue, EventHandler, Predicate, Sink, Source, SourceFuture};
use crate::cache::{Delta, DeltaHandler, ReadError, Select, Store, UntypedStore, View};
use crate::key::{Cause, Key, NamespacedName, ObjectKey, Subject, Trigger};
use crate::queue::{Add, Added, Band, Strength};

/// A store, and the predicates that a delta has to pass before a controller sees it.
///
/// `&store` converts into a `Watched` without predicates, [`Store::when`] makes one with a predicate.
#[must_use = "it does nothing until a controller watches it"]
#[derive(derive_more::Debug)]
#[debug("Watched {{ kind: {:?}, .. }}", self.store.kind())]
pub struct Watched {
    store: Arc<UntypedStore>,
    predicates: Vec<Box<dyn Predicate>>,
}

/// A source that turns the deltas of one store into keys: predicates, then handler, then queue.
#[derive(derive_more::Debug)]
#[debug("StoreSource {{ kind: {:?}, .. }}", self.store.kind())]
pub struct StoreSource<Q: Key> {
    store: Arc<UntypedStore>,
    feed: Feed<Q>,
}

struct Feed<Q: Key> {
    handler: Box<dyn EventHandler<Q>>,
    predicates: Vec<Box<dyn Predicate>>,
    /// Whether the queue is keyed by the objects of this store, so that each key is the name of one.
    primary: bool,
    /// The subject of the cause of each key that has the name of the changed object, shared by all such
    /// causes.
    namesake: Arc<Subject>,
}

/// State of a source, shared by the dispatcher of its store and the task of the source.
struct Shared<Q: Key> {
    feed: Feed<Q>,
    sink: Sink<Q>,
    /// Names of the controller and of its event handler, for logs and metrics.
    name: String,
    /// Wakes the task that offers all objects of the store again: has a permit while such a sweep is due.
    sweep_due: Notify,
}

/// Offers the objects of a store to the queue again after a refusal, and keeps the adds that the queue
/// refuses.
struct Sweeper<Q: Key> {
    shared: Arc<Shared<Q>>,
    refused: Mutex<Vec<(Q, Add)>>,
}

/// Number of objects that a sweep of a store offers to the queue between two chances for other work of the
/// same thread.
const SWEPT_PER_TURN: usize = 256;

// === impl Watched ===

impl<K> Store<K> {
    /// Returns this store with a predicate: a controller sees only the deltas that `predicate` admits. For
    /// [`Controller::reconciles`] and the like.
    ///
    /// ```
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use mainstay::cache::Store;
    /// # use mainstay::controller::Controller;
    /// use mainstay::watch::GenerationChanged;
    ///
    /// # fn wire(deployments: &Store<Deployment>) {
    /// let controller = Controller::new("restarter").reconciles(deployments.when(GenerationChanged));
    /// # }
    /// ```
    ///
    /// [`Controller::reconciles`]: crate::controller::Controller::reconciles
    pub fn when(&self, predicate: impl Predicate) -> Watched {
        Watched::from(self).when(predicate)
    }
}

impl Watched {
    /// Restricts the deltas of the watched store further, to those that `predicate` admits too.
    pub fn when(mut self, predicate: impl Predicate) -> Self {
        self.predicates.push(Box::new(predicate));
        self
    }

    pub(crate) fn store(&self) -> &Arc<UntypedStore> {
        &self.store
    }
}

impl<K> From<&Store<K>> for Watched {
    fn from(store: &Store<K>) -> Self {
        Arc::clone(store.untyped()).into()
    }
}

impl From<Arc<UntypedStore>> for Watched {
    fn from(store: Arc<UntypedStore>) -> Self {
        Self { store, predicates: Vec::new() }
    }
}

// === impl StoreSource ===

impl<Q: Key> StoreSource<Q> {
    /// Makes a source of the keys that `handler` returns for the deltas of a store.
    pub fn new(watched: impl Into<Watched>, handler: impl EventHandler<Q>) -> Self {
        let Watched { store, predicates } = watched.into();
        let namesake = Arc::new(Subject::Namesake(store.kind().clone()));
        Self { store, feed: Feed { handler: Box::new(handler), predicates, primary: false, namesake } }
    }

    /// Marks the objects of this store as those that the queue is keyed by. A change of only their status
    /// then does not end a backoff (a weak add), and a new generation, or a new object of the name, clears
    /// earlier failures.
    #[must_use]
    pub fn primary(mut self) -> Self {
        self.feed.primary = true;
        self
    }
}

impl<Q: Key> Source<Q> for StoreSource<Q> {
    fn run(self: Box<Self>, sink: Sink<Q>, stop: CancellationToken) -> SourceFuture {
        let Self { store, feed } = *self;
        let name = format!("{}: {}", sink.queue().name(), feed.handler.name());
        let shared = Arc::new(Shared { feed, sink, name, sweep_due: Notify::new() });
        Box::pin(async move {
            let mut subscription = store.subscribe(Box::new(Arc::clone(&shared)));
            // The order does not matter: a controller that is ending ignores the sync.
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = subscription.synced() => shared.sink.synced(),
            }
            let sweeper = Sweeper { shared: Arc::clone(&shared), refused: Mutex::default() };
            let sweeps = async {
                loop {
                    shared.sweep_due.notified().await;
                    if let Err(failure) = sweeper.sweep(&store).await {
                        return failure;
                    }
                }
            };
            // Biased: a controller that is ending needs no sweep.
            tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                failure = sweeps => Err(failure.into()),
            }
        })
    }

    fn name(&self) -> String {
        format!("store {}", self.store.kind())
    }
}

// === impl Shared ===

impl<Q: Key> Shared<Q> {
    /// Returns the keys to enqueue because of the delta, each with its add; none if a predicate drops the
    /// delta.
    fn adds(&self, delta: &Delta<'_>) -> impl Iterator<Item = (Q, Add)> {
        let controller = self.sink.queue().name();
        let own = delta.own_write.filter(|writer| writer.is_controller(controller) && writer.is_run());
        let own = own.map(|writer| (writer, self.feed.add(delta, true)));
        let mut keys = Enqueue::new(self.feed.add(delta, false), own);
        trace!(controller, "predicates and handler are called");
        if self.feed.admits(delta) {
            self.feed.handler.handle(delta, &mut keys);
        }
        // Allocated for the first key that has another name than the object, and shared by all such keys.
        let mut other = None;
        keys.into_adds().map(move |(key, mut add)| {
            if add.cause.object.is_none() {
                add.cause.object = self.feed.subject(delta, &key, &mut other);
            }
            (key, add)
        })
    }
}

impl<Q: Key> DeltaHandler for Arc<Shared<Q>> {
    fn handle(&self, delta: &Delta<'_>) {
        for (key, add) in self.adds(delta) {
            if matches!(self.sink.offer(key, add), Added::Refused) {
                self.sweep_due.notify_one();
            }
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

// === impl Sweeper ===

impl<Q: Key> Sweeper<Q> {
    /// Offers every object of the store to the queue again, as if it had just been listed, and waits wherever
    /// the queue is full.
    ///
    /// Beginning anew at each refusal would offer the same first objects every time, and never reach the last
    /// ones.
    async fn sweep(&self, store: &UntypedStore) -> Result<(), ReadError> {
        self.shared.sink.queue().wait_for_room().await;
        // Names and not views: a sweep may take long, and each object is read when its turn comes.
        let views = store.list(&Select::all())?;
        let names: Vec<NamespacedName> = views.iter().map(|view| view.request().clone()).collect();
        drop(views);
        for (at, name) in names.iter().enumerate() {
            if let Some(view) = store.get(name)? {
                let (old, new) = (None, Some(&view));
                store.call(self, &Delta { old, new, initial: true, resync: false, own_write: None });
            }
            self.retry_refused().await;
            if at % SWEPT_PER_TURN == SWEPT_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Offers the refused adds to the queue again until it has taken all of them.
    async fn retry_refused(&self) {
        loop {
            let refused = std::mem::take(&mut *self.refused.lock());
            if refused.is_empty() {
                return;
            }
            self.shared.sink.queue().wait_for_room().await;
            for (key, add) in refused {
                self.offer(key, add);
            }
        }
    }

    fn offer(&self, key: Q, add: Add) {
        if matches!(self.shared.sink.offer(key.clone(), add.clone()), Added::Refused) {
            self.refused.lock().push((key, add));
        }
    }
}

/// A sweep calls the handler as the dispatcher of the store does, so a panic loses one object only.
impl<Q: Key> DeltaHandler for Sweeper<Q> {
    fn handle(&self, delta: &Delta<'_>) {
        for (key, add) in self.shared.adds(delta) {
            self.offer(key, Add { strength: Strength::Weak, new_generation: false, ..add });
        }
    }

    fn name(&self) -> &str {
        &self.shared.name
    }
}

// === impl Feed ===

impl<Q: Key> Feed<Q> {
    fn admits(&self, delta: &Delta<'_>) -> bool {
        is_steered(delta) || self.predicates.iter().all(|predicate| predicate.verdict(delta).passes())
    }

    /// Returns the add of a key for a delta; `own` is whether the run of this key wrote the delta.
    fn add(&self, delta: &Delta<'_>, own: bool) -> Add {
        let strength = strength(delta, self.primary, own);
        let band = match delta.old {
            _ if delta.initial || delta.resync => Band::Background,
            // A lane of its own, so that a burst of creations does not delay changes.
            None if self.primary => Band::New,
            _ => Band::Live,
        };
        Add {
            strength,
            band,
            // Not with a weak add, or a run that writes the spec and then fails would end its own backoff.
            new_generation: self.primary && strength == Strength::Strong && is_new_request(delta),
            ..Add::strong(Cause::bare(trigger(delta)))
        }
    }

    /// Returns the object of the delta as the subject of the cause for `key`. `other` keeps the subject that
    /// is shared by all keys with another name than the object.
    fn subject(&self, delta: &Delta<'_>, key: &Q, other: &mut Option<Arc<Subject>>) -> Option<Arc<Subject>> {
        let request = &delta.new.or(delta.old)?.meta().request;
        if (request.namespace(), request.name()) == (key.namespace(), key.name()) {
            return Some(Arc::clone(&self.namesake));
        }
        let kind = self.namesake.kind();
        let named = || Subject::Other(ObjectKey { kind: kind.clone(), name: request.clone() });
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

/// Returns whether the object of the delta has a spec that no run has seen: a new generation, or a new object
/// of the name.
fn is_new_request(delta: &Delta<'_>) -> bool {
    match (delta.old.map(View::meta), delta.new.map(View::meta)) {
        (Some(old), Some(new)) => old.generation != new.generation || old.uid != new.uid,
        (None, Some(_)) => !delta.initial && !delta.resync,
        (_, None) => false,
    }
}

/// Returns whether the delta shows that a person has paused the object, resumed it, or requested a reconcile,
/// by annotation.
fn is_steered(delta: &Delta<'_>) -> bool {
    let (Some(old), Some(new)) = (delta.old.map(View::meta), delta.new.map(View::meta)) else { return false };
    let asked = new.reconcile_at_hash != 0 && old.reconcile_at_hash != new.reconcile_at_hash;
    asked || old.paused != new.paused
}

/// Returns the strength of the add of a key for a delta; `own` if the run of the key wrote the delta. The
/// first case that applies decides:
///
/// | case | strength |
/// |---|---|
/// | the annotation `paused` is set or removed, or `reconcile-at` changes, by any writer | strong |
/// | the object becomes too large to be decoded, or small enough again | strong |
/// | a resync | weak |
/// | a write of the primary by the run, if the answer may also show edits by others | strong |
/// | any other write by the run, which must not end its own backoff if it fails afterwards | weak |
/// | a change of only status and managedFields, of a primary of a kind with generations | weak |
/// | everything else, also writes by runs of other keys and by other controllers of this process | strong |
///
/// For kinds without generations every update by others is strong, because they have no status of their own.
pub(super) fn strength(delta: &Delta<'_>, primary: bool, own: bool) -> Strength {
    let weak = match (delta.old, delta.new) {
        _ if is_steered(delta) || changes_readability(delta) => false,
        _ if delta.resync => true,
        _ if own => !(primary && may_show_foreign_edits(delta)),
        (Some(old), Some(new)) => primary && new.meta().generation.is_some() && same_but_status(old, new),
        _ => false,
    };
    if weak { Strength::Weak } else { Strength::Strong }
}

/// Returns whether the answer to an own write may also show edits by others, which no later event shows
/// again: another generation (other content, for a kind without generations) or other finalizers, unless the
/// write was for exactly the stored version. A new status is no such edit, because a failing run may report
/// one each time. The beginning of a deletion always is, because the object may need a cleanup.
fn may_show_foreign_edits(delta: &Delta<'_>) -> bool {
    let (old, Some(new)) = (delta.old.map(View::meta), delta.new.map(View::meta)) else { return false };
    let Some(old) = old else { return new.deleting };
    let edited = old.finalizers != new.finalizers
        || match new.generation {
            Some(_) => old.generation != new.generation,
            None => old.content_hash != new.content_hash,
        };
    let alone =
        || delta.own_write.is_some_and(|writer| writer.was_for_version(old.resource_version.number()));
    old.deleting != new.deleting || (edited && !alone())
}

/// Returns whether only the status of the object changed between two states. For a kind with generations,
/// content that changes without a new generation is status too.
fn same_but_status(old: &View, new: &View) -> bool {
    old.meta().has_same_metadata(new.meta())
}
